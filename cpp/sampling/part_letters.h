// What the parts of a divided graph are asked while a sample is drawn, and what they answer, as frames (frame.h).
//
//   question   Question; then for each thing that is wanted its Wanted, and WantedDraws with nodes, places and bounds,
//              or WantedRows with nodes
//   answer     Answer; then, if the part shows the batch of the question: for draws the number of all neighbours, their
//              number for each node, and the columns, ids first; for rows their floats
//
// Nodes are indices, which are the same at all parts. Weights of neighbours that are not drawn stay at the part.
#pragma once

#include <cstdint>

namespace livegnn {

struct Question {
  uint64_t commits;  // of the asker's graph (graph_part.h)
};

enum class Wanted : uint64_t { kDraws, kRows };

struct WantedDraws {
  uint64_t seed, purpose;
  uint32_t nodes, bounds;  // of bounds: 0, 1 for all, or one for each node
  uint32_t edge_type;
  int32_t count;
  uint8_t incoming, by, replace;
  uint8_t weights, times, features;  // whether these columns are sent
  uint8_t unused[2] = {0, 0};
};

struct WantedRows {
  uint32_t node_type, nodes;
};

struct Answer {
  uint64_t commits;  // of the part's graph; nothing follows if they differ from the question's
};

}  // namespace livegnn
