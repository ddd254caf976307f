// What a batch changes, for views: the graph as it is, the graph as it will be, and the difference.
//
// It is made when the store has prepared the batch: lists of neighbours can be read as they are (`before`) and as they
// will be (`..._after`). Everything else of the graph, such as ids and features, is read as it is, and from the delta.
//
// Thread safety: any number of threads may read it. It is good until the commit or the abandonment of the batch.
#pragma once

#include "store/graph.h"

namespace livegnn {

class Change {
 public:
  // Requires: `graph.prepare(delta)` was the last thing that happened to the graph.
  Change(const Graph& graph, const Delta& delta) : before(graph), delta(delta) {}

  const Graph& before;
  const Delta& delta;

  // Nodes of a type are numbered below this after the batch.
  size_t capacity_after(uint32_t node_type) const { return delta.nodes[node_type].capacity; }

  // Edges from a node, and to it, as they will be; a node that the batch removes has none.
  uint32_t degree_out_after(uint32_t edge_type, uint32_t node) const { return store(edge_type).degree_out_after(node); }
  uint32_t degree_in_after(uint32_t edge_type, uint32_t node) const { return store(edge_type).degree_in_after(node); }
  // As `GraphStore::scan_out` and `scan_in`.
  template <class Visit>
  void scan_out_after(uint32_t edge_type, uint32_t node, Visit&& visit) const {
    store(edge_type).scan_out_after(node, visit);
  }
  template <class Visit>
  void scan_in_after(uint32_t edge_type, uint32_t node, Visit&& visit) const {
    store(edge_type).scan_in_after(node, visit);
  }

  // Calls `visit(source, target, EdgeChange)` for every edge that changes; for an undirected one twice, once in each
  // direction, unless it is a loop.
  template <class Visit>
  void for_each_edge(uint32_t edge_type, Visit&& visit) const {
    const bool both = before.edges[edge_type].spec.options.undirected;
    for (const EdgeChange& edge : delta.edges[edge_type]) {
      visit(edge.source, edge.target, edge);
      if (both && edge.source != edge.target) visit(edge.target, edge.source, edge);
    }
  }

 private:
  const GraphStore& store(uint32_t edge_type) const { return *before.edges[edge_type].store; }
};

}  // namespace livegnn
