// The nodes whose features a part of a graph holds: those that it owns, and those of other parts that send to its own
// along edges whose messages need features.
//
//   batch   an edge from another's node arrives   ─► room, and zeros; whoever reads the features writes them
//           its last such edge leaves             ─► none
//           features are set                      ─► written, if they are held
//
// The engine says in which directions messages go (`GraphPart::read_features`), and receives the features of nodes that
// it begins to read from their owners (inference/halo/halo.h).
//
// Thread safety: plain functions; the same as for the graph.
#pragma once

#include <cstdint>
#include <vector>

#include "store/graph.h"
#include "store/owners_after.h"

namespace livegnn {

// The nodes that a part owns, and those of other parts to or from which it keeps edges; ascending.
std::vector<uint32_t> held_nodes(const Graph& part, uint32_t node_type);

// Holds the features of those nodes that are read now, and no others; those that were not held are zero.
void hold_features(Graph* part);

// Makes room for the features that a batch brings, after the stores have prepared it. If it throws, nothing has
// changed.
void prepare_features(const Delta& delta, const OwnersAfter& owners, Graph* part);

}  // namespace livegnn
