// What a batch does to the predictions, and the work that this takes.
//
// Thread safety: plain data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ids/id_map.h"

namespace livegnn {

struct Effects {
  std::vector<uint32_t> changed;  // nodes whose prediction changes, including added ones
  size_t affected = 0;            // nodes whose prediction was computed again
  size_t edges_touched = 0;       // messages added or subtracted, and neighbours of recomputed rows
  size_t nodes_touched = 0;       // rows of aggregates and of their inputs, old ones and new ones
  size_t recomputed = 0;          // aggregates computed from all their neighbours
  // A node whose row was finite and would not be any more: the first one in the first step that has any; kNoIndex if
  // there is none. The steps after that one have not been computed, so such a batch must not be committed.
  uint32_t lost = kNoIndex, lost_type = 0;
  size_t lost_step = 0;  // that step, by its position in the program's order; their number for the prediction
};

}  // namespace livegnn
