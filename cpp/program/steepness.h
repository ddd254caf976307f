// Which sums along edges are read by a steep function: one that can magnify a small part of its input, as a logarithm,
// a quotient or a norm can.
//
// What a sum keeps of earlier rounding is bounded compared with the row. A network of gentle functions (linear maps,
// ReLU, tanh, maxima) hands such an error on as it is; a steep one may make it as large as its result.
//
// Thread safety: pure functions.
#pragma once

#include <vector>

#include "program/program.h"

namespace livegnn {

// By propagation. A function that is not known to be gentle is steep, as is every product of two rows that are made of
// the sum, and every softmax of such rows.
std::vector<bool> find_steep(const Program& program);

}  // namespace livegnn
