// The plain model that the tests of the store hold it against: a map of edges.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "livegnn/graph_store.h"
#include "testing.h"

namespace livegnn::testing {

using Edge = std::pair<uint32_t, uint32_t>;
using EdgeModel = std::map<Edge, EdgeValue>;
using Neighbors = std::map<uint32_t, EdgeValue>;

// The same edge whichever way round it is named, where that is one edge.
inline Edge named(uint32_t source, uint32_t target, bool undirected) {
  return undirected && target < source ? Edge{target, source} : Edge{source, target};
}

// What is left of a value in a type that lacks some columns.
inline EdgeValue kept(EdgeValue value, EdgeColumns columns) {
  return {columns.weighted ? value.weight : 1.0f, columns.timed ? value.time : 0.0,
          columns.featured ? value.row : kNoRow};
}

inline bool same_value(EdgeValue a, EdgeValue b) { return a.weight == b.weight && a.time == b.time && a.row == b.row; }

inline bool same_columns(const GraphStore::Trees::Saved& a, const GraphStore::Trees::Saved& b) {
  return a.shape == b.shape && a.keys == b.keys && a.ids == b.ids && a.weights == b.weights && a.times == b.times &&
         a.rows == b.rows && a.sums == b.sums && a.orders == b.orders;
}

inline Neighbors neighbors(const GraphStore& store, uint32_t node, bool out) {
  Neighbors found;
  auto visit = [&](NeighborSpan span) {
    for (size_t i = 0; i < span.size; ++i) {
      EdgeValue value{span.weights ? span.weights[i] : 1.0f, span.times ? span.times[i] : 0.0,
                      span.rows ? span.rows[i] : kNoRow};
      CHECK(found.emplace(span.ids[i], value).second);
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
    CHECK_EQ(a->first, b->first);
    CHECK(same_value(a->second, b->second));
  }
}

// The values of a model are those that the store's columns keep.
inline void check_against(const GraphStore& store, const EdgeModel& model) {
  store.check();
  CHECK_EQ(store.num_edges(), model.size());
  std::vector<Neighbors> out(store.num_sources()), in(store.num_targets());
  for (const auto& [edge, value] : model) {
    auto [source, target] = edge;
    out[source][target] = in[target][source] = value;
    if (store.options().undirected) out[target][source] = in[source][target] = value;
    CHECK(store.find(source, target).has_value());
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
