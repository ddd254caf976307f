// Computes the aggregate of one node from the rows of all its in-neighbours in the current graph.
//
// Thread safety: any number of threads may call these functions.
#pragma once

#include <cstdint>
#include <span>

#include "inference/evaluation/rows.h"
#include "inference/rows/row_state.h"

namespace livegnn {

// A sum or a maximum of rows of `input`, which has a row for every node, in the store's order. `counts` receives, for a
// maximum, the number of messages that equal it in each channel.
void aggregate_all(const RowState& state, const PropagateStep& step, const Rows& input, uint32_t node, float* out,
                   float* counts);
// The same if not all rows of the input are kept.
void aggregate_computed(const RowState& state, const PropagateStep& step, uint32_t node, float* out, float* counts);
// Adds neighbours in the order of their indices, so that a row that is not kept is the same whenever it is computed.
// `counts` may be null.
void aggregate_in_order(const RowState& state, const PropagateStep& step, const Rows& input, uint32_t node, float* out,
                        float* counts);
// The same for many nodes, whose rows are placed in the arena. The row that each neighbour sends is located once; it
// may have to be computed recursively.
void pull(const RowState& state, const PropagateStep& step, std::span<const uint32_t> nodes, RowArena* arena,
          const float** out);

}  // namespace livegnn
