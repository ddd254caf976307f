// What a batch changes, as a view sees it: the graph before the batch, the graph after it, and the difference.
//
// It is made after the store has prepared the batch. Lists of neighbours can be read as they were before (`before`) and
// as they will be afterwards (`..._after`). Everything else in the graph, such as ids and features, is read from
// `before` and from the delta.
//
// Thread safety: any number of threads may read it. It is valid until the batch is committed or abandoned.
#pragma once

#include "store/graph.h"

namespace livegnn {

class Change {
 public:
  // Requires: `graph.prepare(delta)` was the last operation on the graph.
  Change(const Graph& graph, const Delta& delta) : before(graph), delta(delta) {}

  const Graph& before;
  const Delta& delta;

  // After the batch, every node of this type has an index below this number.
  size_t capacity_after(uint32_t node_type) const { return delta.nodes[node_type].capacity; }

  // Degrees after the batch; a node that the batch removes has degree 0.
  uint32_t degree_out_after(uint32_t edge_type, uint32_t node) const { return store(edge_type).degree_out_after(node); }
  uint32_t degree_in_after(uint32_t edge_type, uint32_t node) const { return store(edge_type).degree_in_after(node); }
  // Like `GraphStore::scan_out` and `scan_in`, but after the batch.
  template <class Visit>
  void scan_out_after(uint32_t edge_type, uint32_t node, Visit&& visit) const {
    store(edge_type).scan_out_after(node, visit);
  }
  template <class Visit>
  void scan_in_after(uint32_t edge_type, uint32_t node, Visit&& visit) const {
    store(edge_type).scan_in_after(node, visit);
  }

  // Calls `visit(source, target, EdgeChange)` for every edge that changes. An undirected edge is visited twice, once in
  // each direction, unless it is a loop.
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
