// The values of a program of which the parts of a graph send each other rows, each before the first depth that reads it
// along edges. Rows of features are sent of nodes that a part begins to read: every part receives new features with the
// events.
//
// Thread safety: plain functions.
#pragma once

#include <cstdint>
#include <vector>

#include "inference/rows/row_state.h"

namespace livegnn {

// By depth, ascending. Throws std::invalid_argument if a part of a graph cannot run the program: rows that
// others read must be kept, and functions of others might give a row other bits in another block.
std::vector<std::vector<uint32_t>> boundary_values(const RowState& state);

// By edge type, and again for reversed edges: whether a part holds features of the nodes that send along them. All
// directions of a node type together, since `Readers` counts them so.
std::vector<bool> feature_directions(const RowState& state);

}  // namespace livegnn
