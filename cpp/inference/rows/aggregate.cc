#include "inference/rows/aggregate.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <vector>

#include "inference/edges/directed_changes.h"
#include "inference/evaluation/blocks.h"
#include "inference/rows/stored_rows.h"
#include "program/kernels.h"
#include "program/row_sum.h"

namespace livegnn {
namespace {

struct Neighbor {
  uint32_t source;
  float weight;
};

void append_in_order(const PropagateStep& step, const EdgeView& store, uint32_t node, std::vector<Neighbor>* all) {
  const auto first = static_cast<std::ptrdiff_t>(all->size());
  scan_messages(store, step, node, [&](NeighborSpan span) {
    for (size_t i = 0; i < span.size; ++i) {
      all->push_back({span.ids[i], step.weighted && span.weights != nullptr ? span.weights[i] : 1.0f});
    }
  });
  std::sort(all->begin() + first, all->end(), [](const Neighbor& a, const Neighbor& b) {
    return a.source != b.source ? a.source < b.source : a.weight < b.weight;
  });
}

// Locates the rows of some neighbours and aggregates them, in their order.
template <class Locate>
void aggregate(const PropagateStep& step, size_t width, std::span<const Neighbor> neighbors, const Locate& locate,
               float* out, float* counts) {
  static thread_local std::vector<const float*> rows;
  static thread_local std::vector<uint32_t> order;
  static thread_local std::vector<float> weights;
  static thread_local std::vector<uint32_t> ties;
  const Trimmed trimmed(&rows, &order, &weights);
  rows.clear();
  weights.clear();
  while (order.size() < neighbors.size()) order.push_back(static_cast<uint32_t>(order.size()));
  for (const Neighbor& neighbor : neighbors) {
    rows.push_back(locate(neighbor.source));
    weights.push_back(neighbor.weight);
  }
  std::fill(out, out + row_stride(width), 0.0f);
  if (counts != nullptr) std::memset(counts, 0, width * sizeof(float));
  if (neighbors.empty()) return;
  if (step.aggregate == Aggregate::kSum) {
    sum_all_rows(row_stride(width), rows.size(), rows.data(), order.data(), weights.data(), out);
  } else {
    std::fill(out, out + width, -std::numeric_limits<float>::infinity());
    ties.assign(width, 0);
    kernels().max_rows(width, rows.size(), rows.data(), order.data(), weights.data(), out, ties.data());
    if (counts != nullptr) std::memcpy(counts, ties.data(), width * sizeof(float));
  }
}

}  // namespace

void aggregate_all(const RowState& state, const PropagateStep& step, const Rows& input, uint32_t node, float* out,
                   float* counts) {
  if (input.count == 0) return aggregate_computed(state, step, node, out, counts);
  const EdgeView store = view_of(state.graph, step);
  const size_t width = input.width;
  if (step.aggregate == Aggregate::kSum) {
    static thread_local RowSum total;
    static thread_local std::vector<uint32_t> slots;
    for (const bool widely : {false, true}) {
      total.open(row_stride(width), out, widely);
      scan_messages(store, step, node, [&](NeighborSpan span) {
        const uint32_t* places = span.ids;
        if (input.slots != nullptr) {
          slots.resize(span.size);
          for (size_t i = 0; i < span.size; ++i) slots[i] = input.slots[span.ids[i]];
          places = slots.data();
        }
        total.gather(span.size, input.data, input.stride, places, step.weighted ? span.weights : nullptr);
      });
      total.close();
      if (kernels().finite(width, out)) break;
    }
    return;
  }
  static thread_local std::vector<uint32_t> ties;
  ties.assign(width, 0);
  if (store.degree_in(node) == 0) {
    std::memset(out, 0, width * sizeof(float));
    std::memset(counts, 0, width * sizeof(float));
    return;
  }
  std::fill(out, out + width, -std::numeric_limits<float>::infinity());
  store.scan_in(node, [&](NeighborSpan span) {
    for (size_t i = 0; i < span.size; ++i) {
      const float* row = input.row(span.ids[i]);
      uint32_t zero = 0;
      float weight = step.weighted && span.weights != nullptr ? span.weights[i] : 1.0f;
      kernels().max_rows(width, 1, &row, &zero, &weight, out, ties.data());
    }
  });
  std::memcpy(counts, ties.data(), width * sizeof(float));
}

// Gives the same bits as from kept rows.
void aggregate_computed(const RowState& state, const PropagateStep& step, uint32_t node, float* out, float* counts) {
  static thread_local RowArena arena;
  static thread_local std::vector<const float*> rows;
  static thread_local std::vector<uint32_t> order;
  static thread_local std::vector<float> ones;
  static thread_local std::vector<uint32_t> ties;
  static thread_local RowSum total;
  const Kernels& k = kernels();
  const EdgeView store = view_of(state.graph, step);
  const size_t width = state.program.values[step.input].width;
  const bool sum = step.aggregate == Aggregate::kSum;
  std::fill_n(out, row_stride(width), 0.0f);
  ties.assign(sum ? 0 : width, 0);
  if (!sum && store.degree_in(node) > 0) std::fill(out, out + width, -std::numeric_limits<float>::infinity());
  for (const bool widely : {false, true}) {
    if (sum) total.open(row_stride(width), out, widely);
    scan_messages(store, step, node, [&](NeighborSpan span) {
      arena.clear();
      rows.resize(span.size);
      while (order.size() < span.size) order.push_back(static_cast<uint32_t>(order.size()));
      ones.resize(std::max(ones.size(), span.size), 1.0f);
      stored_rows(state, step.input, {span.ids, span.size}, &arena, rows.data());
      const float* weights = step.weighted && span.weights != nullptr ? span.weights : ones.data();
      if (sum) {
        total.add(span.size, rows.data(), order.data(), weights);
      } else {
        k.max_rows(width, span.size, rows.data(), order.data(), weights, out, ties.data());
      }
    });
    if (!sum) break;
    total.close();
    if (k.finite(width, out)) break;
  }
  if (!sum && counts != nullptr) std::memcpy(counts, ties.data(), width * sizeof(float));
}

void aggregate_in_order(const RowState& state, const PropagateStep& step, const Rows& input, uint32_t node, float* out,
                        float* counts) {
  static thread_local std::vector<Neighbor> neighbors;
  const Trimmed trimmed(&neighbors);
  neighbors.clear();
  append_in_order(step, view_of(state.graph, step), node, &neighbors);
  aggregate(step, input.width, neighbors, [&](uint32_t source) { return input.row(source); }, out, counts);
}

void pull(const RowState& state, const PropagateStep& step, std::span<const uint32_t> nodes, RowArena* arena,
          const float** out) {
  const size_t width = state.program.values[step.input].width, stride = row_stride(width);
  std::vector<Neighbor> neighbors;
  std::vector<size_t> offsets{0};
  for (uint32_t node : nodes) {
    append_in_order(step, view_of(state.graph, step), node, &neighbors);
    offsets.push_back(neighbors.size());
  }
  std::vector<uint32_t> sources;
  sources.reserve(neighbors.size());
  for (const Neighbor& neighbor : neighbors) sources.push_back(neighbor.source);
  std::sort(sources.begin(), sources.end());
  sources.erase(std::unique(sources.begin(), sources.end()), sources.end());
  std::vector<const float*> rows(sources.size());
  stored_rows(state, step.input, sources, arena, rows.data());
  float* row = arena->take(nodes.size() * stride);
  for (size_t i = 0; i < nodes.size(); ++i, row += stride) {
    aggregate(
        step, width, {neighbors.data() + offsets[i], offsets[i + 1] - offsets[i]},
        [&](uint32_t source) {
          const auto found = std::lower_bound(sources.begin(), sources.end(), source);
          return rows[static_cast<size_t>(found - sources.begin())];
        },
        row, nullptr);
    out[i] = row;
  }
}

}  // namespace livegnn
