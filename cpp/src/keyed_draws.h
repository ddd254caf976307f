// Draws from lists in which edges between the same two nodes are told apart by a key: each edge is drawn by itself.
//
// What is drawn alike and without a bound costs a walk down the tree for each draw; all else looks at all edges of a
// node. The law is that of neighbor_draws.h, where also invariant and thread safety are.
#pragma once

#include <span>

#include "livegnn/neighbor_draws.h"

namespace livegnn {

void draw_keyed(const NeighborDraws::Task& task, std::span<const uint32_t> nodes, std::span<const double> until,
                uint64_t first_place, NeighborColumns* to);

}  // namespace livegnn
