// Moves of nodes that are placed: until no part has too many of a type, and to the parts where more of their neighbours
// are. Pure functions of owners and lists of neighbours.
//
// Invariants: the same arguments give the same moves; `refine` never fills a part beyond FennelRule::most.
// Thread safety: functions of their arguments.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "placement/adjacency.h"

namespace livegnn {

// A graph in parts. type_starts: the first node of each type, then the number of nodes; owners: by node.
struct Division {
  AdjacencyView lists;
  std::span<const int64_t> type_starts;
  uint32_t parts;

  // Throws std::invalid_argument if they do not fit together.
  void check(std::span<const uint16_t> owners) const;
};

// Moves nodes out of parts with too many of a type, those first that lose the fewest edges; returns how many.
size_t even_out(const Division& division, std::span<uint16_t> owners);

// Fennel's rule again for nodes that are placed: in each of `passes`, those of `nodes` that gain most move first. Ends
// after a pass that moves none, or after `budget` moves in all; returns how many. Requires: each of `nodes` once.
size_t refine(const Division& division, std::span<const int64_t> nodes, size_t passes, size_t budget,
              std::span<uint16_t> owners);

}  // namespace livegnn
