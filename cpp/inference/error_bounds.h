// The bounds of what rows of an aggregate may have lost to rounding (rounding.h): how many numbers a row has, and all
// of them as numbers.
//
// A row has its bounds packed into one number; a softmax has one for each head's sums and one for each context.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "inference/state.h"

namespace livegnn {

// Heads of the messages of a step that has a program.
size_t heads_of(const Program& program, const PropagateStep& step);
// How many floats the bounds on a row's error take in the table, and as they are saved.
size_t error_width(const Program& program, const PropagateStep& step);
size_t saved_error_width(const Program& program, const PropagateStep& step);

// Those of all rows that are kept, row by row.
std::vector<float> saved_errors(const State& state, size_t propagation);
void load_errors(State* state, size_t propagation, std::span<const float> errors);

// Sums have just been computed from all their neighbours.
void begin_all_bounds(State* state, size_t propagation, ThreadPool* pool);
// Bounds are put into units that are so many times smaller.
void shrink_bounds(const PropagateStep& step, float shrunk, Table* errors) noexcept;

}  // namespace livegnn
