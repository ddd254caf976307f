#include "inference/rounding/error_bounds.h"

#include <algorithm>
#include <cmath>

#include "inference/edges/edge_view.h"
#include "inference/evaluation/blocks.h"
#include "inference/evaluation/message_sums.h"
#include "inference/rounding/rounding.h"
#include "program/kernels.h"
#include "threads/parallel.h"

namespace livegnn {
namespace {

// Whether the two bounds of a row are packed into one number (rounding.h).
bool has_packed_bounds(const PropagateStep& step) {
  return step.aggregate == Aggregate::kSum && (step.message == kNoIndex || step.context == kNoIndex);
}

}  // namespace

size_t error_width(const Program& program, const PropagateStep& step) {
  if (step.aggregate != Aggregate::kSum) return 0;
  return has_packed_bounds(step) ? kRowBounds : 2 * heads_of(program, step);
}

size_t saved_error_width(const Program& program, const PropagateStep& step) {
  return has_packed_bounds(step) ? 2 : error_width(program, step);
}

std::vector<float> saved_errors(const RowState& rows, const RoundingState& rounding, size_t propagation) {
  const Table& table = rounding.errors[propagation];
  const PropagateStep& step = rows.program.propagations[propagation];
  std::vector<float> all;
  if (table.width() == 0) return all;
  for (uint32_t slot : rows.slots(step.output)) {
    if (has_packed_bounds(step)) {
      const Bounds bounds = unpack(table.row(slot));
      all.insert(all.end(), {bounds.own, bounds.moved});
    } else {
      all.insert(all.end(), table.row(slot), table.row(slot) + table.width());
    }
  }
  return all;
}

void load_errors(const Program& program, size_t propagation, std::span<const float> errors, RoundingState* to) {
  Table& table = to->errors[propagation];
  if (table.width() == 0) return;
  const PropagateStep& step = program.propagations[propagation];
  const size_t width = saved_error_width(program, step);
  table.resize(errors.size() / width);
  for (size_t i = 0; i < table.rows(); ++i) {
    const float* const from = errors.data() + i * width;
    if (has_packed_bounds(step)) {
      pack({std::fabs(from[0]), std::fabs(from[1])}, table.row(i));
    } else {
      table.write(i, from);
    }
  }
}

void begin_all_bounds(const RowState& rows, size_t propagation, ThreadPool* pool, RoundingState* rounding) {
  const PropagateStep& step = rows.program.propagations[propagation];
  const EdgeView store = view_of(rows.graph, step);
  const uint32_t node_type = rows.program.values[step.output].node_type;
  const Rows kept = rows.kept_rows(step.output);
  const float* const inverse = rounding->scales[propagation].inverses.data();
  Table& errors = rounding->errors[propagation];
  const size_t count = std::min(errors.rows(), kept.count);
  pool->run(blocks_of(count), kLong, [&](size_t block) {
    for (size_t slot = block * kBlockRows; slot < std::min(count, (block + 1) * kBlockRows); ++slot) {
      const uint32_t node = rows.node_at(step, slot);
      if (node == kNoIndex || rows.is_foreign(node_type, node)) continue;
      const float peak = kernels().scaled_peak(kept.width, kept.row(slot), inverse);
      begin_bounds(peak, store.degree_in(node), errors.row(slot));
    }
  });
}

void shrink_bounds(const PropagateStep& step, float shrunk, Table* errors) noexcept {
  for (size_t i = 0; i < errors->rows(); ++i) {
    float* const row = errors->row(i);
    if (step.context != kNoIndex) {
      for (size_t h = 0; h < errors->width() / 2; ++h)
        row[h] *= shrunk;  // bounds of contexts, which follow them, have no unit
    } else {
      const Bounds bounds = unpack(row);
      pack({shrunk * bounds.own, shrunk * bounds.moved}, row);
    }
  }
}

}  // namespace livegnn
