// Takes a batch through the depths of a program; rows may be exchanged between depths.
//
// Thread safety: the same as the back end's.
#pragma once

#include "inference/backend.h"

namespace livegnn {

// Calls `exchange(depth)` before depth `depth`, when the rows that this depth reads along edges are complete.
// Exceptions from it are passed on, and then nothing has changed.
template <class Exchange>
void prepare_depths(Backend* backend, const Delta& delta, Prepared* prepared, const Exchange& exchange) {
  backend->begin(delta, prepared);
  do {
    for (size_t depth = 0; depth < backend->depths(); ++depth) {
      if (depth > 0) exchange(depth);
      backend->prepare_depth(depth, prepared);
    }
  } while (backend->finish(prepared));
}

inline void prepare_depths(Backend* backend, const Delta& delta, Prepared* prepared) {
  prepare_depths(backend, delta, prepared, [](size_t) {});
}

}  // namespace livegnn
