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

std::vector<uint32_t> rows_changed(const Program& program, const BatchChanges& changes, size_t output) {
  std::vector<uint32_t> nodes;
  const auto include = [&](uint32_t value) {
    const Changes& rows = changes.of(value);
    const auto own = static_cast<std::ptrdiff_t>(rows.own_size());
    nodes.insert(nodes.end(), rows.nodes().begin(), rows.nodes().begin() + own);
  };
  const auto [kept, position] = program.output_at(output);
  if (kept) {
    include(position);
  } else {
    for (uint32_t source : program.on_demand[position].sources) include(source);
  }
  const NodeDelta& delta = changes.delta->nodes[program.output_type(output)];
  for (size_t i = 0; i < delta.added.size(); ++i) {
    if (delta.added_ids[i] != kNoId) nodes.push_back(delta.added[i]);  // whatever their rows are
  }
  return nodes;
}

}  // namespace livegnn
