// Repeats operations on rows whose results are not finite: slowly, in float64, and then rounded.
//
// A product may fit into float32 although a sum of some of its terms does not, and a framework adds the terms in
// another order. A result that exceeds float32 here exceeds it in any order.
//
// Thread safety: pure functions.
#pragma once

#include <span>

#include "program/program.h"

namespace livegnn {

// The result of `op` for these rows, in those places where `to` is not finite.
void retry_in_float64(const Program& program, const Op& op, const RowsStep& step, std::span<const float* const> rows,
                      float* to);

}  // namespace livegnn
