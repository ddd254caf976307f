#include "inference/halo/boundary_values.h"

#include <algorithm>
#include <stdexcept>

namespace livegnn {

namespace {

// The values of which a propagation reads rows of sending nodes.
std::vector<uint32_t> read_along_edges(const Program& program, const PropagateStep& step) {
  if (step.message == kNoIndex) return {step.input};
  std::vector<uint32_t> values;
  if (step.only_loops) return values;  // each node sends to itself alone
  for (const MessageSource& source : program.messages[step.message].sources) {
    if (source.side == MessageSource::kSource) values.push_back(source.value);
  }
  return values;
}

}  // namespace

std::vector<std::vector<uint32_t>> boundary_values(const RowState& state) {
  const Program& program = state.program;
  std::vector<std::vector<uint32_t>> by_depth(1);  // depth 0 reads nothing along edges
  std::vector<bool> sent(program.values.size());
  if (!program.functions.empty()) throw std::invalid_argument("a part of a graph cannot call functions");
  for (const Step& step : program.order) {
    if (step.kind != Step::kPropagate) continue;
    std::vector<uint32_t>& values = by_depth.emplace_back();
    for (uint32_t value : read_along_edges(program, program.propagations[step.position])) {
      if (program.values[value].features || sent[value]) continue;
      if (!state.is_stored(value)) throw std::invalid_argument("a part of a graph must keep what others read");
      sent[value] = true;
      values.push_back(value);
    }
  }
  return by_depth;
}

}  // namespace livegnn
