// Sums of rows along edges (RIPPLE, section 4.3; NeutronRT, algorithm 1).
//
// A batch adds to each affected aggregate
//   sum over changed u -> v of w * (new_u - old_u)   +   sum over changed edges u -> v of (w_new - w_old) * now_u
// with the old graph's edges in the first sum; added and removed edges are those whose old or new weight is nothing.
// Each sum is taken by one thread in a fixed order.
//
// Drift: a bound on the rounding that a row has gathered since it was last computed from its neighbours is kept with
// it; past kDriftTolerance it is computed anew (rounding.h), and so it is where that is cheaper.
//
// Thread safety: as of every propagation.
#pragma once

#include "inference/row_propagation.h"

namespace livegnn {

class SumPropagation final : public RowPropagation {
 public:
  using RowPropagation::RowPropagation;

  void prepare(const NodeRows* reader, Preparation* prepared) const override;
  bool takes_reader() const override { return true; }

 private:
  struct Batch;  // what blocks of targets share

  void find_orphans(Batch* batch, const std::vector<uint32_t>& slots) const;
  void update_block(Batch* batch, size_t begin, size_t end) const;
  void update(Batch* batch, size_t t, float* sum) const;
  // The row of target t from all its neighbours as they will be.
  void recompute(Batch* batch, size_t t) const;
};

}  // namespace livegnn
