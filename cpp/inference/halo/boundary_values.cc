#include "inference/halo/boundary_values.h"

#include <algorithm>
#include <stdexcept>

#include "inference/edges/edge_view.h"

namespace livegnn {

std::vector<std::vector<uint32_t>> boundary_values(const RowState& state) {
  const Program& program = state.program;
  std::vector<std::vector<uint32_t>> by_depth(1);  // depth 0 reads nothing along edges
  std::vector<bool> sent(program.values.size());
  if (!program.functions.empty()) throw std::invalid_argument("a part of a graph cannot call functions");
  for (const Step& step : program.order) {
    if (step.kind != Step::kPropagate) continue;
    std::vector<uint32_t>& values = by_depth.emplace_back();
    for (uint32_t value : read_along_edges(program, program.propagations[step.position])) {
      if (sent[value]) continue;
      if (!state.is_stored(value)) throw std::invalid_argument("a part of a graph must keep what others read");
      sent[value] = true;
      values.push_back(value);
    }
  }
  return by_depth;
}

std::vector<bool> feature_directions(const RowState& state) {
  std::vector<bool> read(state.graph.nodes.size());  // by node type: its features, along edges
  for (const PropagateStep& step : state.program.propagations) {
    for (uint32_t value : read_along_edges(state.program, step)) {
      const Value& spec = state.program.values[value];
      if (spec.features) read[spec.node_type] = true;
    }
  }
  std::vector<bool> directions = state.has_direction;
  for (size_t d = 0; d < directions.size(); ++d) {
    if (!read[sender_type(state.graph, d)]) directions[d] = false;
  }
  return directions;
}

}  // namespace livegnn
