// Sums of rows along edges (RIPPLE, section 4.3; NeutronRT, algorithm 1).
//
// A batch adds to each affected aggregate
//   sum over changed u -> v of w * (new_u - old_u)   +   sum over changed edges u -> v of (w_new - w_old) * now_u
// with the old graph's edges in the first sum; for added and removed edges the old or the new weight is zero. Each sum
// is taken by one thread in a fixed order.
//
// Drift: each row is stored with a bound on the rounding error that it has accumulated since it was last computed from
// its neighbours. If the bound exceeds kDriftTolerance, the row is computed again from all neighbours (rounding.h), and
// also if that is cheaper, or if few terms are left.
//
// Thread safety: the same as for every propagation.
#pragma once

#include "inference/propagation/row_propagation.h"

namespace livegnn {

// A sum of few terms is taken anew at each touch. Then nothing is left in it that a steep function (steepness.h), or
// one of how messages far from 0 differ, would magnify. Where nothing does, only sums are few that cost no more anew.
inline constexpr size_t kFewTerms = 8, kCheapTerms = 2;

inline size_t few_terms(const RoundingState& rounding, size_t propagation, bool offset) {
  return rounding.steep[propagation] || offset ? kFewTerms : kCheapTerms;
}

struct Kernels;

class SumPropagation final : public RowPropagation {
 public:
  using RowPropagation::RowPropagation;

  void prepare(const NodeRows* reader, PreparedBatch* prepared) const override;
  bool takes_reader() const override { return true; }

 private:
  struct Batch;  // state that blocks of targets share
  struct Tally;
  struct Terms;

  void update_block(Batch* batch, size_t begin, size_t end) const;
  void update(Batch* batch, const Kernels& k, size_t t, const Terms& terms, float* sum, Tally* tally) const;
  void find_terms(const Batch& batch, size_t t, Terms* terms) const;
  // The row of target t from all its neighbours after the batch.
  void recompute(Batch* batch, size_t t, Tally* tally) const;
  bool sum_few(const Batch& batch, const Kernels& k, size_t t, const Terms& terms, Tally* tally) const;
};

}  // namespace livegnn
