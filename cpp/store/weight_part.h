// A part of a tree of neighbours from which draws by weight are made: all below one block, or one neighbour alone.
//
// Where one weight outweighs all others, the sum without it cannot be had from the sum with it: it was rounded away. So
// the part that holds it is taken apart, down to the leaf, into what lies beside the way: each with a sum of its own.
//
// Thread safety: plain data.
#pragma once

#include <cstdint>

#include "memory/block_heap.h"

namespace livegnn {

template <class Id>
struct WeightPart {
  double sum;      // of the weights; a negative one counts as 0
  BlockRef node;   // 0: the neighbour `id` alone
  uint32_t count;  // of neighbours below the node
  Id id;
};

}  // namespace livegnn
