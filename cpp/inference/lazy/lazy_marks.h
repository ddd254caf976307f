// What a lazy engine (lazy.h) marks of a batch that it does not compute.
//
// Thread safety: none; each belongs to one batch.
#pragma once

#include <cstdint>
#include <vector>

#include "inference/rows/changes.h"

namespace livegnn {

struct LazyMarks {
  std::vector<std::vector<uint32_t>> reached;  // by lazy step
  std::vector<Changes> before;                 // by eager value: rows that will be overwritten
};

}  // namespace livegnn
