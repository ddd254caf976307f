// Maxima of rows along edges (as in InkStream).
//
// Maxima have no inverse, so the number of messages that equal each maximum is stored with it. The maximum stays while
// one of them remains. Only a target that loses all of them and receives none as large is computed from all its
// neighbours.
//
// Thread safety: the same as for every propagation.
#pragma once

#include "inference/propagation/row_propagation.h"

namespace livegnn {

class MaxPropagation final : public RowPropagation {
 public:
  using RowPropagation::RowPropagation;

  void prepare(const NodeRows* reader, PreparedBatch* prepared) const override;

 private:
  // The old and the new row of a source, either of which may be missing, and the two weights.
  struct Message {
    const float *before, *after;
    float before_weight, after_weight;
    uint32_t key;  // of the edge
  };
  struct Batch;  // state that blocks of targets share

  void find_messages(Batch* batch) const;
  void group(Batch* batch) const;
  void add(uint32_t target, const Message& message, Batch* batch) const;
  void update(Batch* batch, size_t t) const;
  // The row of a node from all its neighbours after the batch, and how many messages equal it.
  void recompute(Batch* batch, uint32_t node, float* row, uint32_t* ties) const;
};

}  // namespace livegnn
