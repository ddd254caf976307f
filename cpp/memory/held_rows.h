// The nodes of which a part of a graph holds rows of a slab: those that it owns, and of others those whose rows it
// receives. Each has a slot, a row of the slab, so the slab is as long as these are many.
//
// Row 0 of the slab is zero and stands for all other nodes. A slot is given to a node when its row is first written,
// and taken back when the node is removed, or when it is another part's and has lost its last edge.
//
// Invariants: row 0 and the rows of free slots are zero. No two nodes have the same slot but 0.
// Thread safety: one writer; `prepare` and `settle` run concurrently with readers, everything else alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "memory/growing_array.h"
#include "memory/table.h"

namespace livegnn {

class HeldRows {
 public:
  // By node, as many as there are indices.
  const uint32_t* slots() const { return slots_.data(); }
  size_t capacity() const { return slots_.size(); }
  bool has(uint32_t node) const { return node < slots_.size() && slots_[node] != 0; }
  size_t bytes() const { return (slots_.capacity() + free_.capacity()) * sizeof(uint32_t); }

  // Gives a slot to these nodes and to no others, with rows of zeros. nodes: each once, below `capacity`.
  void assign(std::span<const uint32_t> nodes, size_t capacity, Table* slab);

  // Makes room for the rows that a batch writes and takes back: of nodes in any order, also more than once; of those in
  // both, the row becomes zero before it is written. If it throws, call `settle` next; nothing has changed.
  void prepare(std::vector<uint32_t> written, std::vector<uint32_t> leaving, size_t capacity, Table* slab);
  void commit(size_t capacity, Table* slab) noexcept;
  void settle() noexcept;

 private:
  GrowingArray<uint32_t> slots_, free_;
  size_t used_ = 1;  // slots, including free ones and slot 0
  std::vector<uint32_t> entering_, leaving_;
};

}  // namespace livegnn
