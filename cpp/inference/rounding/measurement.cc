#include "inference/rounding/measurement.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>

#include "hashing/mix_hash.h"
#include "inference/edges/directed_changes.h"
#include "inference/evaluation/message_sums.h"
#include "inference/rows/stored_rows.h"

namespace livegnn {
namespace {

constexpr size_t kTried = 512, kTargets = 64, kEdgesOfTarget = 2;
constexpr size_t kMostScanned = size_t{1} << 21;  // in-edges: a few milliseconds for hubs
constexpr size_t kMostSampled = size_t{1} << 13;  // in-edges, when looking for a channel that has had messages
constexpr float kOffset = 8;                      // times the difference of two messages
constexpr float kInfinite = std::numeric_limits<float>::infinity();

// The median of the magnitudes that are neither 0 nor infinite; 0 if there are none.
float median(std::vector<float>* magnitudes) {
  std::erase_if(*magnitudes, [](float x) { return !(x > 0) || !std::isfinite(x); });
  if (magnitudes->empty()) return 0;
  const auto middle = magnitudes->begin() + static_cast<std::ptrdiff_t>(magnitudes->size() / 2);
  std::nth_element(magnitudes->begin(), middle, magnitudes->end());
  return std::clamp(*middle, kLeastScale, kMostScale);
}

// Brings rows that lie all over a table into the cache together.
void fetch_all(const std::vector<const float*>& rows, size_t width) {
  if (width == 0) return;
  for (const float* row : rows) touch(row);
  for (const float* row : rows) {
    for (size_t c = 16; c < width; c += 16) prefetch(row + c);
  }
}

// Of the magnitudes of a channel, those that are neither 0 nor infinite, and how many of these are at most `low`, and
// less than `high`.
struct Counts {
  int32_t all = 0, low = 0, high = 0;

  // Their median, as `median` picks it, is the one with this many before it.
  bool is_above_low() const { return low <= all / 2; }
  bool is_below_high() const { return high > all / 2; }
};

// Counts for the channels from `first` on; `row(i)(c)` is a magnitude. Nothing depends on the data but the counts, so
// that whole vectors are compared at once.
template <size_t kChannels, class Row>
void count_strip(size_t rows, size_t first, const float* low, const float* high, const Row& row, Counts* out) {
  int32_t all[kChannels] = {}, at_most[kChannels] = {}, less[kChannels] = {};
  for (size_t i = 0; i < rows; ++i) {
    const auto magnitude = row(i);
    for (size_t c = 0; c < kChannels; ++c) {
      const float x = magnitude(first + c);
      const int32_t counts = static_cast<int32_t>(x > 0) & static_cast<int32_t>(x < kInfinite);
      all[c] += counts;
      at_most[c] += counts & static_cast<int32_t>(x <= low[first + c]);
      less[c] += counts & static_cast<int32_t>(x < high[first + c]);
    }
  }
  for (size_t c = 0; c < kChannels; ++c) out[first + c] = {all[c], at_most[c], less[c]};
}

template <class Row>
std::vector<Counts> count_all(size_t rows, const std::vector<float>& low, const std::vector<float>& high,
                              const Row& row) {
  constexpr size_t kStrip = 16;
  std::vector<Counts> counts(low.size());
  size_t c = 0;
  for (; c + kStrip <= low.size(); c += kStrip) {
    count_strip<kStrip>(rows, c, low.data(), high.data(), row, counts.data());
  }
  for (; c < low.size(); ++c) count_strip<1>(rows, c, low.data(), high.data(), row, counts.data());
  return counts;
}

}  // namespace

Measurement::Measurement(const RowState& state, const RoundingState& rounding, const PropagateStep& step,
                         const BatchChanges* changes)
    : state_(state), rounding_(rounding), step_(step), batch_(changes) {
  const uint32_t node_type = state.program.values[step.output].node_type;
  size_t capacity = state.graph.nodes[node_type].ids.capacity();
  if (changes != nullptr) {
    const NodeDelta& nodes = changes->delta->nodes[node_type];
    capacity = nodes.capacity;
    removed_.insert(nodes.removed.begin(), nodes.removed.end());
    for (size_t i = 0; i < nodes.added.size(); ++i) {
      if (nodes.added_ids[i] != kNoId) added_.insert(nodes.added[i]);
    }
    const std::vector<DirectedChange>& edges = changes->edges[direction_of(state.graph, step)];
    if (!edges.empty()) edges_ = &edges;
  }
  const EdgeView store = view_of(state.graph, step);
  // Every fourth part of the nodes has one that is tried, then each of the parts between, until there are enough: most
  // graphs need no more than the first.
  std::vector<Target> found;
  for (const size_t first : {0, 2, 1, 3}) {
    if (found.size() >= kTargets) break;
    append_targets(capacity, first, store, &found);
  }
  const size_t chosen = std::min(found.size(), kTargets);
  for (size_t i = 0; i < chosen; ++i) {
    targets_.push_back(found[i * found.size() / chosen]);
    store.prefetch_in_leaf(targets_.back().node);
  }
  sample(kEdgesOfTarget, &few_);
}

// Tries one node of every fourth part of all nodes, from the part `first` on.
void Measurement::append_targets(size_t capacity, size_t first, const EdgeView& store,
                                 std::vector<Target>* found) const {
  constexpr size_t kStep = 4;
  std::array<uint32_t, kTried / kStep> nodes;
  size_t count = 0;
  for (size_t i = first; i < std::min(capacity, kTried); i += kStep) {
    const auto cut = [&](size_t part) { return capacity < kTried ? part : part * capacity / kTried; };
    const size_t begin = cut(i), end = cut(i + 1);
    nodes[count++] = static_cast<uint32_t>(begin + MixHash{}(i) % (end - begin));
    store.prefetch_in(nodes[count - 1]);
  }
  for (uint32_t node : std::span(nodes).first(count)) {
    if (!has(node)) continue;
    int64_t degree = store.degree_in(node);
    for (const DirectedChange& change : changes(node)) degree += int{change.has} - int{change.had};
    if (degree > 0) found->push_back({node, degree});
  }
}

bool Measurement::has(uint32_t node) const {
  if (!added_.empty() && added_.contains(node)) return true;
  const IdMap& ids = state_.graph.nodes[state_.program.values[step_.output].node_type].ids;
  return node < ids.capacity() && ids.in_use(node) && (removed_.empty() || !removed_.contains(node));
}

std::span<const DirectedChange> Measurement::changes(uint32_t target) const {
  return edges_ == nullptr ? std::span<const DirectedChange>() : changes_of(*edges_, target);
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
  if (batch_ == nullptr) return stored_rows(state_, value, nodes, arena, out);
  new_rows(state_, *batch_, value, nodes, arena, out);
}

void Measurement::sample(size_t each, Messages* messages) const { compute_messages(sample_edges(each), messages); }

void Measurement::compute_messages(std::span<const Edge> edges, Messages* messages) const {
  std::vector<uint32_t> sources, targets;
  sources.reserve(edges.size());
  targets.reserve(edges.size());
  for (const Edge& edge : edges) {
    sources.push_back(edge.source);
    targets.push_back(edge.target);
  }
  messages->rows.resize(edges.size());
  messages->weights.assign(edges.size(), 1.0f);
  if (step_.message == kNoIndex) {
    rows_of(step_.input, sources, &messages->arena, messages->rows.data());
    fetch_all(messages->rows, state_.program.values[step_.input].width);
    for (size_t i = 0; step_.weighted && i < edges.size(); ++i) messages->weights[i] = edges[i].weight;
    return;
  }
  const MessageProgram& program = state_.program.messages[step_.message];
  std::vector<std::vector<const float*>> rows(program.sources.size());
  for (size_t s = 0; s < rows.size(); ++s) {
    const MessageSource& source = program.sources[s];
    if (source.side != MessageSource::kSource && source.side != MessageSource::kTarget) continue;
    rows[s].resize(edges.size());
    const bool sends = source.side == MessageSource::kSource;
    rows_of(source.value, sends ? sources : targets, &messages->arena, rows[s].data());
  }
  const size_t width = state_.program.values[step_.output].width, stride = row_stride(width);
  messages->computed.resize(edges.size() * stride);
  float* out = messages->computed.data();
  for (size_t i = 0; i < edges.size(); ++i) messages->rows[i] = out + i * stride;
  const auto p = static_cast<size_t>(&step_ - state_.program.propagations.data());
  MessageSums& sums = sums_of(state_.program, state_.serial, step_, rounding_.scales[p].inverses.data());
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

float Measurement::Messages::typical(size_t channel) const {
  std::vector<float> magnitudes(rows.size());
  for (size_t i = 0; i < rows.size(); ++i) magnitudes[i] = magnitude(i, channel);
  return median(&magnitudes);
}

std::vector<float> Measurement::typical() const {
  std::vector<float> scales(state_.program.values[step_.output].width);
  for (size_t c = 0; c < scales.size(); ++c) scales[c] = few_.typical(c);
  return scales;
}

std::vector<float> Measurement::scales(std::span<const float> before) const {
  std::vector<float> scales = typical();
  std::optional<Messages> more;
  for (size_t c = 0; c < scales.size(); ++c) {
    if (before[c] == 0 || scales[c] != 0) continue;
    if (!more) sample(kMostSampled, &more.emplace());
    scales[c] = more->typical(c);
  }
  return scales;
}

float Measurement::mean(std::span<const float> scales) const {
  if (!step_.averaged) return 0;
  const Means means = means_of_targets();
  std::vector<float> magnitudes;
  float mean = 1;
  for (size_t c = 0; c < scales.size(); ++c) {
    if (scales[c] == 0) continue;
    magnitudes.clear();
    for (size_t i = 0; i < targets_.size(); ++i) magnitudes.push_back(means.magnitude(i, c, scales[c]));
    mean = std::min(mean, median(&magnitudes));
  }
  return mean;
}

bool Measurement::is_offset() const {
  const size_t count = few_.rows.size(), width = state_.program.values[step_.output].width;
  const std::vector<float> none(width), most(width, kOffset);
  // Half the sample away is a message of another target, mostly. Equal ones say nothing: they count as infinite.
  // Weights are left out, as they are by who reads a weighted mean.
  const std::vector<Counts> counts = count_all(count, none, most, [&](size_t i) {
    return [row = few_.rows[i], other = few_.rows[(i + count / 2) % count]](size_t c) {
      return std::fabs(row[c]) / std::fabs(row[c] - other[c]);
    };
  });
  return std::any_of(counts.begin(), counts.end(),
                     [](const Counts& one) { return one.all > 0 && !one.is_below_high(); });
}

bool Measurement::confirms(std::span<const float> scales, float mean, float factor) const {
  return confirms_scales(scales, factor) && confirms_mean(scales, mean, factor);
}

bool Measurement::confirms_scales(std::span<const float> scales, float factor) const {
  std::vector<float> low(scales.begin(), scales.end()), high = low;
  for (float& scale : low) scale /= factor;
  for (float& scale : high) scale *= factor;
  const std::vector<Counts> counts = count_all(few_.rows.size(), low, high, [&](size_t i) {
    return [row = few_.rows[i], weight = few_.weights[i]](size_t c) { return std::fabs(weight * row[c]); };
  });
  for (size_t c = 0; c < scales.size(); ++c) {
    if (scales[c] == 0 ? counts[c].all > 0
                       : counts[c].all == 0 || !counts[c].is_above_low() || !counts[c].is_below_high()) {
      return false;
    }
  }
  return true;
}

// The smallest median is below a bound if any is, and above if all are.
bool Measurement::confirms_mean(std::span<const float> scales, float mean, float factor) const {
  if (!step_.averaged) return mean == 0;
  const std::vector<float> low(scales.size(), mean / factor), high(scales.size(), mean * factor);
  const Means means = means_of_targets();
  const std::vector<Counts> counts = count_all(targets_.size(), low, high, [&](size_t i) {
    return [row = means.rows[i], degree = means.degrees[i], from = scales.data()](size_t c) {
      return std::fabs(row[c]) / from[c] / degree;
    };
  });
  bool some_none = false, all_above = 1 > mean / factor, some_below = 1 < mean * factor;
  for (size_t c = 0; c < scales.size(); ++c) {
    if (scales[c] == 0) continue;
    some_none |= counts[c].all == 0;
    all_above &= counts[c].is_above_low();
    some_below |= counts[c].is_below_high();
  }
  if (some_none || mean == 0) return some_none && mean == 0;
  return all_above && some_below;
}

Measurement::Means Measurement::means_of_targets() const {
  Means means;
  std::vector<uint32_t> nodes;
  for (const Target& target : targets_) {
    nodes.push_back(target.node);
    means.degrees.push_back(static_cast<float>(target.degree));
  }
  means.rows.resize(nodes.size());
  rows_of(step_.output, nodes, &means.arena, means.rows.data());
  fetch_all(means.rows, state_.program.values[step_.output].width);
  return means;
}

}  // namespace livegnn
