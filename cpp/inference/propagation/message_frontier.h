// Effects of a batch on messages that depend on more than their source, grouped by target: which targets must be
// computed again because their own rows changed, and for the others which messages are removed, added or changed.
//
// Thread safety: for each preparation, one thread and the pool's threads.
#pragma once

#include "inference/propagation/prepared_batch.h"
#include "inference/rows/row_state.h"

namespace livegnn {

// Fills the workspace's `message_frontier`; terms are in the order of source_order.h. On return, the workspace's second
// slots are set for the targets and, if rows of sources are read, the first slots for the sources; the caller must
// clear them.
void find_message_frontier(const RowState& state, const PropagateStep& step, ThreadPool* pool, PreparedBatch* prepared);

// Visits the in-edges of a node whose messages a step uses, after the batch: `visit(source, weight, features)`, first
// those that stay, in the store's order.
template <class Visit>
void scan_new_edges(const Graph& graph, const PropagateStep& step, uint32_t node,
                    std::span<const DirectedChange> changes, Visit&& visit) {
  const Table& features = graph.edges[step.edge_type].features.table();
  const EdgeView store = view_of(graph, step);
  if (step.only_loops) {
    const std::optional<OwnLoop> loop = own_loop(store, node, changes);
    if (!loop) return;
    if (loop->change != nullptr) return visit(node, loop->change->new_weight, loop->change->new_features);
    return visit(node, loop->value.weight, loop->value.row == kNoRow ? nullptr : features.row(loop->value.row));
  }
  store.scan_in(node, [&](NeighborSpan span) {
    for (size_t i = 0; i < span.size; ++i) {
      if (step.skip_loops && span.ids[i] == node) continue;
      const DirectedChange* change = changes.empty() ? nullptr : change_from(changes, span.ids[i], key_at(span, i));
      if (change == nullptr) {
        visit(span.ids[i], span.weights == nullptr ? 1.0f : span.weights[i],
              span.rows == nullptr ? nullptr : features.row(span.rows[i]));
      } else if (change->has) {
        visit(span.ids[i], change->new_weight, change->new_features);
      }
    }
  });
  for (const DirectedChange& change : changes) {
    if (step.skip_loops && change.source == node) continue;
    if (!change.had && change.has) visit(change.source, change.new_weight, change.new_features);
  }
}

}  // namespace livegnn
