// The values of a program of which the parts of a graph send each other rows, each before the first depth that reads it
// along edges. Features are not sent: every part has those of all nodes.
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

}  // namespace livegnn
