// The frontier of a batch: the messages that it sends along the edges of a step, grouped by the targets that it
// reaches.
//
// Thread safety: one thread, and the pool's, for each preparation.
#pragma once

#include "inference/preparation.h"
#include "inference/state.h"

namespace livegnn {

// The messages that change sums, each group in the order of its sources and after them its changed edges. Fills
// targets, offsets, row_of, weight_of, rows and peaks of the workspace's `row_frontier`, and leaves its second slots at
// the targets and its first ones at the sources, for the caller to clear. Rows are worked on with their padding, which
// is zero everywhere.
void find_row_frontier(const State& state, const PropagateStep& step, const float* inverse, ThreadPool* pool,
                       Preparation* prepared);

// The rows of the sources of changed edges, as they were; the places of sources that changed are left empty. Requires:
// the first slots of the workspace are at the sources.
void find_edge_sources(const State& state, const PropagateStep& step, ThreadPool* pool, Preparation* prepared);

}  // namespace livegnn
