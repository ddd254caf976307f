// Divides a graph: fills the parts of one with what they keep of it; and joins them again.
//
//   undivided   nodes      ─► every part, under the same indices
//               edges      ─► the parts that own an end: lists of owned nodes exactly, those of others new
//               features   ─► the parts that own the node, or keep an edge of it
//
// Thread safety: the undivided graph is only read, so that any number of parts may be filled at once.
#pragma once

#include <span>

#include "store/graph.h"

namespace livegnn {

// Requires: a part without nodes, of the same schema, and the same texts if ids are texts; its owners follow from ids,
// or are given for each type (`GraphPart::give_loaded`).
// Throws std::invalid_argument if the part has nodes, and std::runtime_error if the schemas differ; then the part is
// unusable.
void take_share(const Graph& whole, Graph* part);

// The reverse: fills an undivided graph without nodes with what all parts of one have. Requires: the parts by number,
// after the same events, of the same schema, and the same texts if ids are texts. Throws std::invalid_argument if there
// are not all parts.
void join_shares(std::span<const Graph* const> parts, Graph* whole);

}  // namespace livegnn
