// The blocks that one thread has made and replaced in a heap during the current batch.
//
// Invariants: every block that was allocated or copied is in `made`; an entry of 0 means that its allocation failed.
// Thread safety: one thread at a time; different lanes, with different indices, may be used at once.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "memory/block_heap.h"

namespace livegnn {

struct BlockLane {
  size_t index = 0;
  std::vector<BlockRef> made, retired;

  // The list entry is made first, so that no block is lost if there is no memory for the entry; until then it is 0.
  BlockRef allocate(BlockHeap* heap, size_t bytes) {
    made.push_back(0);
    return made.back() = heap->allocate(bytes, index);
  }
  // Copies a block that is moved, and charges the budget of a compaction (samtree.h), if there is one.
  BlockRef copy(BlockHeap* heap, BlockRef ref, size_t* budget) {
    constexpr size_t kCost = 8, kBytesOfCost = 32;
    made.push_back(0);
    retired.push_back(ref);
    made.back() = heap->copy(ref);
    if (budget != nullptr) *budget -= std::min(*budget, kCost + heap->size_of(ref) / kBytesOfCost);
    return made.back();
  }
};

}  // namespace livegnn
