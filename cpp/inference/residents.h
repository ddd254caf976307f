// Whose aggregates are kept, where not all are (NeutronRT, section V.B), and who comes and goes with a batch.
//
// Thread safety: none; the engine's one writer changes them, and commits under the graph's lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "inference/edge_view.h"
#include "memory/growing_array.h"
#include "store/graph.h"

namespace livegnn {

struct DirectedChange;

// Who becomes a resident and who is one no longer, by node.
struct Moves {
  std::vector<uint32_t> entering, leaving;
};

// The targets of a direction (edge_view.h) whose aggregates are kept, where not all are. Each has a slot: a row in
// every slab.
class Residents {
 public:
  uint32_t slot(uint32_t node) const { return node < slots_.size() ? slots_[node] : kNoIndex; }
  bool has(uint32_t node) const { return slot(node) != kNoIndex; }
  size_t size() const { return nodes_.size(); }              // slots, free ones among them
  uint32_t node(size_t slot) const { return nodes_[slot]; }  // kNoIndex where it is free
  std::vector<uint32_t> sorted() const;

  // All nodes with so many in-edges.
  void assign(const IdMap& ids, const EdgeView& store, size_t keep_degree);
  // These, which are in order.
  void assign(const IdMap& ids, std::span<const uint32_t> nodes);

  // What a batch changes. A node that has `keep_degree` in-edges becomes a resident; it is one no longer when it has
  // lost a quarter of them, so that one that goes to and fro is not computed each time. `removed`: by node, not 0 where
  // the batch removes it; `changes` are in order of target.
  void find_moves(const EdgeView& store, const std::vector<DirectedChange>& changes,
                  const std::vector<uint8_t>& removed, std::span<const uint32_t> removed_nodes, size_t keep_degree,
                  Moves* moves) const;
  // Room for the moves of a batch after which there are indices below `capacity`; then `move` cannot fail.
  void reserve(const Moves& moves, size_t capacity);
  void move(const Moves& moves, size_t capacity) noexcept;
  void settle() noexcept {
    for (auto* array : {&slots_, &nodes_, &free_}) array->settle();
  }
  size_t bytes() const { return (slots_.capacity() + nodes_.capacity() + free_.capacity()) * sizeof(uint32_t); }

 private:
  GrowingArray<uint32_t> slots_;  // by node; kNoIndex where there is none
  GrowingArray<uint32_t> nodes_;  // by slot; kNoIndex where it is free
  GrowingArray<uint32_t> free_;
};

}  // namespace livegnn
