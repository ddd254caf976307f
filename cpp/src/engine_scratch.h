// What one batch needs and the next can use again.
#pragma once

#include <cstdint>
#include <vector>

#include "livegnn/engine.h"

namespace livegnn {

inline constexpr size_t kBlockRows = 32;  // rows a thread takes at a time
// What work costs one thread, in nanoseconds, as measured: to decide whether a second thread is worth waking.
inline constexpr double kRowCost = 80, kMessageCost = 40, kFlopCost = 0.012;

struct Engine::Scratches {
  // By node type: where a node stands in the list at hand, kNoIndex between uses. Two, since a frontier needs its sources
  // and its targets at once.
  std::vector<std::vector<uint32_t>> slots[2];
  std::vector<std::vector<uint8_t>> removed;  // by node type: set while a batch that removes the node is prepared

  // The frontier: first in the order in which messages were found, then grouped by target.
  std::vector<uint32_t> targets, counts, offsets;
  std::vector<uint32_t> found_target, found_row;
  std::vector<float> found_weight;
  std::vector<uint32_t> row_of;
  std::vector<float> weight_of;
  std::vector<const float*> rows;
  std::vector<float> peaks;
  Scratch differences;
  std::vector<uint8_t> keep;

  // The nodes of a rows step, and per source where the new row is.
  std::vector<uint32_t> nodes;
  std::vector<std::vector<uint32_t>> positions;
};

}  // namespace livegnn
