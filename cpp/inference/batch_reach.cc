#include "inference/batch_reach.h"

#include <algorithm>
#include <vector>

#include "inference/edges/directed_changes.h"
#include "inference/edges/reached_nodes.h"

namespace livegnn {
namespace {

// What a batch changes along the edges that a program reads, by direction.
std::vector<std::vector<DirectedChange>> changes_along(const Graph& graph, const Program& program, const Delta& delta) {
  std::vector<std::vector<DirectedChange>> changes(2 * graph.edges.size());
  const auto read = [&](uint32_t edge_type, bool reversed) {
    std::vector<DirectedChange>& forward = changes[edge_type];
    if (forward.empty()) direct_changes(graph, delta, edge_type, nullptr, &forward);
    if (reversed) reverse_changes(forward, &changes[edge_type + graph.edges.size()]);
  };
  for (const PropagateStep& step : program.propagations) read(step.edge_type, step.reversed);
  for (const ContextStep& step : program.contexts) read(step.edge_type, step.reversed);
  return changes;
}

}  // namespace

BatchReach reach_of(const Graph& graph, const Program& program, const Delta& delta) {
  BatchReach reach;
  ReachedNodes nodes;
  nodes.cover(delta);
  const auto changes = changes_along(graph, program, delta);
  std::vector<std::vector<uint32_t>> reached(program.values.size());
  for (size_t value = 0; value < reached.size(); ++value) {
    if (program.values[value].features) reached[value] = delta.nodes[program.values[value].node_type].featured;
  }
  const auto changed_of = [&](uint32_t value) -> const std::vector<uint32_t>& { return reached[value]; };
  std::vector<uint32_t> found;
  const auto write = [&](uint32_t value) {
    if (value == kNoIndex) return;
    reach.rows += found.size();
    reached[value] = found;
  };
  for (const Step& step : program.order) {
    if (step.kind == Step::kRows) {
      const RowsStep& rows = program.rows[step.position];
      reach_rows(delta, rows, changed_of, &nodes);
      nodes.take(&found);
      for (const Sink& sink : rows.sinks) write(sink.value);
    } else if (step.kind == Step::kContext) {
      const ContextStep& context = program.contexts[step.position];
      for (const DirectedChange& change : changes[direction_of(graph, context)]) nodes.add(change.target);
      nodes.take(&found);
      write(context.output);
    } else {
      const PropagateStep& along = program.propagations[step.position];
      reach.edges += reach_along(graph, program, along, changes[direction_of(graph, along)], changed_of, &nodes);
      nodes.take(&found);
      for (uint32_t value : {along.output, along.context, along.counts}) write(value);
    }
  }
  if (program.output_kept) {
    reach.predictions = reached[program.output].size();
  } else {
    reach_rows(delta, program.on_demand[program.output], changed_of, &nodes);
    nodes.take(&found);
    reach.predictions = found.size();
  }
  return reach;
}

}  // namespace livegnn
