#include "inference/rounding/rounding_state.h"

#include <algorithm>
#include <utility>

#include "inference/edges/edge_view.h"
#include "inference/rounding/error_bounds.h"
#include "program/steepness.h"

namespace livegnn {

RoundingState::RoundingState(const Program& program, const std::string& directory)
    : scales(program.propagations.size()), steep(find_steep(program)) {
  for (size_t p = 0; p < program.propagations.size(); ++p) {
    const PropagateStep& step = program.propagations[p];
    errors.emplace_back(error_width(program, step), directory);
    scales[p].begin(step.aggregate == Aggregate::kSum ? program.values[step.output].width : 0);
  }
}

void RoundingState::reserve(const RowState& rows, const Delta& delta, const BatchChanges& batch) {
  for (size_t p = 0; p < errors.size(); ++p) {
    const PropagateStep& step = rows.program.propagations[p];
    if (step.aggregate == Aggregate::kSum) errors[p].prepare(rows.count_after(step, delta, batch));
  }
}

void RoundingState::commit(const RowState& rows, const Delta& delta, const BatchChanges& batch, const NewScales& fresh,
                           const Totals& totals) noexcept {
  commit_scales(fresh, totals, this);
  for (size_t p = 0; p < rows.program.propagations.size(); ++p) {
    const PropagateStep& step = rows.program.propagations[p];
    if (step.aggregate != Aggregate::kSum) continue;
    const bool is_partial = rows.partial[step.output] >= 0;
    const NodeDelta& nodes = delta.nodes[rows.program.values[step.output].node_type];
    const KeptNodes& slots = rows.kept_nodes[direction_of(rows.graph, step)];
    Table& table = errors[p];
    table.resize(is_partial ? slots.size() : std::max(table.rows(), nodes.capacity));
    if (fresh.of(p).shrunk != 1) shrink_bounds(step, fresh.of(p).shrunk, &table);
    if (!is_partial) {
      for (uint32_t node : nodes.removed) table.clear_row(node);
    }
    const Changes& changes = batch.of(step.output);
    for (size_t i = 0; i < changes.reached.size(); ++i) {
      const uint32_t slot = is_partial ? slots.slot(changes.reached[i]) : changes.reached[i];
      if (slot != kNoIndex) table.write(slot, changes.errors.data() + i * table.width());
    }
  }
}

void RoundingState::release() noexcept {
  for (Table& table : errors) table.settle();
}

bool RoundingState::is_laid_out_as(const RoundingState& other) const {
  return std::equal(errors.begin(), errors.end(), other.errors.begin(), other.errors.end(),
                    [](const Table& ours, const Table& theirs) { return ours.width() == theirs.width(); });
}

void RoundingState::take(RoundingState* from) noexcept {
  errors.swap(from->errors);
  scales.swap(from->scales);
  std::swap(moments, from->moments);
}

}  // namespace livegnn
