// Divides a graph: fills the parts of one with what they keep of it.
//
//   undivided   nodes, features ─► every part, under the same indices
//               edges           ─► the parts that own an end: lists of owned nodes exactly, those of others new
//
// Thread safety: the undivided graph is only read, so that any number of parts may be filled at once.
#pragma once

#include "store/graph.h"

namespace livegnn {

// Requires: a part without nodes, of the same schema, and the same texts if ids are texts; its owners follow from ids.
// Throws std::invalid_argument if the part has nodes, and std::runtime_error if the schemas differ; then the part is
// unusable.
void take_share(const Graph& whole, Graph* part);

}  // namespace livegnn
