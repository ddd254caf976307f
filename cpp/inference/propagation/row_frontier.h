// The frontier of a batch: the messages that it sends along the edges of a step, grouped by the targets that they
// reach.
//
// Thread safety: for each preparation, one thread and the pool's threads.
#pragma once

#include "inference/propagation/prepared_batch.h"
#include "inference/rows/row_state.h"

namespace livegnn {

// Finds the messages that change sums; each group is in the order of source_order.h. Fills order, targets, offsets,
// row_of, weight_of, rows and peaks of the workspace's `row_frontier`. On return, the workspace's second slots are set
// for the targets and its first slots for the sources; the caller must clear them. Rows are processed with their
// padding, which is zero everywhere.
void find_row_frontier(const RowState& state, const PropagateStep& step, const float* inverse, ThreadPool* pool,
                       PreparedBatch* prepared);

// Finds the old rows of the sources of changed edges; entries of sources that changed are left empty. Requires: the
// first slots of the workspace are set for the sources.
void find_edge_sources(const RowState& state, const PropagateStep& step, ThreadPool* pool, PreparedBatch* prepared);

}  // namespace livegnn
