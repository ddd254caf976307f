// The walk of a sample of several hops, from cell to cell: what samples have in common, wherever the cells lie.
//
//   seeds ─► cells of hop 0 ─► new nodes ─► cells of hop 1 ─► ...      one look-up for each node and one-hop query
//
// Invariant: a walk reads at most `QueryPlan::max_sample_lookups` cells for each seed, however many neighbours a node
// has. Nodes are numbered in the order in which they are reached; a node that the sample already has is not looked up
// again.
// Thread safety: a walk belongs to one thread.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <set>
#include <utility>
#include <vector>

#include "memory/recent_needs.h"
#include "presampling/samples/query_plan.h"
#include "presampling/tables/cell_heap.h"
#include "sampling/one_hops.h"
#include "sampling/sampling.h"

namespace livegnn {

// The numbers of the nodes of one type in a sample. The table is as small as the sample, so that it stays in the cache.
// `Node`: an internal index of 32 bits, or an id of 64.
template <class Node>
class NodeNumbers {
 public:
  static constexpr size_t kMostSlotsAtFirst = size_t{1} << 16;

  // `expected`: the approximate number of nodes.
  void begin(size_t expected) {
    const size_t slots = std::clamp(std::bit_ceil(2 * expected + 1), kFewestSlots, kMostSlotsAtFirst);
    if (slots_.size() < slots) slots_.resize(slots);
    mask_ = slots - 1;
    shift_ = 64 - std::countr_zero(slots);
    std::fill_n(slots_.begin(), slots, Slot{});
  }
  // The number of a node; one without gets `next`, the number of nodes so far.
  uint32_t number(Node node, uint32_t next) {
    if (2 * size_t{next} >= mask_) grow();
    Slot* slot = find(node);
    if (slot->empty()) *slot = Slot(node, next);
    return slot->number();
  }
  size_t bytes() const { return bytes_of(slots_); }

 private:
  static constexpr size_t kFewestSlots = 64;

  // Node, number plus 1; 0: empty.
  struct IndexSlot {
    IndexSlot() = default;
    IndexSlot(uint32_t node, uint32_t number) : bits(uint64_t{node} << 32 | (number + 1)) {}
    bool empty() const { return bits == 0; }
    uint32_t node() const { return static_cast<uint32_t>(bits >> 32); }
    uint32_t number() const { return static_cast<uint32_t>(bits) - 1; }
    uint64_t bits = 0;
  };
  struct IdSlot {
    IdSlot() = default;
    IdSlot(uint64_t node, uint32_t number) : id(node), next(uint64_t{number} + 1) {}
    bool empty() const { return next == 0; }
    uint64_t node() const { return id; }
    uint32_t number() const { return static_cast<uint32_t>(next - 1); }
    uint64_t id = 0, next = 0;
  };
  using Slot = std::conditional_t<sizeof(Node) == sizeof(uint32_t), IndexSlot, IdSlot>;

  Slot* find(Node node) {
    size_t at = (node * 0x9e3779b97f4a7c15ULL) >> shift_;
    while (!slots_[at].empty() && slots_[at].node() != node) at = (at + 1) & mask_;
    return &slots_[at];
  }
  void grow() {
    std::vector<Slot> held(slots_.begin(), slots_.begin() + static_cast<ptrdiff_t>(mask_ + 1));
    const size_t slots = 2 * (mask_ + 1);
    if (slots_.size() < slots) slots_.resize(slots);
    mask_ = slots - 1;
    --shift_;
    std::fill_n(slots_.begin(), slots, Slot{});
    for (const Slot& one : held) {
      if (!one.empty()) *find(one.node()) = one;
    }
  }

  std::vector<Slot> slots_;
  size_t mask_ = 0;  // slots in use, less 1
  int shift_ = 0;
};

template <class Node>
class SampleWalk {
 public:
  struct NodesOfType {
    std::vector<Node> nodes;
    std::vector<int64_t> num_sampled;
    NodeNumbers<Node> numbers;
  };
  struct EdgesOfType {
    uint32_t edge_type;
    std::vector<uint32_t> source, target;  // numbers of nodes
    std::vector<uint32_t> rows;            // of the edges' features, if they have any
    std::vector<float> weights;
    std::vector<double> times;
    std::vector<int64_t> num_sampled;
  };

  // Requires: the plan outlives the walk.
  explicit SampleWalk(const QueryPlan& plan) : plan_(plan), nodes_(plan.num_node_types()), found_(plan.size()) {
    std::set<uint32_t> types;
    for (const OneHopQuery& query : plan.queries()) types.insert(query.edge_type);
    for (uint32_t type : types) edges_.push_back({type, {}, {}, {}, {}, {}, {}});
    for (const OneHopQuery& query : plan.queries()) {
      edges_of_.push_back(static_cast<size_t>(std::distance(types.begin(), types.find(query.edge_type))));
    }
  }

  // A new sample. Call `add_seed` for each seed next, and then `run`.
  void begin(size_t seeds) {
    const uint64_t most = plan_.max_feature_lookups();
    constexpr size_t kMost = NodeNumbers<Node>::kMostSlotsAtFirst;
    const size_t expected = most > kMost ? kMost : seeds * static_cast<size_t>(most);
    num_lookups_ = 0;
    for (auto& type : nodes_) {
      type.nodes.clear();
      type.num_sampled.clear();
      type.numbers.begin(expected);
    }
    for (auto& type : edges_) {
      for (auto* column : {&type.source, &type.target, &type.rows}) column->clear();
      type.weights.clear();
      type.times.clear();
      type.num_sampled.clear();
    }
  }
  // Returns its number among the nodes of its type; a seed that is there twice has one.
  int64_t add_seed(Node node) {
    NodesOfType& seeds = nodes_[plan_.seed_type()];
    const auto next = static_cast<uint32_t>(seeds.nodes.size());
    const uint32_t number = seeds.numbers.number(node, next);
    if (number == next) seeds.nodes.push_back(node);
    return number;
  }
  // `cells_of(query)` returns what reads the cells of one query (`look_up` has what it needs).
  template <class CellsOf>
  void run(const CellsOf& cells_of) {
    for (auto& type : nodes_) type.num_sampled.push_back(static_cast<int64_t>(type.nodes.size()));
    for (uint32_t hop = 0; hop < plan_.num_hops(); ++hop) {
      before_.clear();
      for (const auto& type : nodes_) before_.push_back(type.nodes.size());
      for (const auto& type : edges_) before_.push_back(type.source.size());
      for (size_t q = 0; q < plan_.size(); ++q) {
        if (plan_[q].hop != hop) continue;
        const NodesOfType& there = nodes_[plan_[q].neighbor_type];
        const size_t first = there.nodes.size();
        keys_.clear();
        if (plan_[q].of_seeds()) keys_.push_back({0, static_cast<size_t>(nodes_[plan_[q].key_type].num_sampled[0])});
        for (uint32_t parent : plan_[q].parents) append_range(found_[parent], &keys_);
        for (const NodeRange& keys : keys_) look_up(q, keys, cells_of(q));
        found_[q] = {first, there.nodes.size()};
      }
      auto before = before_.begin();
      for (auto& type : nodes_) type.num_sampled.push_back(static_cast<int64_t>(type.nodes.size() - *before++));
      for (auto& type : edges_) type.num_sampled.push_back(static_cast<int64_t>(type.source.size() - *before++));
    }
  }

  // -- the sample

  const std::vector<NodesOfType>& nodes() const { return nodes_; }  // by node type
  // Of the edge types that the plan reads, in their order.
  const std::vector<EdgesOfType>& edges() const { return edges_; }
  size_t edges_of(size_t query) const { return edges_of_[query]; }  // its place in `edges`
  // The number of cells that the sample has read.
  size_t num_lookups() const { return num_lookups_; }
  size_t bytes() const {
    size_t bytes = bytes_of(found_) + bytes_of(keys_) + bytes_of(before_) + bytes_of(edges_of_);
    for (const auto& type : nodes_) bytes += bytes_of(type.nodes) + type.numbers.bytes();
    for (const auto& type : edges_) {
      bytes += bytes_of(type.source) + bytes_of(type.target) + bytes_of(type.rows) + bytes_of(type.weights) +
               bytes_of(type.times);
    }
    return bytes;
  }

 private:
  // How far ahead of the current node to fetch: its root, and the cell that the root refers to.
  static constexpr size_t kRootsAhead = 64, kCellsAhead = 32;

  // `cells.towards_key`: key nodes are the targets of edges. `cells.find(node)` returns a cell, `cells.node_of(id)` the
  // node of one of its neighbours; `cells.reached(node)` hears of each new node, to fetch what is written of it.
  // `cells.valued`: edges carry values, which `cells.add_values` adds.
  template <class Cells>
  void look_up(size_t query, NodeRange keys, const Cells& cells) {
    const auto& here = nodes_[plan_[query].key_type].nodes;
    NodesOfType& there = nodes_[plan_[query].neighbor_type];
    EdgesOfType& edges = edges_[edges_of_[query]];
    auto& key_column = cells.towards_key ? edges.target : edges.source;
    auto& other_column = cells.towards_key ? edges.source : edges.target;
    for (size_t i = keys.begin; i < std::min(keys.end, keys.begin + kRootsAhead); ++i) cells.prefetch_root(here[i]);
    for (size_t i = keys.begin; i < std::min(keys.end, keys.begin + kCellsAhead); ++i) cells.prefetch_cell(here[i]);
    for (size_t i = keys.begin; i < keys.end; ++i) {
      if (i + kRootsAhead < keys.end) cells.prefetch_root(here[i + kRootsAhead]);
      if (i + kCellsAhead < keys.end) cells.prefetch_cell(here[i + kCellsAhead]);
      const CellView cell = cells.find(here[i]);
      ++num_lookups_;
      if (cells.valued) cells.add_values(cell, here[i], &edges);
      key_column.insert(key_column.end(), cell.size, static_cast<uint32_t>(i));
      for (uint32_t j = 0; j < cell.size; ++j) {
        const Node node = cells.node_of(cell.ids[j]);
        const auto next = static_cast<uint32_t>(there.nodes.size());
        const uint32_t number = there.numbers.number(node, next);
        if (number == next) {
          there.nodes.push_back(node);
          cells.reached(node);
        }
        other_column.push_back(number);
      }
    }
  }

  const QueryPlan& plan_;
  std::vector<NodesOfType> nodes_;
  std::vector<EdgesOfType> edges_;
  std::vector<size_t> edges_of_;  // by query
  std::vector<NodeRange> found_;  // by query: the nodes that it has added
  std::vector<NodeRange> keys_;   // of one query
  std::vector<size_t> before_;    // sizes before a hop
  size_t num_lookups_ = 0;
};

template <class To, class From>
void copy_to(const std::vector<From>& from, Column<To>* to) {
  to->open(from.size());
  std::copy(from.begin(), from.end(), to->data());
}

}  // namespace livegnn
