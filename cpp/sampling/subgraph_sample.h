// A subgraph while it is drawn: the numbers of its nodes, and what each hop draws for. Who draws is left to the caller:
// the graph at hand (subgraph.cc), or the parts of a divided one (divided_sample.h).
//
//   begin ─► for each hop: its frontiers ─► draws ─► numbers of the nodes that are new ─► finish
//
// The frontiers of a hop are known before any of its draws is made: they are nodes that earlier hops have added.
//
// Thread safety: none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "sampling/sampling.h"
#include "sampling/sampling_scratch.h"

namespace livegnn {

// Nodes that lie side by side in a sample, for which one one-hop query draws.
struct Frontier {
  size_t query;
  NodeRange keys;  // by their numbers in the sample
  size_t place;    // of the first one (neighbor_draws.h); the others follow
};

// Where in the scratch the draws for a frontier are: each block has those of so many nodes, the last one perhaps fewer.
struct DrawnBlocks {
  size_t first, count, nodes;
};

class SubgraphSample {
 public:
  // The draws for one frontier.
  struct Drawn {
    size_t query, output;  // its place in `Subgraph::edges`
    DrawnBlocks blocks;
    size_t first_node;  // in its type: the node of the first draws
    size_t first_edge;  // in the output
  };

  // Throws SampleError. Both must outlive it.
  SubgraphSample(const Graph& graph, const SubgraphRequest& request);

  // Gives numbers to the seeds. Throws SampleError.
  void begin(SampleScratch* scratch);
  size_t num_hops() const { return livegnn::num_hops(plan_); }
  // Of the one-hop queries of a hop, in order. Requires that all earlier hops are over.
  std::vector<Frontier> frontiers(size_t hop) const;
  // Makes a hop: `draw(frontier)` makes the draws for each of its frontiers, in order, and returns DrawnBlocks.
  template <class Draw>
  void make_hop(size_t hop, SampleScratch* scratch, const Draw& draw);
  // `rows_here`: features of nodes and edges, and the rows of these, are those of the graph; else they are left out.
  Subgraph finish(SampleScratch* scratch, bool rows_here);

  const PlannedHop& query(size_t q) const { return plan_[q]; }
  std::span<const uint32_t> nodes(uint32_t type) const { return types_[type].nodes; }
  std::span<const uint32_t> keys_of(const Frontier& frontier) const {
    return nodes(plan_[frontier.query].key_type).subspan(frontier.keys.begin, frontier.keys.end - frontier.keys.begin);
  }
  // The columns that the sample has of a query's edges, of those that the type has.
  EdgeColumns wanted(size_t q) const {
    const EdgeColumns columns = graph_.edges[plan_[q].edge_type].store->options().columns;
    return {request_.attributes && columns.weighted, request_.attributes && columns.timed, columns.featured};
  }
  // The number of bounds for a frontier's draws: 0, 1 for all, or one for each node; and that of its i-th node.
  size_t num_bounds(const Frontier& frontier) const {
    return request_.until.size() > 1 ? frontier.keys.end - frontier.keys.begin : request_.until.size();
  }
  double bound(const Frontier& frontier, size_t i) const {
    const auto& until = request_.until;
    return until[until.size() > 1 ? types_[plan_[frontier.query].key_type].batch[frontier.keys.begin + i] : 0];
  }
  const std::vector<Drawn>& drawn() const { return drawn_; }
  Workers* workers() { return &workers_; }

 private:
  struct NodesOfType {
    std::vector<uint32_t> nodes, batch;
    std::vector<int64_t> num_sampled;
  };
  struct Output {
    uint32_t edge_type;
    size_t size;
    std::vector<int64_t> num_sampled;
  };

  void check() const;
  bool bounded() const { return !request_.until.empty(); }
  // Of each neighbour: a call would cost as much as its work.
  [[gnu::always_inline]] uint32_t number(Numbering* numbering, NodesOfType* type, uint32_t node, uint32_t seed) {
    const auto next = static_cast<uint32_t>(type->nodes.size());
    const uint32_t number = numbering->number(node, seed, next);
    if (number == next) {
      if (next == kNoIndex)
        throw SampleError(BadSample::kRequest, "a subgraph holds at most 4294967295 nodes of a type");
      type->nodes.push_back(node);
      if (request_.disjoint) type->batch.push_back(seed);
    }
    return number;
  }
  void add_frontiers(size_t q, std::vector<Frontier>* to) const;
  void take(const Frontier& frontier, const DrawnBlocks& drawn, SampleScratch* scratch);
  void number_drawn(std::span<NeighborColumns> blocks, size_t node, const NodesOfType& here, Numbering* numbering,
                    NodesOfType* there);
  void note_sizes(std::vector<size_t>* sizes) const;
  void end_hop(const std::vector<size_t>& before);
  void write_nodes(size_t type, bool rows_here, Subgraph::Nodes* to);
  void write_edges(const Drawn& drawn, std::span<const NeighborColumns> blocks, bool rows_here, Subgraph::Edges* to);
  const Table& edge_features(uint32_t edge_type) const { return graph_.edges[edge_type].features.table(); }

  const Graph& graph_;
  const SubgraphRequest& request_;
  Workers workers_;
  std::vector<NodesOfType> types_;
  std::vector<PlannedHop> plan_;
  std::vector<size_t> output_of_;  // by one-hop query: its place in `outputs_`
  std::vector<Output> outputs_;
  std::vector<NodeRange> found_;  // by one-hop query: the nodes that it has added, of its neighbor type
  std::vector<Drawn> drawn_;
  std::vector<Column<int64_t>> inverse_;
};

template <class Draw>
void SubgraphSample::make_hop(size_t hop, SampleScratch* scratch, const Draw& draw) {
  std::vector<size_t> before;
  note_sizes(&before);
  std::vector<Frontier> here;
  for (size_t q = 0; q < plan_.size(); ++q) {
    if (plan_[q].hop != hop) continue;
    const auto& added = types_[plan_[q].neighbor_type].nodes;
    const size_t first = added.size();
    here.clear();
    add_frontiers(q, &here);
    for (const Frontier& frontier : here) take(frontier, draw(frontier), scratch);
    found_[q] = {first, added.size()};
  }
  end_hop(before);
}

}  // namespace livegnn
