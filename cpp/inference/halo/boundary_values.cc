#include "inference/halo/boundary_values.h"

#include <algorithm>
#include <stdexcept>

namespace livegnn {

std::vector<std::vector<uint32_t>> boundary_values(const RowState& state) {
  const Program& program = state.program;
  std::vector<std::vector<uint32_t>> by_depth(1);  // depth 0 reads nothing along edges
  std::vector<bool> sent(program.values.size());
  if (!program.functions.empty()) throw std::invalid_argument("a part of a graph cannot call functions");
  for (const Step& step : program.order) {
    if (step.kind != Step::kPropagate) continue;
    const PropagateStep& propagation = program.propagations[step.position];
    if (propagation.message != kNoIndex || propagation.aggregate != Aggregate::kSum) {
      throw std::invalid_argument("a part of a graph can only sum rows along edges");
    }
    std::vector<uint32_t>& values = by_depth.emplace_back();
    const uint32_t value = propagation.input;
    if (program.values[value].features || sent[value]) continue;
    if (!state.is_stored(value)) throw std::invalid_argument("a part of a graph must keep what others read");
    sent[value] = true;
    values.push_back(value);
  }
  return by_depth;
}

}  // namespace livegnn
