// Converts the state of an engine to named arrays and back, bitwise exactly (docs/checkpoint.md).
#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "inference/edges/directed_changes.h"
#include "inference/edges/edge_view.h"
#include "inference/rounding/error_bounds.h"
#include "inference/state.h"

namespace livegnn {
namespace {

std::string named(const char* what, size_t number) { return std::string(what) + "/" + std::to_string(number); }

bool is_stored(const Value& value) { return !value.features && value.derived < 0; }

// The rows of the slots, one after the other; their cells hold the bits of Ts.
template <class T>
std::vector<T> copy_rows(const Rows& rows, const std::vector<uint32_t>& slots, size_t width) {
  static_assert(sizeof(T) == sizeof(float));
  std::vector<T> all;
  all.reserve(slots.size() * width);
  for (uint32_t slot : slots) {
    const T* const row = reinterpret_cast<const T*>(rows.row(slot));
    all.insert(all.end(), row, row + width);
  }
  return all;
}

// A bound that is not a number is as one without end: what it bounds is computed again.
template <class T>
void check_bounds(const std::string& name, std::span<const T> bounds) {
  for (T bound : bounds) {
    if (bound < 0) throw std::runtime_error(name + ": expected bounds of at least 0, got " + std::to_string(bound));
  }
}

}  // namespace

// Counts are values too, and are saved with their maximum.
bool State::is_count(uint32_t value) const {
  for (const PropagateStep& step : rows.program.propagations) {
    if (step.counts == value) return true;
  }
  return false;
}

// A maximum is that of at most all messages, of which one may be a loop that is no edge.
void State::check_counts(size_t propagation) const {
  const PropagateStep& step = rows.program.propagations[propagation];
  const EdgeView store = view_of(rows.graph, step);
  const uint32_t node_type = rows.program.values[step.output].node_type;
  const Rows kept = rows.kept_rows(step.counts);
  for (size_t slot = 0; slot < kept.count; ++slot) {
    const uint32_t node = rows.node_at(step, slot);
    if (node == kNoIndex || !rows.computes(node_type, node) || kept.width == 0) continue;
    const auto* const row = reinterpret_cast<const uint32_t*>(kept.row(slot));
    const uint32_t count = *std::max_element(row, row + kept.width), most = store.degree_in(node) + 1;
    if (count <= most) continue;
    throw std::runtime_error(named("counts", propagation) + ": expected at most " + std::to_string(most) +
                             " messages to the node with the index " + std::to_string(node) + ", got " +
                             std::to_string(count));
  }
}

void State::save(Arrays* to) const {
  const Program& program = rows.program;
  for (size_t direction = 0; rows.keep_degree > 0 && direction < rows.kept_nodes.size(); ++direction) {
    if (rows.has_direction[direction]) to->put(named("residents", direction), rows.kept_nodes_of(direction));
  }
  for (uint32_t value = 0; value < program.values.size(); ++value) {
    const Value& spec = program.values[value];
    if (!is_stored(spec) || is_count(value)) continue;
    to->put(named("rows", value), copy_rows<float>(rows.kept_rows(value), rows.slots(value), spec.width), spec.width);
  }
  for (size_t p = 0; p < program.propagations.size(); ++p) {
    const PropagateStep& step = program.propagations[p];
    if (!is_stored(program.values[step.output])) continue;
    to->put(named("errors", p), saved_errors(rows, rounding, p));
    to->put(named("scales", p), rounding.scales[p].saved());
    if (step.counts == kNoIndex) continue;
    const size_t width = program.values[step.counts].width;
    to->put(named("counts", p), copy_rows<uint32_t>(rows.kept_rows(step.counts), rows.slots(step.counts), width),
            width);
  }
  for (size_t c = 0; c < program.contexts.size(); ++c) {
    if (!is_stored(program.values[program.contexts[c].output])) continue;
    to->put(named("sums", c), degrees.sums[c]);
    to->put(named("sum_errors", c), degrees.errors[c]);
  }
}

std::vector<std::pair<std::string, uint32_t>> State::arrays_by_node() const {
  const Program& program = rows.program;
  std::vector<std::pair<std::string, uint32_t>> names;
  for (uint32_t value = 0; value < program.values.size(); ++value) {
    const Value& spec = program.values[value];
    if (is_stored(spec) && !is_count(value)) names.emplace_back(named("rows", value), spec.node_type);
  }
  for (size_t p = 0; p < program.propagations.size(); ++p) {
    const PropagateStep& step = program.propagations[p];
    const Value& spec = program.values[step.output];
    if (!is_stored(spec)) continue;
    if (rounding.errors[p].width() > 0) names.emplace_back(named("errors", p), spec.node_type);
    if (step.counts != kNoIndex) names.emplace_back(named("counts", p), spec.node_type);
  }
  for (size_t c = 0; c < program.contexts.size(); ++c) {
    const Value& spec = program.values[program.contexts[c].output];
    if (!is_stored(spec) || program.contexts[c].kind != ContextKind::kSum) continue;
    names.emplace_back(named("sums", c), spec.node_type);
    names.emplace_back(named("sum_errors", c), spec.node_type);
  }
  return names;
}

void State::load(const ArrayViews& from) {
  const Program& program = rows.program;
  for (size_t direction = 0; rows.keep_degree > 0 && direction < rows.kept_nodes.size(); ++direction) {
    if (!rows.has_direction[direction]) continue;
    if (!rows.load_kept_nodes(direction, from.at<uint32_t>(named("residents", direction)))) {
      throw std::runtime_error(named("residents", direction) + ": expected the nodes with at least " +
                               std::to_string(rows.keep_degree) + " edges, in growing order, got others");
    }
  }
  auto take_rows = [this](uint32_t value, const float* saved, size_t count, const std::string& name) {
    const size_t width = rows.program.values[value].width;
    const size_t given = width == 0 ? rows.count(value) : count / width;
    if (!rows.load_rows(value, saved, given, width)) {
      throw std::runtime_error(name + ": expected " + std::to_string(rows.count(value)) + " rows, got " +
                               std::to_string(given));
    }
  };
  for (uint32_t value = 0; value < program.values.size(); ++value) {
    const Value& spec = program.values[value];
    if (!is_stored(spec) || is_count(value)) continue;
    const auto saved = from.at<float>(named("rows", value), spec.width);
    take_rows(value, saved.data(), saved.size(), named("rows", value));
  }
  for (size_t p = 0; p < program.propagations.size(); ++p) {
    const PropagateStep& step = program.propagations[p];
    if (!is_stored(program.values[step.output])) continue;
    const size_t bounded = rounding.errors[p].width() == 0 ? 0 : rows.count(step.output);
    const auto bounds = from.of_size<float>(named("errors", p), bounded * saved_error_width(program, step));
    check_bounds(named("errors", p), bounds);
    load_errors(program, p, bounds, &rounding);
    if (!rounding.scales[p].load(from.at<float>(named("scales", p)))) {
      throw std::runtime_error(named("scales", p) + ": expected a positive number for each channel, got others");
    }
    if (step.counts == kNoIndex) continue;
    const auto counts = from.at<uint32_t>(named("counts", p), program.values[step.counts].width);
    take_rows(step.counts, reinterpret_cast<const float*>(counts.data()), counts.size(), named("counts", p));
    check_counts(p);
  }
  for (size_t c = 0; c < program.contexts.size(); ++c) {
    const ContextStep& step = program.contexts[c];
    if (!is_stored(program.values[step.output])) continue;
    const size_t summed = step.kind == ContextKind::kSum ? rows.count(step.output) : 0;
    const auto saved = from.of_size<double>(named("sums", c), summed);
    const auto bounds = from.of_size<double>(named("sum_errors", c), summed);
    check_bounds(named("sum_errors", c), bounds);
    degrees.sums[c].assign(saved.begin(), saved.end());
    degrees.errors[c].assign(bounds.begin(), bounds.end());
  }
}

}  // namespace livegnn
