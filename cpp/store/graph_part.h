// A graph that is one part of a divided one: which nodes it owns, and so which edges it keeps.
//
//   all parts   every event, every node under the same index, every node's features
//   this part   the edges with an end that it owns
//
// Invariants: the lists of a node that a part owns are those of the undivided graph, to the order of a scan. A list of
// another's node has the edges from and to nodes that the part owns, and no others.
//
// Thread safety: the same as for the graph that it belongs to: any number of readers; `prepare` and `settle` run
// concurrently with them, `commit` alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "ids/owners.h"

namespace livegnn {

class GraphPart {
 public:
  // The number of a part that owns no node and keeps no edge, beside those that do: it knows all ids and owners.
  static constexpr uint32_t kNone = Owners::kMaxWorkers;

  // `rule`: the owners of nodes that arrive; in the case of a table, the stage is told them. Throws
  // std::invalid_argument.
  GraphPart(Owners rule, uint32_t self, size_t node_types) : rule_(std::move(rule)), self_(self) {
    if (self >= rule_.workers() && self != kNone) throw std::invalid_argument("there is no such part");
    if (!rule_.table().empty()) throw std::invalid_argument("a part begins without nodes, and so do its owners");
    owners_.resize(node_types, Owners(OwnerRule::kTable, rule_.workers()));
    last_placed_.resize(node_types);
    placed_next_.resize(node_types);
  }

  uint32_t self() const { return self_; }
  uint32_t parts() const { return rule_.workers(); }
  const Owners& rule() const { return rule_; }
  // kNoOwner of an index without a node.
  uint32_t owner(uint32_t node_type, uint32_t node) const { return owners_[node_type].of_index(node); }
  bool owns(uint32_t node_type, uint32_t node) const { return owner(node_type, node) == self_; }

  // How many batches were committed, and the indices to which the last of them gave an owner.
  size_t commits() const { return commits_; }
  const std::vector<uint32_t>& last_placed(uint32_t node_type) const { return last_placed_[node_type]; }

  // Makes room for nodes that are added under these indices, below `capacity`.
  void prepare(uint32_t node_type, std::span<const uint32_t> added, size_t capacity) {
    owners_[node_type].prepare(capacity);
    placed_next_[node_type].assign(added.begin(), added.end());
  }
  void commit(uint32_t node_type, std::span<const uint16_t> owners, std::span<const uint32_t> removed) noexcept {
    Owners& all = owners_[node_type];
    all.adopt();
    last_placed_[node_type].swap(placed_next_[node_type]);
    for (size_t i = 0; i < owners.size(); ++i) all.assign(last_placed_[node_type][i], owners[i]);
    for (uint32_t node : removed) all.assign(node, Owners::kNoOwner);
  }
  void finish_commit() noexcept { ++commits_; }
  void settle() noexcept {
    for (Owners& each : owners_) each.settle();
  }

 private:
  const Owners rule_;
  const uint32_t self_;
  std::vector<Owners> owners_;  // tables, by node type
  std::vector<std::vector<uint32_t>> last_placed_, placed_next_;
  size_t commits_ = 0;
};

}  // namespace livegnn
