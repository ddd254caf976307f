// The way of a batch through the depths of a program, with a place between them where rows may be exchanged.
//
// Thread safety: as of the back end.
#pragma once

#include "inference/backend.h"

namespace livegnn {

// Calls `exchange(depth)` when the rows that depth `depth` reads along edges are complete, before that depth. What it
// throws is thrown on, and nothing has happened.
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
