// Functions that sums and maxima of rows share: initialization from the graph, and scrubbing.
//
// Thread safety: the same as for every propagation.
#pragma once

#include "inference/propagation/propagation.h"

namespace livegnn {

class RowPropagation : public Propagation {
 public:
  using Propagation::Propagation;

  void initialize(RowState* state, RoundingState* rounding, Whole* whole) const override;
  Scrubbed scrub(std::span<const uint32_t> nodes) const override;
};

}  // namespace livegnn
