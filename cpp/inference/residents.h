// Whose aggregates are kept, where not all are, and who comes and goes with a batch.
//
// Thread safety: none; the engine's one writer changes them, and commits under the graph's lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "memory/growing_array.h"
#include "store/graph.h"

namespace livegnn {

// The targets of a direction (edge_view.h) whose aggregates are kept, where not all are. Each has a slot: a row in
// every slab.
struct Residents {
  GrowingArray<uint32_t> slots;  // by node; kNoIndex where there is none
  GrowingArray<uint32_t> nodes;  // by slot; kNoIndex where it is free
  GrowingArray<uint32_t> free;

  uint32_t slot(uint32_t node) const { return node < slots.size() ? slots[node] : kNoIndex; }
  size_t bytes() const { return (slots.capacity() + nodes.capacity() + free.capacity()) * sizeof(uint32_t); }
  void settle() noexcept {
    for (auto* array : {&slots, &nodes, &free}) array->settle();
  }
};

// Who becomes a resident and who is one no longer, by node.
struct Moves {
  std::vector<uint32_t> entering, leaving;
};

}  // namespace livegnn
