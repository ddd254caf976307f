#include "inference/preparation.h"

namespace livegnn {

size_t Preparation::need() const {
  size_t need = affected + edges_touched + nodes_touched;
  for (const auto& changed_edges : batch.changes.edges) need += changed_edges.size();
  for (const auto& nodes : marks.reached) need += nodes.size();
  return need;
}

size_t Preparation::settle() {
  const size_t held = held_ = bytes();
  if (!needs_.outgrown(need())) return 0;
  give_back(&batch.changes.rows);
  give_back(&batch.changes.edges);
  give_back(&batch.changes.moves);
  give_back(&marks.reached);
  give_back(&marks.before);
  held_ = bytes();
  return held;
}

size_t Preparation::bytes() const {
  const auto& [delta, rows, edges, moves] = batch.changes;
  size_t bytes = bytes_of(rows) + bytes_of(edges) + bytes_of(moves) + bytes_of(changed) + bytes_of(marks.reached) +
                 bytes_of(marks.before);
  for (const auto* values : {&rows, &marks.before}) {
    for (const Changes& one : *values) bytes += one.bytes();
  }
  for (const Moves& one : moves) bytes += bytes_of(one.entering) + bytes_of(one.leaving);
  return bytes;
}

}  // namespace livegnn
