// Bounds on the rounding errors of rows of an aggregate (rounding.h): how many numbers a row has, and how to save and
// load them.
//
// The bounds of a row are packed into one number; a softmax has one for each head's sums and one for each context.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "inference/rounding/rounding_state.h"
#include "inference/rows/row_state.h"

namespace livegnn {

// Number of floats that the error bounds of a row take in the table, and in their saved form.
size_t error_width(const Program& program, const PropagateStep& step);
size_t saved_error_width(const Program& program, const PropagateStep& step);

// The bounds of all kept rows, row by row.
std::vector<float> saved_errors(const RowState& rows, const RoundingState& rounding, size_t propagation);
void load_errors(const Program& program, size_t propagation, std::span<const float> errors, RoundingState* to);

// Starts the bounds of sums that have just been computed from all their neighbours.
void begin_all_bounds(const RowState& rows, size_t propagation, ThreadPool* pool, RoundingState* rounding);
// Converts bounds to units that are smaller by the factor `shrunk`.
void shrink_bounds(const PropagateStep& step, float shrunk, Table* errors) noexcept;

}  // namespace livegnn
