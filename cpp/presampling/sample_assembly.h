// A sample of several hops, put together from the cells of a view and the features of its graph: what the sampler of
// the graph (sampling.h) draws, without a draw.
//
//   seeds ─► cells of hop 0 ─► new nodes ─► cells of hop 1 ─► ...      one look-up for each node and one-hop query
//
// Invariant: a sample reads at most `QueryPlan::max_sample_lookups` cells for each seed, however many neighbours a node
// has. Nodes are numbered in the order in which they are reached; a node that the sample already has is not looked up
// again.
// Thread safety: an assembly belongs to one thread. The caller must hold `Graph::lock` shared during a call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "memory/recent_needs.h"
#include "presampling/presampling_view.h"
#include "sampling/one_hops.h"
#include "sampling/sampling.h"

namespace livegnn {

// The numbers of the nodes of one type in a sample. The table is as small as the sample, so that it stays in the cache.
class NodeNumbers {
 public:
  // `expected`: the approximate number of nodes.
  void begin(size_t expected);
  // The number of a node; one without gets `next`, the number of nodes so far.
  uint32_t number(uint32_t node, uint32_t next) {
    if (2 * size_t{next} >= mask_) grow();
    uint64_t* slot = find(node);
    if (*slot == 0) *slot = uint64_t{node} << 32 | (next + 1);
    return static_cast<uint32_t>(*slot) - 1;
  }
  size_t bytes() const { return bytes_of(slots_); }

 private:
  uint64_t* find(uint32_t node) {
    size_t at = (node * 0x9e3779b97f4a7c15ULL) >> shift_;
    while (slots_[at] != 0 && slots_[at] >> 32 != node) at = (at + 1) & mask_;
    return &slots_[at];
  }
  void grow();

  std::vector<uint64_t> slots_;  // node, number plus 1; 0: empty
  size_t mask_ = 0;              // slots in use, less 1
  int shift_ = 0;
};

class SampleAssembly {
 public:
  explicit SampleAssembly(const PresamplingView& view);

  // `ids`: internal numbers of nodes of the seed type. Throws SampleError if one is not in the graph.
  Subgraph sample(std::span<const int64_t> ids, bool attributes);

  // The number of cells that the last sample has read.
  size_t num_lookups() const { return num_lookups_; }
  size_t bytes() const;

 private:
  struct NodesOfType {
    std::vector<uint32_t> nodes;
    std::vector<int64_t> num_sampled;
    NodeNumbers numbers;
  };
  // Edges of one type. `here`, `there`: the numbers of the key node and of the neighbour, as source and target.
  struct EdgesOfType {
    uint32_t edge_type;
    std::vector<uint32_t> source, target, rows;
    std::vector<float> weights;
    std::vector<double> times;
    std::vector<int64_t> num_sampled;
  };

  void begin(std::span<const int64_t> ids, Subgraph* out);
  void look_up(size_t query, NodeRange keys, bool attributes);
  void add_values(size_t query, const CellView& cell, uint32_t key, bool attributes, EdgesOfType* edges) const;
  void write_nodes(bool attributes, Subgraph* out) const;
  void write_edges(bool attributes, Subgraph* out) const;

  const PresamplingView& view_;
  std::vector<NodesOfType> nodes_;  // by node type
  std::vector<EdgesOfType> edges_;  // of the edge types that the plan reads, in their order
  std::vector<size_t> edges_of_;    // by query: its place in `edges_`
  std::vector<NodeRange> found_;    // by query: the nodes that it has added
  std::vector<NodeRange> keys_;     // of one query
  std::vector<uint32_t> indices_;   // of the seeds
  std::vector<size_t> before_;      // sizes before a hop
  size_t num_lookups_ = 0;
};

}  // namespace livegnn
