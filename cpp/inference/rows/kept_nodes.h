// The nodes whose aggregates are kept, if not all are (NeutronRT, section V.B), and how they change with a batch.
//
// Thread safety: none; only the engine's one writer changes them, and commits under the graph's lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "inference/edges/edge_view.h"
#include "memory/growing_array.h"
#include "store/graph.h"

namespace livegnn {

struct DirectedChange;

// The nodes whose aggregates are kept from a batch on, and those whose aggregates are kept no longer, by node.
struct Moves {
  std::vector<uint32_t> entering, leaving;
};

// The targets of a direction (edge_view.h) whose aggregates are kept, if not all are. Each has a slot: a row in every
// slab.
class KeptNodes {
 public:
  uint32_t slot(uint32_t node) const { return node < slots_.size() ? slots_[node] : kNoIndex; }
  bool has(uint32_t node) const { return slot(node) != kNoIndex; }
  size_t size() const { return nodes_.size(); }              // number of slots, including free ones
  uint32_t node(size_t slot) const { return nodes_[slot]; }  // kNoIndex if it is free
  std::vector<uint32_t> sorted() const;

  // Chooses all nodes with at least `keep_degree` in-edges.
  void assign(const IdMap& ids, const EdgeView& store, size_t keep_degree);
  // Chooses these nodes, which are sorted.
  void assign(const IdMap& ids, std::span<const uint32_t> nodes);

  // Finds the nodes that a batch adds and removes. A node is added when it has `keep_degree` in-edges, and removed when
  // it has lost more than a quarter of them, so that a node whose degree varies around the limit is not computed each
  // time. `removed`: by node, not 0 if the batch removes it; `changes` are sorted by target.
  void find_moves(const EdgeView& store, const std::vector<DirectedChange>& changes,
                  const std::vector<uint8_t>& removed, std::span<const uint32_t> removed_nodes, size_t keep_degree,
                  Moves* moves) const;
  // Makes room for the moves of a batch after which indices are below `capacity`; then `move` cannot fail.
  void reserve(const Moves& moves, size_t capacity);
  void move(const Moves& moves, size_t capacity) noexcept;
  void settle() noexcept {
    for (auto* array : {&slots_, &nodes_, &free_}) array->settle();
  }
  size_t bytes() const { return (slots_.capacity() + nodes_.capacity() + free_.capacity()) * sizeof(uint32_t); }

 private:
  GrowingArray<uint32_t> slots_;  // by node; kNoIndex if it has none
  GrowingArray<uint32_t> nodes_;  // by slot; kNoIndex if it is free
  GrowingArray<uint32_t> free_;
};

}  // namespace livegnn
