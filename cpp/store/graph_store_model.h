// The simple reference model for the tests of the store: a map of edges.
#pragma once

#include <compare>
#include <iterator>
#include <map>
#include <utility>
#include <vector>

#include "store/graph_store.h"
#include "store/samtree/samtree_model.h"
#include "testing/testing.h"

namespace livegnn::testing {

struct Edge {
  uint32_t source, target;
  uint32_t key = 0;

  auto operator<=>(const Edge&) const = default;
};
using EdgeModel = std::map<Edge, EdgeValue>;
using Neighbors = std::map<std::pair<uint32_t, uint32_t>, EdgeValue>;  // by other end and key

// A unique name for an edge: an undirected edge has the same name in both directions.
inline Edge named(Edge edge, bool undirected) {
  if (undirected && edge.target < edge.source) std::swap(edge.source, edge.target);
  return edge;
}

inline Neighbors neighbors(const GraphStore& store, uint32_t node, bool out) {
  Neighbors found;
  auto visit = [&](NeighborSpan span) {
    for (size_t i = 0; i < span.size; ++i) {
      EdgeValue value{span.weights ? span.weights[i] : 1.0f, span.times ? span.times[i] : 0.0,
                      span.rows ? span.rows[i] : kNoRow};
      CHECK(found.emplace(std::pair(span.ids[i], key_at(span, i)), value).second);
    }
  };
  if (out) {
    store.scan_out(node, visit);
  } else {
    store.scan_in(node, visit);
  }
  return found;
}

inline void check_same(const Neighbors& expected, const Neighbors& found) {
  CHECK_EQ(expected.size(), found.size());
  for (auto a = expected.begin(), b = found.begin(); a != expected.end(); ++a, ++b) {
    CHECK(a->first == b->first);
    CHECK(same_value(a->second, b->second));
  }
}

// Checks the queries for the parallel edges between two nodes. `last`: the last one between its ends.
inline void check_between(const GraphStore& store, const EdgeModel& model, const Edge& last) {
  const auto [source, target, key] = last;
  const bool undirected = store.options().undirected;
  CHECK_EQ(*store.last_key(source, target), key);
  CHECK(same_value(*store.find_any(source, target), model.at(last)));
  size_t visited = 0;
  store.scan_between(source, target, [&](uint32_t other, const EdgeValue& value) {
    CHECK(same_value(value, model.at(named({source, target, other}, undirected))));
    ++visited;
  });
  const auto first = model.lower_bound(named({source, target}, undirected));
  CHECK_EQ(visited, static_cast<size_t>(std::distance(first, model.upper_bound(last))));
}

// The model holds only the values that the store's columns keep.
inline void check_against(const GraphStore& store, const EdgeModel& model) {
  store.check();
  CHECK_EQ(store.num_edges(), model.size());
  std::vector<Neighbors> out(store.num_sources()), in(store.num_targets());
  for (const auto& [edge, value] : model) {
    const auto [source, target, key] = edge;
    out[source][{target, key}] = in[target][{source, key}] = value;
    if (store.options().undirected) out[target][{source, key}] = in[source][{target, key}] = value;
    CHECK(same_value(*store.find(source, target, key), value));
    if (store.options().keyed) CHECK_EQ(*store.last_key(source, target, key), key);
  }
  for (auto i = model.begin(); store.options().keyed && i != model.end(); ++i) {
    const auto next = std::next(i);
    const auto [source, target, key] = i->first;
    const bool last = next == model.end() || next->first.source != source || next->first.target != target;
    if (last) check_between(store, model, i->first);
  }
  for (uint32_t node = 0; node < out.size(); ++node) {
    check_same(out[node], neighbors(store, node, true));
    CHECK_EQ(store.degree_out(node), out[node].size());
  }
  if (!store.has_in()) return;
  for (uint32_t node = 0; node < in.size(); ++node) {
    check_same(in[node], neighbors(store, node, false));
    CHECK_EQ(store.degree_in(node), in[node].size());
  }
}

}  // namespace livegnn::testing
