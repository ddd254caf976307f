// A part of a tree of neighbours from which draws by weight are made: everything below one block, or a single
// neighbour.
//
// If one weight outweighs all others, the sum without it cannot be computed from the sum with it, because the others
// were rounded away. So the part that holds it is divided, down to the leaf, into the parts beside the path, each with
// its own sum.
//
// Thread safety: plain data.
#pragma once

#include <cstdint>

#include "memory/block_heap.h"

namespace livegnn {

template <class Id>
struct WeightPart {
  double sum;      // of the weights; a negative one counts as 0
  BlockRef node;   // 0: the single neighbour `id`
  uint32_t count;  // number of neighbours below the node
  Id id;
};

}  // namespace livegnn
