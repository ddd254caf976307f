// The aggregate of one node from the rows of all its in-neighbours, as the graph is.
//
// Thread safety: any number of threads.
#pragma once

#include <cstdint>
#include <span>

#include "inference/rows.h"
#include "inference/state.h"

namespace livegnn {

// Of a sum or a maximum of rows of `input`, of which every node has one; in the store's order. `counts`: of a maximum,
// how many messages equal it, by channel.
void aggregate_all(const State& state, const PropagateStep& step, const Rows& input, uint32_t node, float* out,
                   float* counts);
// The same from rows that are not all kept.
void aggregate_computed(const State& state, const PropagateStep& step, uint32_t node, float* out, float* counts);
// Neighbours are added in the order of their indices: so rows that are not kept come out the same whenever they are
// computed. `counts` may be null.
void aggregate_in_order(const State& state, const PropagateStep& step, const Rows& input, uint32_t node, float* out,
                        float* counts);
// The same of many nodes, whose rows go into the arena. What their neighbours send is located once each, and may be
// computed in turn.
void pull(const State& state, const PropagateStep& step, std::span<const uint32_t> nodes, RowArena* arena,
          const float** out);

}  // namespace livegnn
