// The edges of one edge type: who points at whom, with weights and times where the type has them.
//
//   sources_[s] ─► samtree of targets        (out-neighbours)
//   targets_[t] ─► samtree of sources        (in-neighbours; an undirected type has none: its out-neighbours are both)
//
// Invariants: an edge is in the out-list of its source if and only if it is in the in-list of its target, with the same
// weight and time; an undirected edge is in the lists of both ends, a loop in one; there are no parallel edges.
// The order of a scan depends only on the history of the changes, and survives saving and loading.
//
// Thread safety: any number of readers, or one writer.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "livegnn/samtree.h"

namespace livegnn {

struct EdgeOptions {
  EdgeColumns columns;
  bool undirected = false;
  bool accumulate = false;  // an edge that is added again adds its weight to the old one
};

// Flat arrays that hold the lists exactly, shape included.
struct AdjacencyColumns {
  std::vector<uint32_t> shape, ids;
  std::vector<float> weights;
  std::vector<double> times;
};

class GraphStore {
 public:
  explicit GraphStore(EdgeOptions options) : options_(options) {}
  GraphStore(const GraphStore&) = delete;
  GraphStore& operator=(const GraphStore&) = delete;
  ~GraphStore() {
    for (auto& list : sources_) list.clear();
    for (auto& list : targets_) list.clear();
  }

  const EdgeOptions& options() const { return options_; }
  size_t num_edges() const { return num_edges_; }
  size_t num_sources() const { return sources_.size(); }
  size_t num_targets() const { return options_.undirected ? sources_.size() : targets_.size(); }

  // Nodes come into being without edges. Both numbers only grow.
  void resize(size_t num_sources, size_t num_targets) {
    sources_.resize(num_sources);
    if (!options_.undirected) targets_.resize(num_targets);
  }

  std::optional<EdgeValue> find(uint32_t source, uint32_t target) const {
    EdgeValue value;
    if (source >= sources_.size() || !sources_[source].find(target, options_.columns, &value)) return std::nullopt;
    return value;
  }

  bool upsert(uint32_t source, uint32_t target, EdgeValue value) {
    bool added = sources_[source].upsert(target, value, options_.columns);
    if (!options_.undirected) {
      targets_[target].upsert(source, value, options_.columns);
    } else if (source != target) {
      sources_[target].upsert(source, value, options_.columns);
    }
    num_edges_ += added ? 1 : 0;
    return added;
  }

  bool remove(uint32_t source, uint32_t target) {
    if (!sources_[source].remove(target, options_.columns)) return false;
    if (!options_.undirected) {
      targets_[target].remove(source, options_.columns);
    } else if (source != target) {
      sources_[target].remove(source, options_.columns);
    }
    --num_edges_;
    return true;
  }

  uint32_t degree_out(uint32_t node) const { return node < sources_.size() ? sources_[node].degree() : 0; }
  uint32_t degree_in(uint32_t node) const { return node < in_lists().size() ? in_lists()[node].degree() : 0; }

  // `visit(NeighborSpan)` sees every neighbour once, a leaf at a time.
  template <class Visit>
  void scan_out(uint32_t node, Visit&& visit) const {
    if (node < sources_.size()) sources_[node].scan(options_.columns, visit);
  }
  template <class Visit>
  void scan_in(uint32_t node, Visit&& visit) const {
    if (node < in_lists().size()) in_lists()[node].scan(options_.columns, visit);
  }

  // The first leaf of a node's out-neighbours, null if it has none: what a scan reads first.
  const void* out_leaf(uint32_t node) const { return node < sources_.size() ? sources_[node].address() : nullptr; }

  // Two steps, because the second needs what the first brings: the header of a list, then its first leaf.
  void prefetch_out(uint32_t node) const {
    if (node < sources_.size()) __builtin_prefetch(&sources_[node]);
  }
  void prefetch_out_leaf(uint32_t node) const {
    if (node < sources_.size()) __builtin_prefetch(sources_[node].address());
  }
  void prefetch_in(uint32_t node) const {
    if (node < in_lists().size()) __builtin_prefetch(&in_lists()[node]);
  }
  void prefetch_in_leaf(uint32_t node) const {
    if (node < in_lists().size()) __builtin_prefetch(in_lists()[node].address());
  }

  size_t bytes() const {
    size_t total = (sources_.capacity() + targets_.capacity()) * sizeof(SamtreeRoot);
    for (const auto& list : sources_) total += list.bytes(options_.columns);
    for (const auto& list : targets_) total += list.bytes(options_.columns);
    return total;
  }

  AdjacencyColumns save_out() const { return save(sources_); }
  AdjacencyColumns save_in() const { return save(targets_); }
  // Throws std::runtime_error where the columns do not fit together or the two sides differ in their number of edges.
  void load(const AdjacencyColumns& out, const AdjacencyColumns& in, size_t num_edges) {
    size_t listed = load_lists(out, num_targets(), &sources_);
    if (options_.undirected) {
      // An edge is in two lists, a loop in one.
      for (uint32_t node = 0; node < sources_.size(); ++node) listed += find(node, node).has_value() ? 1 : 0;
      check_count(listed, 2 * num_edges);
    } else {
      check_count(listed, num_edges);
      check_count(load_lists(in, num_sources(), &targets_), num_edges);
    }
    num_edges_ = num_edges;
  }

  void check() const {
    for (const auto& list : sources_) list.check(options_.columns);
    for (const auto& list : targets_) list.check(options_.columns);
  }

 private:
  const std::vector<SamtreeRoot>& in_lists() const { return options_.undirected ? sources_ : targets_; }

  AdjacencyColumns save(const std::vector<SamtreeRoot>& lists) const {
    AdjacencyColumns to;
    for (const auto& list : lists) list.save(options_.columns, &to.shape, &to.ids, &to.weights, &to.times);
    return to;
  }
  // Returns how many neighbours there are in all the lists, each of them below `num_nodes`.
  size_t load_lists(const AdjacencyColumns& from, size_t num_nodes, std::vector<SamtreeRoot>* lists) {
    uint32_t highest = 0;
    for (uint32_t id : from.ids) highest = std::max(highest, id);
    if (!from.ids.empty() && highest >= num_nodes) {
      throw std::runtime_error("adjacency: no such node as " + std::to_string(highest) + " among " +
                               std::to_string(num_nodes));
    }
    std::span<const uint32_t> shape(from.shape), ids(from.ids);
    std::span<const float> weights(from.weights);
    std::span<const double> times(from.times);
    for (auto& list : *lists) list.load(options_.columns, &shape, &ids, &weights, &times);
    if (!shape.empty() || !ids.empty() || !weights.empty() || !times.empty()) {
      throw std::runtime_error("adjacency: columns that are left over after the last list");
    }
    return from.ids.size();
  }
  static void check_count(size_t listed, size_t expected) {
    if (listed != expected) {
      throw std::runtime_error("adjacency: the lists hold " + std::to_string(listed) + " edges, expected " +
                               std::to_string(expected));
    }
  }

  EdgeOptions options_;
  std::vector<SamtreeRoot> sources_, targets_;
  size_t num_edges_ = 0;
};

}  // namespace livegnn
