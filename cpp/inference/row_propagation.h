// What sums and maxima of rows share: how they come from the graph alone, and how they are looked over.
//
// Thread safety: as of every propagation.
#pragma once

#include "inference/propagation.h"

namespace livegnn {

class RowPropagation : public Propagation {
 public:
  using Propagation::Propagation;

  void initialize(State* state, Whole* whole) const override;
  Scrubbed scrub(std::span<const uint32_t> nodes) const override;
};

}  // namespace livegnn
