// Operations on rows that come out not finite: once more, slowly, in float64, and rounded.
//
// A product may fit into float32 where a sum of some of its terms does not, and a framework adds them in another order.
// So what is past the end of float32 here is so in any order.
//
// Thread safety: pure functions.
#pragma once

#include <span>

#include "program/program.h"

namespace livegnn {

// What `op` makes of these rows, where `to` is not finite.
void run_widely(const Program& program, const Op& op, const RowsStep& step, std::span<const float* const> rows,
                float* to);

}  // namespace livegnn
