// A graph that is one part of a divided one: which nodes it owns, and so which edges it keeps.
//
//   all parts   every event, every node under the same index
//   this part   the edges with an end that it owns, the features of its nodes and of those that send to them
//
// The owner of a node that arrives follows from its id, or Fennel places it (placement/fennel.h): in the part that owns
// no node, which all others are told of, since they do not see all edges.
//
// Invariants: the lists of a node that a part owns are those of the undivided graph, to the order of a scan. A list of
// another's node has the edges from and to nodes that the part owns, and no others.
//
// Thread safety: the same as for the graph that it belongs to: any number of readers; `prepare` and `settle` run
// concurrently with them, `commit` alone.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "ids/owners.h"
#include "placement/fennel.h"

namespace livegnn {

class GraphPart {
 public:
  // The number of a part that owns no node and keeps no edge, beside those that do: it knows all ids and owners.
  static constexpr uint32_t kNone = Owners::kMaxWorkers;

  // How many edges begin at nodes of a part (at the end with the lesser index, if they have no direction), and how many
  // of these end in other parts.
  struct EdgeCount {
    int64_t edges = 0, cut = 0;
  };

  // `rules`: by node type, the owners of nodes that arrive; a table is empty: Fennel fills it. Throws
  // std::invalid_argument.
  GraphPart(std::vector<Owners> rules, uint32_t self) : rules_(std::move(rules)), self_(self) {
    if (rules_.empty()) throw std::invalid_argument("a part needs a rule for each node type");
    if (self >= parts() && self != kNone) throw std::invalid_argument("there is no such part");
    bool placed = false;
    for (const Owners& rule : rules_) {
      if (rule.workers() != parts()) throw std::invalid_argument("all node types have the same number of parts");
      if (!rule.table().empty()) throw std::invalid_argument("a part begins without nodes, and so do its owners");
      placed = placed || rule.rule() == OwnerRule::kTable;
    }
    const size_t node_types = rules_.size();
    owners_.resize(node_types, Owners(OwnerRule::kTable, parts()));
    last_placed_.resize(node_types);
    placed_next_.resize(node_types);
    given_.resize(node_types);
    loaded_.resize(node_types);
    ends_.resize(node_types);
    ends_next_.resize(node_types);
    loads_.resize(parts() * node_types);
    loads_next_.resize(parts() * node_types);
    if (placed && self == kNone) fennel_.emplace(parts(), node_types);
  }

  // One rule for all types.
  GraphPart(const Owners& rule, uint32_t self, size_t node_types)
      : GraphPart(std::vector<Owners>(node_types, rule), self) {}

  uint32_t self() const { return self_; }
  uint32_t parts() const { return rules_[0].workers(); }
  size_t node_types() const { return rules_.size(); }
  const Owners& rule(uint32_t node_type) const { return rules_[node_type]; }
  // The places of nodes and their number; null unless this is the part that places the nodes which arrive.
  const Fennel* fennel() const { return fennel_ ? &*fennel_ : nullptr; }
  // By node type, the ends of edges at nodes of all parts. Requires: `fennel()`. Throws std::invalid_argument.
  void set_ends(std::span<const int64_t> ends) { fennel_.value().set_ends(ends); }
  // Takes the number of batches and the counts by which nodes are placed from a part with the same owners, whose
  // batches this one continues. Nobody may read meanwhile.
  void continue_from(const GraphPart& other) {
    fennel_ = other.fennel_;
    commits_ = other.commits_;
  }

  // The owners of the nodes that the next batch adds, in their order, of a type whose rule is a table. Throws
  // std::invalid_argument.
  void give(uint32_t node_type, std::span<const uint16_t> owners) {
    for (uint16_t owner : owners) {
      if (owner >= parts()) throw std::invalid_argument("there is no part " + std::to_string(owner));
    }
    given_[node_type].assign(owners.begin(), owners.end());
  }
  const std::vector<uint16_t>& given(uint32_t node_type) const { return given_[node_type]; }

  // By edge type; none before the first batch.
  const std::vector<EdgeCount>& counts() const { return counts_; }
  // By part, how many nodes of a type it owns.
  std::span<const int64_t> loads(uint32_t node_type) const {
    return {loads_.data() + size_t{node_type} * parts(), parts()};
  }
  // By node type, the ends of edges at nodes that this part owns.
  const std::vector<int64_t>& ends() const { return ends_; }
  // kNoOwner of an index without a node.
  uint32_t owner(uint32_t node_type, uint32_t node) const { return owners_[node_type].of_index(node); }
  bool owns(uint32_t node_type, uint32_t node) const { return owner(node_type, node) == self_; }

  // How many batches were committed, and the indices to which the last of them gave an owner.
  size_t commits() const { return commits_; }
  const std::vector<uint32_t>& last_placed(uint32_t node_type) const { return last_placed_[node_type]; }

  // By edge type, and again for reversed edges: whether messages along them need features of nodes that are sent by
  // other parts. Call it between batches, and `hold_features` next.
  void read_features(std::vector<bool> directions) { feature_directions_ = std::move(directions); }
  bool reads_features(size_t direction) const {
    return direction < feature_directions_.size() && feature_directions_[direction];
  }

  // Makes room for nodes that are added under these indices, below `capacity`, and for the others to be removed.
  void prepare(uint32_t node_type, std::span<const uint32_t> added, std::span<const uint16_t> owners,
               std::span<const uint32_t> removed, size_t capacity) {
    owners_[node_type].prepare(capacity);
    placed_next_[node_type].assign(added.begin(), added.end());
    const std::span<int64_t> loads(loads_next_.data() + size_t{node_type} * parts(), parts());
    std::ranges::fill(loads, 0);
    for (uint16_t owner : owners) {
      if (owner != Owners::kNoOwner) ++loads[owner];
    }
    for (uint32_t node : removed) --loads[owner(node_type, node)];
  }
  // Begins the count of the edges of a batch.
  void begin_count(size_t edge_types) {
    counts_next_ = counts_;
    counts_next_.resize(edge_types);
    ends_next_ = ends_;
  }
  // An edge is added, or removed (`by` is -1). types: of the nodes where it begins and ends.
  void count(uint32_t edge_type, std::pair<uint32_t, uint32_t> types, bool owns_first, bool owns_second, int64_t by) {
    if (owns_first) {
      counts_next_[edge_type].edges += by;
      if (!owns_second) counts_next_[edge_type].cut += by;
      ends_next_[types.first] += by;
    }
    if (owns_second) ends_next_[types.second] += by;
  }
  void commit(uint32_t node_type, std::span<const uint16_t> owners, std::span<const uint32_t> removed) noexcept {
    Owners& all = owners_[node_type];
    all.adopt();
    last_placed_[node_type].swap(placed_next_[node_type]);
    for (size_t i = 0; i < owners.size(); ++i) all.assign(last_placed_[node_type][i], owners[i]);
    for (uint32_t node : removed) all.assign(node, Owners::kNoOwner);
  }
  void finish_commit() noexcept {
    ++commits_;
    finish_count();
    add_loads();
    for (std::vector<uint16_t>& given : given_) given.clear();
  }
  void settle() noexcept {
    for (Owners& each : owners_) each.settle();
  }

  // -- a part without nodes is filled

  // The owners of the nodes that `load` receives, by index, kNoOwner where there is none; else those of the rule.
  void give_loaded(uint32_t node_type, std::vector<uint16_t> owners) { loaded_[node_type] = std::move(owners); }
  // ids: by index. Throws std::invalid_argument if there are no owners for these, or other ones than parts.
  void load(uint32_t node_type, std::span<const int64_t> ids) {
    std::vector<uint16_t> owners =
        loaded_[node_type] ? *std::exchange(loaded_[node_type], std::nullopt) : owners_by_rule(node_type, ids);
    if (owners.size() != ids.size()) throw std::invalid_argument("each index needs an owner, or none");
    for (size_t i = 0; i < ids.size(); ++i) {
      if ((ids[i] == kNoId) != (owners[i] == Owners::kNoOwner)) {
        throw std::invalid_argument("each node needs an owner, and an index without a node has none");
      }
    }
    owners_[node_type] = Owners(parts(), owners);
    ++commits_;
    std::ranges::fill(loads_next_, 0);
    for (uint16_t owner : owners) {
      if (owner != Owners::kNoOwner) ++loads_next_[size_t{node_type} * parts() + owner];
    }
    add_loads();
  }
  // After `begin_count` and `count` of loaded edges, as with a commit.
  void finish_count() noexcept {
    counts_.swap(counts_next_);
    ends_.swap(ends_next_);
  }

 private:
  void add_loads() noexcept {
    for (size_t i = 0; i < loads_.size(); ++i) loads_[i] += loads_next_[i];
    if (fennel_) fennel_->add_nodes(loads_next_);
  }
  std::vector<uint16_t> owners_by_rule(uint32_t node_type, std::span<const int64_t> ids) const {
    const Owners& rule = rules_[node_type];
    if (rule.rule() == OwnerRule::kTable) throw std::invalid_argument("nodes that are loaded need owners");
    std::vector<uint16_t> owners(ids.size(), Owners::kNoOwner);
    for (size_t i = 0; i < ids.size(); ++i) {
      if (ids[i] != kNoId) owners[i] = static_cast<uint16_t>(rule.of_id(static_cast<uint64_t>(ids[i])));
    }
    return owners;
  }

  const std::vector<Owners> rules_;  // by node type
  std::vector<bool> feature_directions_;
  const uint32_t self_;
  std::vector<Owners> owners_;  // tables, by node type
  std::vector<std::vector<uint32_t>> last_placed_, placed_next_;
  std::vector<std::vector<uint16_t>> given_;
  std::vector<std::optional<std::vector<uint16_t>>> loaded_;  // owners of nodes that `load` will receive
  std::vector<EdgeCount> counts_, counts_next_;
  std::vector<int64_t> ends_, ends_next_;
  std::optional<Fennel> fennel_;
  std::vector<int64_t> loads_, loads_next_;  // by type and part: nodes, and by how many they become more
  size_t commits_ = 0;
};

}  // namespace livegnn
