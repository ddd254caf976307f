// The edges that a batch changes, and the edges that carry messages, grouped by target.
#pragma once

#include <algorithm>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "inference/edges/edge_view.h"
#include "program/program.h"
#include "store/graph.h"

namespace livegnn {

struct DirectedChange {
  uint32_t source, target;  // swapped in a reversed direction
  float old_weight, new_weight;
  bool had, has;
  uint32_t key;                              // distinguishes parallel edges
  const float *old_features, *new_features;  // null if the edge type has none

  uint64_t order() const { return (uint64_t{source} << 32) | key; }  // sorts the changes of one target
};

// Whether a changed edge sends the same message as before, if messages are rows of sources, `weighted` or not.
inline bool same_messages(const DirectedChange& change, bool weighted) {
  return change.had && change.has && (!weighted || change.old_weight == change.new_weight);
}

// What a batch changes in an edge type, sorted by target, source and key; undirected edges appear in both directions.
// `zeros`: the features of edges that had none.
void direct_changes(const Graph& graph, const Delta& delta, size_t edge_type, const float* zeros,
                    std::vector<DirectedChange>* changes);
// The same changes from targets to sources.
void reverse_changes(const std::vector<DirectedChange>& changes, std::vector<DirectedChange>* reversed);

// Requires: changes are sorted by target, source and key.
inline std::span<const DirectedChange> changes_of(const std::vector<DirectedChange>& changes, uint32_t target) {
  auto less = [](const DirectedChange& change, uint32_t t) { return change.target < t; };
  auto first = std::lower_bound(changes.begin(), changes.end(), target, less);
  auto last = first;
  while (last != changes.end() && last->target == target) ++last;
  return {first, last};
}

inline const DirectedChange* change_from(std::span<const DirectedChange> changes, uint32_t source, uint32_t key) {
  const uint64_t order = (uint64_t{source} << 32) | key;
  auto less = [](const DirectedChange& change, uint64_t o) { return change.order() < o; };
  auto found = std::lower_bound(changes.begin(), changes.end(), order, less);
  return found != changes.end() && found->order() == order ? &*found : nullptr;
}

// The in-neighbours of a node after the batch: `visit(source, weight)`, first those that stay, in the store's order.
template <class Visit>
void scan_new_in(const EdgeView& store, uint32_t node, std::span<const DirectedChange> changes, Visit&& visit) {
  store.scan_in(node, [&](NeighborSpan span) {
    for (size_t i = 0; i < span.size; ++i) {
      const DirectedChange* change = changes.empty() ? nullptr : change_from(changes, span.ids[i], key_at(span, i));
      if (change == nullptr) {
        visit(span.ids[i], span.weights == nullptr ? 1.0f : span.weights[i]);
      } else if (change->has) {
        visit(span.ids[i], change->new_weight);
      }
    }
  });
  for (const DirectedChange& change : changes) {
    if (!change.had && change.has) visit(change.source, change.new_weight);
  }
}

// The loop of a node after the batch; among parallel loops the one with the greatest key. `change` is its change in
// `changes`, if there is one; otherwise `value` is its current value. Nothing if the node has no loop.
struct OwnLoop {
  uint32_t key;
  EdgeValue value;
  const DirectedChange* change;
};

inline std::optional<OwnLoop> own_loop(const EdgeView& store, uint32_t node, std::span<const DirectedChange> changes) {
  std::optional<OwnLoop> last;
  auto take = [&](const OwnLoop& loop) {
    if (!last || loop.key > last->key) last = loop;
  };
  store.scan_loops(node, [&](uint32_t key, const EdgeValue& value) {
    const DirectedChange* change = changes.empty() ? nullptr : change_from(changes, node, key);
    if (change == nullptr || change->has) take({key, value, change});
  });
  for (const DirectedChange& change : changes) {
    if (change.source == node && !change.had && change.has) take({change.key, {}, &change});
  }
  return last;
}

// Calls `visit(NeighborSpan)` for the in-edges whose messages a step uses, in the store's order: all of them, all but
// loops, or only the node's own loop.
template <class Visit>
void scan_messages(const EdgeView& store, const PropagateStep& step, uint32_t node, Visit&& visit) {
  if (step.only_loops) {
    const std::optional<OwnLoop> loop = own_loop(store, node, {});
    if (!loop) return;
    const EdgeValue& value = loop->value;
    visit(NeighborSpan{&node, &value.weight, &value.time, value.row == kNoRow ? nullptr : &value.row, 1, &loop->key});
    return;
  }
  if (!step.skip_loops) return store.scan_in(node, visit);
  store.scan_in(node, [&](NeighborSpan span) {
    for (size_t begin = 0; begin < span.size;) {
      size_t end = begin;
      while (end < span.size && span.ids[end] != node) ++end;
      if (end > begin) visit(subspan(span, begin, end));
      begin = end + 1;
    }
  });
}

}  // namespace livegnn
