// Maxima of rows along edges (the case of InkStream).
//
// Maxima have no inverse, so beside each is kept how many messages equal it: it stays while one of them does, and only
// a target that is left with none of them, and gets none as large, is computed from all its neighbours.
//
// Thread safety: as of every propagation.
#pragma once

#include "inference/row_propagation.h"

namespace livegnn {

class MaxPropagation final : public RowPropagation {
 public:
  using RowPropagation::RowPropagation;

  void prepare(const NodeRows* reader, Preparation* prepared) const override;

 private:
  // A source's old and new row, either of which may be missing, and the two weights.
  struct Message {
    const float *before, *after;
    float before_weight, after_weight;
  };
  struct Batch;  // what blocks of targets share

  void find_messages(Batch* batch) const;
  void add(uint32_t target, const Message& message, Batch* batch) const;
  void update(Batch* batch, size_t t) const;
  // The row of a node from all its neighbours as they will be, and how many messages equal it.
  void recompute(Batch* batch, uint32_t node, float* row, uint32_t* ties) const;
};

}  // namespace livegnn
