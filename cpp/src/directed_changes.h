// The edges that a batch changes, seen from their targets.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "livegnn/engine.h"

namespace livegnn {

// Changes are in order of target, source and key.
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

// The in-neighbours of a node as they will be: `visit(source, weight)`, those that stay first, in the store's order.
template <class Visit>
void scan_new_in(const GraphStore& store, uint32_t node, std::span<const DirectedChange> changes, Visit&& visit) {
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

// `visit(NeighborSpan)` for the in-edges whose messages a step takes, in the store's order: all of them, or all but
// loops.
template <class Visit>
void scan_messages(const GraphStore& store, bool skip_loops, uint32_t node, Visit&& visit) {
  if (!skip_loops) return store.scan_in(node, visit);
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
