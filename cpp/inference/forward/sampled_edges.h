// The edges of a sample in one direction, grouped by the node that receives along them, in the order of the sample.
//
// Samplers list edges hop by hop and node by node, so mostly they are grouped already and nothing is moved.
//
// Parallel edges are edges of their own. Of parallel loops the last one is that with the greatest key.
//
// Thread safety: none; every computation has its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "inference/forward/sampled_graph.h"
#include "program/program.h"

namespace livegnn {

class SampledEdges {
 public:
  // Reads the edges of type `type`. Their arrays must stay valid while this is read. `senders` and `receivers` are the
  // numbers of nodes at both ends, and `may_loop` says whether these are the same nodes. Throws BadSampledGraph if an
  // end is no node.
  void group(const SampledGraph::Edges& edges, uint32_t type, bool reversed, size_t senders, size_t receivers,
             bool may_loop);

  uint32_t degree(uint32_t node) const { return offsets_[node + 1] - offsets_[node]; }
  uint32_t loops(uint32_t node) const { return has_loops_ ? loops_[node].count : 0; }
  // The place of a node's last loop. Requires: it has one.
  uint32_t last_loop(uint32_t node) const { return loops_[node].last; }
  bool has_parallel_loops() const { return has_parallel_loops_; }

  // Of places in the grouped order.
  const uint32_t* senders() const { return senders_.data(); }
  const float* weights() const { return weights_; }  // null: all are 1
  float weight(uint32_t place) const { return weights_ == nullptr ? 1.0f : weights_[place]; }
  // The position of the edge in the sample.
  uint32_t edge(uint32_t place) const { return moved_ ? order_[place] : place; }

  // How many nodes, from the first on, contain all that send to the first `receivers` nodes.
  size_t reach(size_t receivers) const;

  // Calls `visit(begin, end)` for places in the grouped order: the in-edges of a node whose messages a step uses.
  template <class Visit>
  void scan(const PropagateStep& step, uint32_t node, Visit&& visit) const {
    if (step.only_loops) {
      if (loops(node) > 0) visit(last_loop(node), last_loop(node) + 1);
      return;
    }
    const uint32_t end = offsets_[node + 1];
    if (!step.skip_loops || loops(node) == 0) return visit(offsets_[node], end);
    for (uint32_t begin = offsets_[node]; begin < end;) {
      uint32_t place = begin;
      while (place < end && senders_[place] != node) ++place;
      if (place > begin) visit(begin, place);
      begin = place + 1;
    }
  }

  size_t bytes() const;

 private:
  struct Loops {
    uint32_t count = 0, last = 0;
  };

  // Returns whether the receivers are in ascending order.
  bool read(const SampledGraph::Edges& edges, uint32_t type, bool reversed, size_t senders, size_t receivers);
  void move(const SampledGraph::Edges& edges, size_t receivers);
  void find_loops(size_t receivers);

  std::vector<uint32_t> offsets_;               // by node
  std::vector<uint32_t> senders_, receivers_;   // receivers as given, senders grouped
  std::vector<uint32_t> given_, order_, next_;  // where edges must be moved
  std::vector<float> moved_weights_;
  const float* weights_ = nullptr;
  bool moved_ = false, has_loops_ = false, has_parallel_loops_ = false;
  std::vector<Loops> loops_;  // by node, if any has a loop
};

}  // namespace livegnn
