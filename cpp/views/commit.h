// Makes one batch visible in a graph and its native views at the same time.
//
// Thread safety: only the one writer may call it, after it has prepared the graph and each view.
#pragma once

#include <span>

#include "views/view.h"

namespace livegnn {

// Holds the graph's lock exclusively for the commit; graph and views free replaced memory after it is released.
void commit(Graph* graph, const Delta& delta, std::span<View* const> views) noexcept;

// The two steps of a growth. `prepare_growth` leaves everything as it was if it throws.
void prepare_growth(Graph* graph, const GraphGrowth& growth, std::span<View* const> views);
void commit_growth(Graph* graph, std::span<View* const> views) noexcept;

}  // namespace livegnn
