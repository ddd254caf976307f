// One batch, made visible in a graph and its native views at once.
//
// Thread safety: for the one writer, who has prepared the graph and each view.
#pragma once

#include <span>

#include "views/view.h"

namespace livegnn {

// Takes the graph's lock alone; when it has let go of it, graph and views free what was replaced.
void commit(Graph* graph, const Delta& delta, std::span<View* const> views) noexcept;

}  // namespace livegnn
