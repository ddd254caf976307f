// The one-hop queries of a sample, in topological order: what each draws, and for which nodes.
//
//   seeds ─► hop 0 ─► nodes that it brings in ─► hop 1 ─► ...      each one-hop query names those before it whose
//                                                                  new nodes it draws for
//
// A node belongs to the one-hop query that reaches it first; a node that a sample already has is not drawn for again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "sampling/neighbor_draws.h"
#include "store/graph.h"

namespace livegnn {

// Nodes of one type that lie side by side, by their numbers in a sample.
struct NodeRange {
  size_t begin = 0, end = 0;
};

// Adds a range behind others, or to the last of them if it begins where that ends.
inline void append_range(NodeRange range, std::vector<NodeRange>* to) {
  if (range.begin == range.end) return;
  if (!to->empty() && to->back().end == range.begin) {
    to->back().end = range.end;
  } else {
    to->push_back(range);
  }
}

struct OneHop {
  static constexpr int32_t kSeeds = -1;

  uint32_t edge_type = 0;
  bool incoming = false;  // draw sources of in-edges
  NeighborStrategy strategy;
  // Positions of earlier one-hop queries, all of one hop, or kSeeds. Those that bring in nodes of another type than it
  // draws for give it none.
  std::vector<int32_t> parents;
};

struct PlannedHop : OneHop {
  uint32_t hop = 0;  // from 0
  uint32_t key_type = 0, neighbor_type = 0;
  uint64_t purpose = 0;  // of its random numbers (random.h)
};

// Throws SampleError (sampling.h) if an edge type does not exist or does not have what a strategy needs, or if parents
// are not earlier or not of one hop. `bounded`: only edges up to a time are drawn.
std::vector<PlannedHop> plan_one_hops(const Graph& graph, std::vector<OneHop> one_hops, bool bounded);

inline size_t num_hops(const std::vector<PlannedHop>& plan) {
  size_t hops = 0;
  for (const PlannedHop& one : plan) hops = hops < one.hop + size_t{1} ? one.hop + size_t{1} : hops;
  return hops;
}

}  // namespace livegnn
