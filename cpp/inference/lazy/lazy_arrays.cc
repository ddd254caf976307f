// Converts what a lazy engine has recorded since its base to named arrays and back, bitwise exactly
// (docs/checkpoint.md).
#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "inference/edges/directed_changes.h"
#include "inference/lazy/lazy.h"
#include "program/kernels.h"

namespace livegnn {
namespace {

constexpr const char* kEager = "lazy/eager";
constexpr size_t kEdgeNumbers = 4;  // source, target, key, and whether it was and is there
constexpr size_t kEdgeWeights = 2;  // the old and the new one
constexpr uint32_t kHad = 1, kHas = 2;

std::string numbered(const char* what, size_t number) { return std::string(what) + "/" + std::to_string(number); }

[[noreturn]] void refuse(const std::string& name, const std::string& expected, const std::string& got) {
  throw std::runtime_error(name + ": expected " + expected + ", got " + got);
}

bool is_before(const DirectedChange& a, const DirectedChange& b) {
  return a.target != b.target ? a.target < b.target : a.order() < b.order();
}

}  // namespace

std::optional<size_t> Lazy::saved_eager(const ArrayViews& from) {
  if (!from.has(kEager)) return std::nullopt;
  return from.of_size<uint32_t>(kEager, 1)[0];
}

void Lazy::save(Arrays* to) const {
  const bool recorded =
      std::any_of(edges_.begin(), edges_.end(), [](const EdgeRecord& edges) { return edges.size() > 0; });
  if (covers_nothing() && !recorded) return;
  to->put(kEager, std::vector<uint32_t>{static_cast<uint32_t>(eager_)});
  for (size_t s = 0; s < lazy_steps_.size(); ++s) {
    const LazyStep& lazy_step = lazy_steps_[s];
    std::vector<uint32_t> nodes = lazy_step.overlay.nodes();
    std::sort(nodes.begin(), nodes.end());
    if (lazy_step.kind == LazyStep::kSaved) {
      const size_t width = state_.program.values[lazy_step.columns[0].value].width;
      std::vector<float> rows;
      rows.reserve(nodes.size() * width);
      for (uint32_t node : nodes) {
        const float* const row = lazy_step.overlay.row(node);
        rows.insert(rows.end(), row, row + width);
      }
      to->put(numbered("lazy/covered/rows", s), std::move(rows), width);
    }
    to->put(numbered("lazy/covered", s), std::move(nodes));
  }
  for (size_t direction = 0; direction < edges_.size(); ++direction) {
    if (!recorded_[direction]) continue;
    std::vector<uint32_t> numbers;
    std::vector<float> weights;
    for (const DirectedChange& change : edges_[direction].sorted()) {
      numbers.insert(numbers.end(),
                     {change.source, change.target, change.key, (change.had ? kHad : 0) | (change.has ? kHas : 0)});
      weights.insert(weights.end(), {change.old_weight, change.new_weight});
    }
    to->put(numbered("lazy/edges", direction), std::move(numbers), kEdgeNumbers);
    to->put(numbered("lazy/edges/weights", direction), std::move(weights), kEdgeWeights);
  }
}

void Lazy::load_covered(size_t s, const ArrayViews& from) {
  LazyStep& lazy_step = lazy_steps_[s];
  const std::string name = numbered("lazy/covered", s);
  const std::span<const uint32_t> nodes = from.at<uint32_t>(name);
  const IdMap& ids = state_.graph.nodes[lazy_step.node_type].ids;
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (!ids.in_use(nodes[i])) refuse(name, "indices of nodes", std::to_string(nodes[i]));
    if (i > 0 && nodes[i] <= nodes[i - 1]) refuse(name, "nodes in growing order", std::to_string(nodes[i]));
  }
  const bool saved = lazy_step.kind == LazyStep::kSaved;
  lazy_step.overlay.reserve(ids.capacity(), nodes.size(), saved ? nodes.size() : 0);
  lazy_step.overlay.resize(ids.capacity());
  for (uint32_t node : nodes) lazy_step.overlay.invalidate(node);
  if (!saved) return;
  const LazyStep::Column& column = lazy_step.columns[0];
  const size_t width = state_.program.values[column.value].width;
  const auto rows = from.of_size<float>(numbered("lazy/covered/rows", s), nodes.size() * width, width);
  for (size_t i = 0; i < nodes.size(); ++i) {
    lazy_step.overlay.place(nodes[i]);
    float* const row = lazy_step.overlay.row(nodes[i]);
    std::copy_n(rows.data() + i * width, width, row);
    kernels().subtract(row_stride(width), state_.stored_row(column.value, nodes[i]), row, row + column.difference);
  }
  if (state_.program.values[column.value].features) saved_features_ += nodes.size();
}

void Lazy::load_edges(size_t direction, const ArrayViews& from) {
  const std::string name = numbered("lazy/edges", direction), weights_name = numbered("lazy/edges/weights", direction);
  const auto numbers = from.at<uint32_t>(name, kEdgeNumbers);
  const size_t count = numbers.size() / kEdgeNumbers;
  const auto weights = from.of_size<float>(weights_name, count * kEdgeWeights, kEdgeWeights);
  const size_t types = state_.graph.edges.size();
  const EdgeTypeSpec& spec = state_.graph.edges[direction % types].spec;
  const IdMap& targets = state_.graph.nodes[receiver_type(state_.graph, direction)].ids;
  const IdMap& sources = state_.graph.nodes[direction < types ? spec.source_type : spec.target_type].ids;
  const EdgeView store = view_at(state_.graph, direction);
  std::vector<DirectedChange> changes;
  for (size_t i = 0; i < count; ++i) {
    const uint32_t* const at = numbers.data() + i * kEdgeNumbers;
    const float* const weight = weights.data() + i * kEdgeWeights;
    const DirectedChange change{at[0], at[1],   weight[0], weight[1], (at[3] & kHad) != 0, (at[3] & kHas) != 0,
                                at[2], nullptr, nullptr};
    if (!sources.in_use(change.source) || !targets.in_use(change.target) || at[3] > (kHad | kHas)) {
      refuse(name, "changes of edges between nodes", "another at position " + std::to_string(i));
    }
    if (!changes.empty() && !is_before(changes.back(), change)) {
      refuse(name, "changes in the order of targets and sources", "another order at position " + std::to_string(i));
    }
    changes.push_back(change);
  }
  // What is there now, the graph says.
  for (size_t i = 0; i < count;) {
    const std::span<const DirectedChange> of_target = changes_of(changes, changes[i].target);
    size_t found = 0, expected = 0;
    for (const DirectedChange& change : of_target) expected += change.has ? 1 : 0;
    store.scan_in(changes[i].target, [&](NeighborSpan span) {
      for (size_t j = 0; j < span.size; ++j) {
        const DirectedChange* const change = change_from(of_target, span.ids[j], key_at(span, j));
        if (change == nullptr) continue;
        if (!change->has) refuse(name, "edges that the graph lacks", "one that it has");
        const float weight = span.weights == nullptr ? 1.0f : span.weights[j];
        if (weight != change->new_weight)
          refuse(weights_name, std::to_string(weight), std::to_string(change->new_weight));
        ++found;
      }
    });
    if (found != expected) refuse(name, "edges that the graph has", "one that it lacks");
    i += of_target.size();
  }
  edges_[direction].prepare(changes);
  edges_[direction].merge();
  edges_[direction].forget();
}

void Lazy::load(const ArrayViews& from) {
  clear();
  try {
    for (size_t s = 0; s < lazy_steps_.size(); ++s) load_covered(s, from);
    for (size_t direction = 0; direction < edges_.size(); ++direction) {
      if (recorded_[direction]) load_edges(direction, from);
    }
  } catch (...) {
    clear();
    throw;
  }
  if (output_ != kNoIndex) pending_.store(lazy_steps_[output_].overlay.num_stale(), std::memory_order_relaxed);
}

}  // namespace livegnn
