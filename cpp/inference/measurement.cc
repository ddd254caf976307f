#include "inference/measurement.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "hashing/mix_hash.h"
#include "inference/directed_changes.h"
#include "inference/message_sums.h"
#include "inference/stored_rows.h"

namespace livegnn {
namespace {

constexpr size_t kTried = 512, kTargets = 128, kEdgesOfTarget = 2;
constexpr size_t kMostScanned = size_t{1} << 21;  // in-edges: a few milliseconds for hubs
constexpr size_t kMostSampled = size_t{1} << 13;  // in-edges, when looking for a channel that has had messages

// The median of the magnitudes that are neither 0 nor infinite; 0 if there are none.
float median(std::vector<float>* magnitudes) {
  std::erase_if(*magnitudes, [](float x) { return !(x > 0) || !std::isfinite(x); });
  if (magnitudes->empty()) return 0;
  const auto middle = magnitudes->begin() + static_cast<std::ptrdiff_t>(magnitudes->size() / 2);
  std::nth_element(magnitudes->begin(), middle, magnitudes->end());
  return std::clamp(*middle, kLeastScale, kMostScale);
}

}  // namespace

Measurement::Measurement(const State& state, const PropagateStep& step, const Preparation* prepared)
    : state_(state), step_(step), prepared_(prepared) {
  const uint32_t node_type = state.program.values[step.output].node_type;
  size_t capacity = state.graph.nodes[node_type].ids.capacity();
  if (prepared != nullptr) {
    const NodeDelta& nodes = prepared->delta->nodes[node_type];
    capacity = nodes.capacity;
    removed_.insert(nodes.removed.begin(), nodes.removed.end());
    for (size_t i = 0; i < nodes.added.size(); ++i) {
      if (nodes.added_ids[i] != kNoId) added_.insert(nodes.added[i]);
    }
  }
  const EdgeView store = view_of(state.graph, step);
  const size_t tried = std::min(capacity, kTried);
  std::vector<Target> found;
  for (size_t i = 0; i < tried; ++i) {
    const size_t first = i * capacity / tried, end = (i + 1) * capacity / tried;
    const auto node = static_cast<uint32_t>(first + MixHash{}(i) % (end - first));
    if (!has(node)) continue;
    int64_t degree = store.degree_in(node);
    for (const DirectedChange& change : changes(node)) degree += int{change.has} - int{change.had};
    if (degree > 0) found.push_back({node, degree});
  }
  const size_t chosen = std::min(found.size(), kTargets);
  for (size_t i = 0; i < chosen; ++i) targets_.push_back(found[i * found.size() / chosen]);
}

bool Measurement::has(uint32_t node) const {
  if (added_.contains(node)) return true;
  const IdMap& ids = state_.graph.nodes[state_.program.values[step_.output].node_type].ids;
  return node < ids.capacity() && ids.in_use(node) && !removed_.contains(node);
}

std::span<const DirectedChange> Measurement::changes(uint32_t target) const {
  if (prepared_ == nullptr) return {};
  return changes_of(prepared_->edges[direction_of(state_.graph, step_)], target);
}

// All in-edges of each target, but at most `each`.
std::vector<Measurement::Edge> Measurement::sample_edges(size_t each) const {
  std::vector<Edge> sample;
  size_t scanned = 0;
  for (const Target& target : targets_) {
    if (scanned >= kMostScanned || sample.size() >= kMostSampled) break;
    append_edges(target, std::min(each, kMostSampled - sample.size()), &scanned, &sample);
  }
  return sample;
}

void Measurement::append_edges(const Target& target, size_t left, size_t* scanned, std::vector<Edge>* sample) const {
  const Table& features = state_.graph.edges[step_.edge_type].features.table();
  const uint32_t node = target.node;
  const std::span<const DirectedChange> changed = changes(node);
  scan_messages(view_of(state_.graph, step_), step_, node, [&](NeighborSpan span) {
    *scanned += span.size;
    for (size_t j = 0; j < span.size && left > 0; ++j) {
      const DirectedChange* change = changed.empty() ? nullptr : change_from(changed, span.ids[j], key_at(span, j));
      if (change != nullptr && !change->has) continue;
      --left;
      if (change != nullptr) {
        sample->push_back({span.ids[j], node, change->new_weight, change->new_features});
      } else {
        sample->push_back({span.ids[j], node, span.weights == nullptr ? 1.0f : span.weights[j],
                           span.rows == nullptr ? nullptr : features.row(span.rows[j])});
      }
    }
  });
  for (const DirectedChange& change : changed) {
    const bool is_loop = change.source == node, goes = is_loop ? !step_.skip_loops : !step_.only_loops;
    if (left == 0 || change.had || !change.has || !goes) continue;
    --left;
    sample->push_back({change.source, node, change.new_weight, change.new_features});
  }
}

void Measurement::rows_of(uint32_t value, std::span<const uint32_t> nodes, RowArena* arena, const float** out) const {
  if (prepared_ == nullptr) return stored_rows(state_, value, nodes, arena, out);
  new_rows(state_, *prepared_, value, nodes, arena, out);
}

void Measurement::compute_messages(std::span<const Edge> edges, size_t stride, float* out) const {
  const size_t width = state_.program.values[step_.output].width;
  static thread_local RowArena arena;
  arena.clear();
  std::vector<uint32_t> sources, targets;
  for (const Edge& edge : edges) {
    sources.push_back(edge.source);
    targets.push_back(edge.target);
  }
  if (step_.message == kNoIndex) {
    std::vector<const float*> rows(edges.size());
    rows_of(step_.input, sources, &arena, rows.data());
    for (size_t i = 0; i < edges.size(); ++i, out += stride) {
      for (size_t c = 0; c < width; ++c) out[c] = (step_.weighted ? edges[i].weight : 1.0f) * rows[i][c];
    }
    return;
  }
  const MessageProgram& program = state_.program.messages[step_.message];
  std::vector<std::vector<const float*>> rows(program.sources.size());
  for (size_t s = 0; s < rows.size(); ++s) {
    const MessageSource& source = program.sources[s];
    if (source.side != MessageSource::kSource && source.side != MessageSource::kTarget) continue;
    rows[s].resize(edges.size());
    rows_of(source.value, source.side == MessageSource::kSource ? sources : targets, &arena, rows[s].data());
  }
  const auto p = static_cast<size_t>(&step_ - state_.program.propagations.data());
  MessageSums& sums = sums_of(state_, step_, state_.units[p].inverses.data());
  const size_t channels = sums.channels();
  for (size_t first = 0; first < edges.size(); first += kBlockRows) {
    const size_t count = std::min(kBlockRows, edges.size() - first);
    sums.open(count);  // each with a target of its own
    for (size_t i = 0; i < count; ++i) {
      const Edge& edge = edges[first + i];
      sums.add(i, 1, {edge.weight, edge.features}, [&](size_t s) { return rows[s][first + i]; });
    }
    sums.finish();
    for (size_t i = 0; i < count; ++i, out += stride) {
      for (size_t c = 0; c < width; ++c) {
        const float coefficient = step_.context == kNoIndex ? 1.0f : sums.context(i)[c / channels];
        out[c] = coefficient == 0 ? 0 : sums.sum(i)[c] / coefficient;
      }
    }
  }
}

std::vector<float> Measurement::typical() const { return typical(kEdgesOfTarget); }

std::vector<float> Measurement::typical(size_t each) const {
  const size_t width = state_.program.values[step_.output].width, stride = row_stride(width);
  const std::vector<Edge> edges = sample_edges(each);
  std::vector<float> messages(edges.size() * stride), magnitudes, scales;
  compute_messages(edges, stride, messages.data());
  for (size_t c = 0; c < width; ++c) {
    magnitudes.clear();
    for (size_t i = 0; i < edges.size(); ++i) magnitudes.push_back(std::fabs(messages[i * stride + c]));
    scales.push_back(median(&magnitudes));
  }
  return scales;
}

std::vector<float> Measurement::scales(std::span<const float> before) const {
  std::vector<float> scales = typical(), more;
  for (size_t c = 0; c < scales.size(); ++c) {
    if (before[c] == 0 || scales[c] != 0) continue;
    if (more.empty()) more = typical(kMostSampled);
    scales[c] = more[c];
  }
  return scales;
}

float Measurement::mean(std::span<const float> scales) const {
  if (!step_.averaged) return 0;
  static thread_local RowArena arena;
  arena.clear();
  std::vector<uint32_t> nodes;
  for (const Target& target : targets_) nodes.push_back(target.node);
  std::vector<const float*> rows(nodes.size());
  rows_of(step_.output, nodes, &arena, rows.data());
  std::vector<float> magnitudes;
  float mean = 1;
  for (size_t c = 0; c < scales.size(); ++c) {
    if (scales[c] == 0) continue;
    magnitudes.clear();
    for (size_t i = 0; i < rows.size(); ++i) {
      magnitudes.push_back(std::fabs(rows[i][c]) / scales[c] / static_cast<float>(targets_[i].degree));
    }
    mean = std::min(mean, median(&magnitudes));
  }
  return mean;
}

}  // namespace livegnn
