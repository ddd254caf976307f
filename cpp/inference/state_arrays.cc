// Converts the state of an engine to named arrays and back, bitwise exactly (docs/checkpoint.md).
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "inference/directed_changes.h"
#include "inference/error_bounds.h"
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

}  // namespace

// Counts are values too, and are saved with their maximum.
bool State::is_count(uint32_t value) const {
  for (const PropagateStep& step : program.propagations) {
    if (step.counts == value) return true;
  }
  return false;
}

size_t State::rows_of(uint32_t value) const {
  if (partial[value] < 0) return graph.nodes[program.values[value].node_type].ids.capacity();
  return residents_of(direction_of(graph, program.propagations[static_cast<size_t>(partial[value])])).size();
}

bool State::load_rows(uint32_t value, const float* from, size_t count, size_t width) {
  const Value& spec = program.values[value];
  const size_t expected = partial[value] >= 0
                              ? residents[direction_of(graph, program.propagations[partial[value]])].size()
                              : graph.nodes[spec.node_type].ids.capacity();
  if (width != spec.width || count != expected) return false;
  slabs[spec.slab].resize(count);
  const Rows out = kept_rows(value);
  for (size_t i = 0; i < count; ++i) std::memcpy(out.row(i), from + i * width, width * sizeof(float));
  return true;
}

bool State::load_residents(size_t direction, std::span<const uint32_t> nodes) {
  const IdMap& ids = graph.nodes[receiver_type(graph, direction)].ids;
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i] >= ids.capacity() || !ids.in_use(nodes[i]) || (i > 0 && nodes[i] <= nodes[i - 1])) return false;
  }
  residents[direction].assign(ids, nodes);
  return true;
}

void State::save(Arrays* to) const {
  for (size_t direction = 0; keep_degree > 0 && direction < residents.size(); ++direction) {
    if (has_direction[direction]) to->put(named("residents", direction), residents_of(direction));
  }
  for (uint32_t value = 0; value < program.values.size(); ++value) {
    const Value& spec = program.values[value];
    if (!livegnn::is_stored(spec) || is_count(value)) continue;
    to->put(named("rows", value), copy_rows<float>(kept_rows(value), slots(value), spec.width), spec.width);
  }
  for (size_t p = 0; p < program.propagations.size(); ++p) {
    const PropagateStep& step = program.propagations[p];
    if (!livegnn::is_stored(program.values[step.output])) continue;
    to->put(named("errors", p), saved_errors(*this, p));
    to->put(named("scales", p), units[p].saved());
    if (step.counts == kNoIndex) continue;
    const size_t width = program.values[step.counts].width;
    to->put(named("counts", p), copy_rows<uint32_t>(kept_rows(step.counts), slots(step.counts), width), width);
  }
  for (size_t c = 0; c < program.contexts.size(); ++c) {
    if (!livegnn::is_stored(program.values[program.contexts[c].output])) continue;
    to->put(named("sums", c), sums[c]);
    to->put(named("sum_errors", c), sum_errors[c]);
  }
}

void State::load(const ArrayViews& from) {
  for (size_t direction = 0; keep_degree > 0 && direction < residents.size(); ++direction) {
    if (!has_direction[direction]) continue;
    if (!load_residents(direction, from.at<uint32_t>(named("residents", direction)))) {
      throw std::runtime_error("residents that are not nodes of the graph");
    }
  }
  auto take_rows = [this](uint32_t value, const float* rows, size_t count, const char* what) {
    const size_t width = program.values[value].width;
    if (!load_rows(value, rows, width == 0 ? rows_of(value) : count / width, width)) {
      throw std::runtime_error(std::string(what) + " whose shape does not fit the graph");
    }
  };
  for (uint32_t value = 0; value < program.values.size(); ++value) {
    const Value& spec = program.values[value];
    if (!livegnn::is_stored(spec) || is_count(value)) continue;
    const auto rows = from.at<float>(named("rows", value), spec.width);
    take_rows(value, rows.data(), rows.size(), "rows");
  }
  for (size_t p = 0; p < program.propagations.size(); ++p) {
    const PropagateStep& step = program.propagations[p];
    if (!livegnn::is_stored(program.values[step.output])) continue;
    const size_t rows = errors[p].width() == 0 ? 0 : rows_of(step.output);
    load_errors(this, p, from.of_size<float>(named("errors", p), rows * saved_error_width(program, step)));
    if (!units[p].load(from.at<float>(named("scales", p)))) {
      throw std::runtime_error("scales that are not one positive number for each channel");
    }
    if (step.counts == kNoIndex) continue;
    const auto counts = from.at<uint32_t>(named("counts", p), program.values[step.counts].width);
    take_rows(step.counts, reinterpret_cast<const float*>(counts.data()), counts.size(), "counts");
  }
  for (size_t c = 0; c < program.contexts.size(); ++c) {
    const ContextStep& step = program.contexts[c];
    if (!livegnn::is_stored(program.values[step.output])) continue;
    const size_t rows = step.kind == ContextKind::kSum ? rows_of(step.output) : 0;
    const auto saved = from.of_size<double>(named("sums", c), rows);
    const auto bounds = from.of_size<double>(named("sum_errors", c), rows);
    sums[c].assign(saved.begin(), saved.end());
    sum_errors[c].assign(bounds.begin(), bounds.end());
  }
}

}  // namespace livegnn
