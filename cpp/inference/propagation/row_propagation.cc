#include "inference/propagation/row_propagation.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "inference/edges/directed_changes.h"
#include "inference/rounding/measurement.h"
#include "inference/rounding/rounding.h"
#include "inference/rounding/sample_reader.h"
#include "inference/rows/aggregate.h"
#include "program/kernels.h"
#include "threads/parallel.h"

namespace livegnn {

void RowPropagation::initialize(RowState* state, RoundingState* rounding, Whole* whole) const {
  const IdMap& ids = state_.graph.nodes[target_type()].ids;
  const bool sum = step_.aggregate == Aggregate::kSum;
  const KeptNodes& kept_nodes = state_.kept_nodes[direction_of(state_.graph, step_)];
  const size_t kept = is_partial() ? kept_nodes.size() : ids.capacity();
  if (is_partial()) {
    // Leave room for new kept nodes: growth by half would undo much of the saving.
    Table& slab = state->slabs[state_.program.values[step_.output].slab];
    slab.resize(0);
    slab.resize(kept + kept / 8);
    slab.resize(kept);
  }
  rounding->errors[position_].resize(0);
  rounding->errors[position_].resize(sum ? kept : 0);
  const Rows out = is_partial() ? (*whole)[step_.output] : state->rows(step_.output);
  const Rows counts = sum ? Rows{} : state->kept_rows(step_.counts);
  Table table;
  const Rows input = all_stored_rows(state_, step_.input, whole, &pool_, &table);
  const EdgeView store = view_of(state_.graph, step_);
  // Lists are short, so prefetch what the lists of later nodes contain.
  auto fetch_sources = [&](uint32_t node) {
    store.scan_in(node, [&](NeighborSpan span) {
      for (size_t i = 0; i < std::min<size_t>(span.size, 8); ++i) {
        const float* row = input.row(span.ids[i]);
        for (size_t c = 0; c < input.width; c += 16) __builtin_prefetch(row + c);
      }
    });
  };
  pool_.run(blocks_of(ids.capacity()), kLong, [&](size_t block) {
    const size_t end = std::min(ids.capacity(), (block + 1) * kBlockRows);
    for (auto node = static_cast<uint32_t>(block * kBlockRows); node < end; ++node) {
      store.prefetch_in(node + 12);
      store.prefetch_in_leaf(node + 8);
      if (node + 2 < end) fetch_sources(node + 2);
      if (!state_.computes(target_type(), node)) continue;
      const uint32_t slot = state_.slot_of(step_.output, node);
      float* const count_row = sum || slot == kNoIndex ? nullptr : counts.row(slot);
      if (is_partial()) {
        aggregate_in_order(state_, step_, input, node, out.row(node), count_row);
      } else {
        aggregate_all(state_, step_, input, node, out.row(node), count_row);
      }
    }
  });
  if (!is_partial()) return;
  const Rows rows = state->kept_rows(step_.output);
  for (size_t slot = 0; slot < kept; ++slot) {
    std::memcpy(rows.row(slot), out.row(kept_nodes.node(slot)), rows.width * sizeof(float));
  }
}

Scrubbed RowPropagation::scrub(std::span<const uint32_t> nodes) const {
  const Rows kept = state_.kept_rows(step_.output), input = state_.rows(step_.input);
  const EdgeView store = view_of(state_.graph, step_);
  const bool counted = step_.aggregate == Aggregate::kMax;
  const size_t width = kept.width;
  std::vector<float> units(width);
  float mean = 0;
  if (!counted) {
    const WholeSample sample(state_, rounding_, step_, nullptr);
    const Measurement measurement(state_.program, step_, sample.few);
    units = measurement.scales(rounding_.scales[position_].scales, [&] { return sample.many(); });
    mean = measurement.mean(units);
    fill_scales(&units);
  }
  std::vector<float> row(row_stride(width)), counts(counted ? width : 0);
  std::vector<const float*> messages;
  std::vector<double> reach(width);
  RowArena arena;
  Scrubbed seen;
  for (uint32_t node : nodes) {
    if (!state_.graph.nodes[target_type()].ids.in_use(node)) continue;
    const uint32_t slot = state_.slot_of(step_.output, node);
    if (slot == kNoIndex) continue;
    const float* const held = kept.row(slot);
    seen.not_finite += kernels().finite(width, held) ? 0 : 1;
    aggregate_all(state_, step_, input, node, row.data(), counted ? counts.data() : nullptr);
    // A wrong count is invisible until it keeps a maximum that no message equals any more, so it counts as a difference
    // of 1.
    if (counted && kernels().differs(width, counts.data(), state_.kept_rows(step_.counts).row(slot))) {
      seen.difference = std::max(seen.difference, 1.0);
    }
    std::fill(reach.begin(), reach.end(), 0.0);
    scan_messages(store, step_, node, [&](NeighborSpan span) {
      arena.clear();
      messages.resize(span.size);
      stored_rows(state_, step_.input, {span.ids, span.size}, &arena, messages.data());
      for (size_t i = 0; i < span.size; ++i) {
        const double weight = step_.weighted && span.weights != nullptr ? span.weights[i] : 1.0f;
        for (size_t c = 0; c < width; ++c) reach[c] += std::fabs(weight * messages[i][c]);
      }
    });
    const double terms = std::max<double>(1, store.degree_in(node)), typical = typical_sum(store.degree_in(node), mean);
    for (size_t c = 0; c < width; ++c) {
      const double scale = std::max({std::fabs(static_cast<double>(row[c])), reach[c] / terms, units[c] * typical});
      seen.difference = std::max(seen.difference, part_of(held[c], row[c], scale));
    }
  }
  return seen;
}

}  // namespace livegnn
