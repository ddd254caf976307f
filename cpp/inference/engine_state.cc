// What an engine keeps, as arrays by name and back, to the bit (docs/checkpoint.md).
#include <string>
#include <utility>
#include <vector>

#include "inference/directed_changes.h"
#include "inference/engine.h"

namespace livegnn {
namespace {

std::string named(const char* what, size_t number) { return std::string(what) + "/" + std::to_string(number); }

bool is_stored(const Value& value) { return !value.features && value.derived < 0; }

// Rows whose cells hold the bits of Ts, those of the slots one after the other.
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

// Counts are values too, and saved with the maximum that they belong to.
bool Engine::is_count(uint32_t value) const {
  for (const PropagateStep& step : program_.propagations) {
    if (step.counts == value) return true;
  }
  return false;
}

size_t Engine::rows_of(uint32_t value) const {
  if (partial_[value] < 0) return graph_.nodes[program_.values[value].node_type].ids.capacity();
  return residents(direction_of(graph_, program_.propagations[static_cast<size_t>(partial_[value])])).size();
}

void Engine::save(Arrays* to) const {
  for (size_t direction = 0; keep_degree_ > 0 && direction < residents_.size(); ++direction) {
    if (has_direction_[direction]) to->put(named("residents", direction), residents(direction));
  }
  for (uint32_t value = 0; value < program_.values.size(); ++value) {
    const Value& spec = program_.values[value];
    if (!livegnn::is_stored(spec) || is_count(value)) continue;
    to->put(named("rows", value), copy_rows<float>(kept_rows(value), slots(value), spec.width), spec.width);
  }
  for (size_t p = 0; p < program_.propagations.size(); ++p) {
    const PropagateStep& step = program_.propagations[p];
    if (!livegnn::is_stored(program_.values[step.output])) continue;
    to->put(named("errors", p), errors(p));
    to->put(named("scales", p), scales(p));
    if (step.counts == kNoIndex) continue;
    const size_t width = program_.values[step.counts].width;
    to->put(named("counts", p), copy_rows<uint32_t>(kept_rows(step.counts), slots(step.counts), width), width);
  }
  for (size_t c = 0; c < program_.contexts.size(); ++c) {
    if (!livegnn::is_stored(program_.values[program_.contexts[c].output])) continue;
    to->put(named("sums", c), sums_[c]);
    to->put(named("sum_errors", c), sum_errors_[c]);
  }
}

void Engine::load(const ArrayViews& from) {
  for (size_t direction = 0; keep_degree_ > 0 && direction < residents_.size(); ++direction) {
    if (!has_direction_[direction]) continue;
    if (!load_residents(direction, from.at<uint32_t>(named("residents", direction)))) {
      throw std::runtime_error("residents that are not nodes of the graph");
    }
  }
  auto load_rows = [this](uint32_t value, const float* rows, size_t count, const char* what) {
    const size_t width = program_.values[value].width;
    if (!load(value, rows, width == 0 ? rows_of(value) : count / width, width)) {
      throw std::runtime_error(std::string(what) + " whose shape does not fit the graph");
    }
  };
  for (uint32_t value = 0; value < program_.values.size(); ++value) {
    const Value& spec = program_.values[value];
    if (!livegnn::is_stored(spec) || is_count(value)) continue;
    const auto rows = from.at<float>(named("rows", value), spec.width);
    load_rows(value, rows.data(), rows.size(), "rows");
  }
  for (size_t p = 0; p < program_.propagations.size(); ++p) {
    const PropagateStep& step = program_.propagations[p];
    if (!livegnn::is_stored(program_.values[step.output])) continue;
    const size_t rows = errors_[p].width() == 0 ? 0 : rows_of(step.output);
    load_errors(p, from.of_size<float>(named("errors", p), rows * saved_error_width(p)));
    if (!load_scales(p, from.at<float>(named("scales", p)))) {
      throw std::runtime_error("scales that are not one positive number for each channel");
    }
    if (step.counts == kNoIndex) continue;
    const auto counts = from.at<uint32_t>(named("counts", p), program_.values[step.counts].width);
    load_rows(step.counts, reinterpret_cast<const float*>(counts.data()), counts.size(), "counts");
  }
  for (size_t c = 0; c < program_.contexts.size(); ++c) {
    const ContextStep& step = program_.contexts[c];
    if (!livegnn::is_stored(program_.values[step.output])) continue;
    const size_t rows = step.kind == ContextKind::kSum ? rows_of(step.output) : 0;
    const auto sums = from.of_size<double>(named("sums", c), rows);
    const auto bounds = from.of_size<double>(named("sum_errors", c), rows);
    sums_[c].assign(sums.begin(), sums.end());
    sum_errors_[c].assign(bounds.begin(), bounds.end());
  }
}

}  // namespace livegnn
