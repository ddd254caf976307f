#include "inference/forward/forward.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "inference/forward/forward_pass.h"

namespace livegnn {

Forward::Forward(Program program, std::vector<EdgeType> edge_types)
    : program_(std::move(program)),
      edge_types_(std::move(edge_types)),
      reads_(2 * edge_types_.size()),
      edge_widths_(edge_types_.size()) {
  size_t widest = 0;
  for (const Value& value : program_.values) {
    if (value.derived >= 0) throw std::logic_error("a forward pass computes every row, got derived values");
    node_widths_.resize(std::max<size_t>(node_widths_.size(), value.node_type + 1));
    if (value.features) node_widths_[value.node_type] = value.width;
    widest = std::max<size_t>(widest, value.width);
  }
  for (const EdgeType& type : edge_types_) {
    node_widths_.resize(std::max<size_t>(node_widths_.size(), std::max(type.source_type, type.target_type) + 1));
  }
  for (const ContextStep& step : program_.contexts) reads_[direction_of(step.edge_type, step.reversed)] = 1;
  for (const PropagateStep& step : program_.propagations) {
    reads_[direction_of(step.edge_type, step.reversed)] = 1;
    if (step.message == kNoIndex) continue;
    const MessageProgram& messages = program_.messages[step.message];
    for (size_t i = 0; i < messages.sources.size(); ++i) {
      if (messages.sources[i].side != MessageSource::kFeatures) continue;
      edge_widths_[step.edge_type] = messages.step.registers[i].width;
    }
  }
  units_.assign(widest, 1.0f);
}

void Forward::run(const SampledGraph& sample, std::span<const Asked> asked) const {
  const ForwardWorkspaces::Lease workspace = workspaces_.take();
  ForwardPass(*this, sample, workspace.get()).run(asked);
  last_bytes_.store(workspace->peak(), std::memory_order_relaxed);
}

}  // namespace livegnn
