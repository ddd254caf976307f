// Looking for what is wrong with kept rows: some are computed anew and compared, channel by channel.
//
// The magnitude that a difference is held against knows nothing of what the engine believes: typical messages are
// measured for it. Otherwise a unit that is wrong would hide what it is wrong about.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "inference/directed_changes.h"
#include "inference/engine_scratch.h"
#include "inference/message_sums.h"
#include "inference/rounding.h"
#include "program/kernels.h"

namespace livegnn {
namespace {

// What is smaller than this may be made of exponentials that had no bits left, whichever way they were added up.
constexpr double kUnderflow = 1e-30;

// How far apart two numbers are as a part of a scale; what is not finite is compared as it is.
double part_of(double kept, double anew, double scale) {
  if (std::isfinite(kept) && std::isfinite(anew)) {
    return kept == anew ? 0 : std::fabs(kept - anew) / std::max(scale, kUnderflow);
  }
  const bool same = kept == anew || (std::isnan(kept) && std::isnan(anew));
  return same ? 0 : std::numeric_limits<double>::infinity();
}

}  // namespace

Engine::Scrubbed Engine::scrub(size_t propagation, std::span<const uint32_t> nodes) {
  const PropagateStep& step = program_.propagations[propagation];
  if (step.message != kNoIndex) return scrub_messages(step, nodes);
  const Rows kept = kept_rows(step.output), input = rows(step.input);
  const EdgeView store = view_of(graph_, step);
  const bool counted = step.aggregate == Aggregate::kMax;
  const size_t width = kept.width;
  std::vector<float> units(width);
  float mean = 0;
  if (!counted) {
    const std::vector<SampledTarget> targets = sample_targets(step, nullptr);
    units = measure_scales(step, targets, scales_[propagation], nullptr);
    mean = typical_mean(step, targets, units, nullptr);
    fill_scales(&units);
  }
  std::vector<float> row(row_stride(width)), counts(counted ? width : 0);
  std::vector<const float*> messages;
  std::vector<double> reach(width);
  RowArena arena;
  Scrubbed seen;
  for (uint32_t node : nodes) {
    if (!graph_.nodes[program_.values[step.output].node_type].ids.in_use(node)) continue;
    const uint32_t slot = slot_of(step.output, node);
    if (slot == kNoIndex) continue;
    const float* const held = kept.row(slot);
    seen.not_finite += kernels().finite(width, held) ? 0 : 1;
    aggregate_all(step, input, node, row.data(), counted ? counts.data() : nullptr);
    // Nobody sees a wrong count, until the maximum that it should have let go is wrong altogether.
    if (counted && kernels().differs(width, counts.data(), kept_rows(step.counts).row(slot))) {
      seen.difference = std::max(seen.difference, 1.0);
    }
    std::fill(reach.begin(), reach.end(), 0.0);
    scan_messages(store, step, node, [&](NeighborSpan span) {
      arena.clear();
      messages.resize(span.size);
      stored_rows(step.input, {span.ids, span.size}, &arena, messages.data());
      for (size_t i = 0; i < span.size; ++i) {
        const double weight = step.weighted && span.weights != nullptr ? span.weights[i] : 1.0f;
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

Engine::Scrubbed Engine::scrub_context(size_t context, std::span<const uint32_t> nodes) {
  const ContextStep& step = program_.contexts[context];
  const Rows kept = rows(step.output);
  Scrubbed seen;
  for (uint32_t node : nodes) {
    if (!graph_.nodes[program_.values[step.output].node_type].ids.in_use(node)) continue;
    float row = 0;
    double sum = 0;
    compute_context(step, node, &row, &sum);
    seen.not_finite += std::isfinite(*kept.row(node)) ? 0 : 1;
    seen.difference = std::max(seen.difference, part_of(*kept.row(node), row, std::fabs(row)));
    if (step.kind != ContextKind::kSum) continue;
    seen.difference = std::max(seen.difference, part_of(sums_[context][node], sum, std::fabs(sum)));
  }
  return seen;
}

// Sums that are divided by a context are compared as they are used.
Engine::Scrubbed Engine::scrub_messages(const PropagateStep& step, std::span<const uint32_t> nodes) const {
  const MessageProgram& program = program_.messages[step.message];
  const Graph::EdgeType& edges = graph_.edges[step.edge_type];
  const Table& features = edges.features.table();
  const std::vector<Rows> stored = message_rows(program);
  MessageSums& sums = sums_of(step);
  const size_t width = sums.width(), heads = sums.heads(), channels = sums.channels();
  const bool has_context = step.context != kNoIndex, is_sum = step.aggregate == Aggregate::kSum;
  const auto propagation = static_cast<size_t>(&step - program_.propagations.data());
  std::vector<float> units(width);
  if (is_sum) units = measure_scales(step, sample_targets(step, nullptr), scales_[propagation], nullptr);
  if (is_sum) fill_scales(&units);
  std::vector<float> row(width), context(has_context ? program_.values[step.context].width : 0);
  std::vector<double> reach(width);
  std::vector<Sampled> in;
  Scrubbed seen;
  auto add = [&](size_t target, const Sampled& edge) {
    sums.add(target, 1, {edge.weight, edge.features}, [&](size_t i) -> const float* {
      return stored[i].row(program.sources[i].side == MessageSource::kSource ? edge.source : edge.target);
    });
  };
  for (uint32_t node : nodes) {
    if (!graph_.nodes[program_.values[step.output].node_type].ids.in_use(node)) continue;
    in.clear();
    scan_messages(view_of(graph_, step), step, node, [&](NeighborSpan span) {
      for (size_t i = 0; i < span.size; ++i) {
        in.push_back({span.ids[i], node, span.weights == nullptr ? 1.0f : span.weights[i],
                      span.rows == nullptr ? nullptr : features.row(span.rows[i])});
      }
    });
    auto add_all = [&](size_t) {
      for (const Sampled& edge : in) add(0, edge);
    };
    auto write = [&](size_t) { write_sums(step, &sums, 0, row.data(), has_context ? context.data() : nullptr); };
    sums.sum_up(0, 1, add_all, write);
    // Each message once more, in a sum of its own.
    std::fill(reach.begin(), reach.end(), 0.0);
    for (size_t first = 0; is_sum && first < in.size(); first += kBlockRows) {
      const size_t count = std::min(kBlockRows, in.size() - first);
      sums.open(count);
      for (size_t i = 0; i < count; ++i) add(i, in[first + i]);
      sums.finish();
      for (size_t i = 0; i < count; ++i) {
        for (size_t c = 0; c < width; ++c) {
          const size_t h = c / channels;
          const double factor = program.softmax && has_context
                                    ? std::exp(static_cast<double>(sums.references(i)[h] - context[heads + h]))
                                    : 1.0;
          reach[c] += std::fabs(factor * sums.sum(i)[c]);
        }
      }
    }
    const float* const held = stored_row(step.output, node);
    const float* const held_context = has_context ? stored_row(step.context, node) : nullptr;
    const bool finite = kernels().finite(width, held) &&
                        (!has_context || kernels().finite(program_.values[step.context].width, held_context));
    seen.not_finite += finite ? 0 : 1;
    const double terms = std::max<double>(1, static_cast<double>(in.size()));
    for (size_t c = 0; c < width; ++c) {
      double now = 1, then = 1, scale = std::max(units[c] * std::sqrt(terms), reach[c] / terms);
      if (has_context) {
        const float total = context[c / channels], held_total = held_context[c / channels];
        now = total <= 0 ? 0 : 1 / static_cast<double>(total);
        then = held_total <= 0 ? 0 : 1 / static_cast<double>(held_total);
        const double unit = program.softmax && is_wide(total) ? kWide : 1;
        scale = std::max<double>(units[c], reach[c] * unit * now);
      }
      const double anew = row[c] * now;
      seen.difference = std::max(seen.difference, part_of(held[c] * then, anew, std::max(scale, std::fabs(anew))));
    }
  }
  return seen;
}

}  // namespace livegnn
