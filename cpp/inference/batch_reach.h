// What a batch may change, found step by step along edges, without arithmetic: a bound of the work that it takes.
//
// Rows that keep their bits are not found out, so a batch may change less. Values that are computed when they are read
// count like kept ones.
//
// Thread safety: the caller keeps others from changing the graph meanwhile.
#pragma once

#include <cstddef>

#include "program/program.h"
#include "store/graph.h"

namespace livegnn {

struct BatchReach {
  size_t predictions = 0;  // nodes whose prediction may change
  size_t rows = 0;         // rows of all values, the features left out
  size_t edges = 0;        // messages, those of an edge once for each propagation
};

// delta: not yet committed to `graph`.
BatchReach reach_of(const Graph& graph, const Program& program, const Delta& delta);

}  // namespace livegnn
