// The nodes of all types of a graph, numbered one after the other, with their neighbours in both directions: compressed
// rows, as partitioners read them. An edge counts as many times as it is listed, from both of its ends; one of a node
// to itself counts nowhere.
//
// Invariants: `starts` has an entry more than there are nodes; neighbours of a list ascend; weights are above 0, and
// those of `u` to `v` and of `v` to `u` are the same.
// Thread safety: functions of their arguments.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace livegnn {

struct Adjacency {
  std::vector<int64_t> starts, neighbors, weights;
};

struct AdjacencyView {
  AdjacencyView(std::span<const int64_t> starts, std::span<const int64_t> neighbors, std::span<const int64_t> weights)
      : starts(starts), neighbors(neighbors), weights(weights) {}
  AdjacencyView(const Adjacency& of) : starts(of.starts), neighbors(of.neighbors), weights(of.weights) {}

  size_t num_nodes() const { return starts.size() - 1; }
  template <class Visit>  // neighbour, weight
  void for_each(size_t node, const Visit& visit) const {
    for (int64_t at = starts[node]; at < starts[node + 1]; ++at) visit(static_cast<size_t>(neighbors[at]), weights[at]);
  }

  std::span<const int64_t> starts, neighbors, weights;
};

// Edges of one type; the numbers of their ends begin at the offsets.
struct ListedEdges {
  std::span<const uint32_t> sources, targets;
  size_t source_offset = 0, target_offset = 0;
};

// Throws std::invalid_argument if columns differ in length, or an end is none of `nodes`.
Adjacency join_edges(size_t nodes, std::span<const ListedEdges> edges);

// Throws std::invalid_argument unless the view is one of `nodes` nodes: bounds and order of `starts`, ends in range.
void check_adjacency(const AdjacencyView& of, size_t nodes);

// The number of edges between nodes of two owners, and of all edges between two nodes.
struct Cut {
  int64_t between = 0, all = 0;
};
Cut cut_of(const AdjacencyView& of, std::span<const uint16_t> owners);

}  // namespace livegnn
