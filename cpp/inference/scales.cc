// The units in which rounding is bounded: what messages typically are, channel by channel.
//
// A scale is the median of a channel's magnitudes over a sample of messages, those that are 0 left aside; 0 where all
// are, many more than at first having been looked at, and then the unit is a hundredth of the smallest: what messages
// that have gone left in a sum is large beside none. If there are no messages but 0, any rounding is too large. It is
// measured when the engine is made, after 1, 4, 16, ..., 1024, 2048, 3072, ... batches, since a graph may begin with
// nothing, and when an eighth as many messages were added or taken back as there are. It stays what it is while the
// graph only varies by less than a factor of four.
//
// A unit that is too small has rows summed anew without need, one that is too large has them be wrong. So a scale falls
// at once, and rises by no more than that factor each time. What it is measured on is what the batch at hand comes to,
// before it is committed. Where a scale has fallen, the bounds of rows grow by as much: the batch is prepared once
// more, in new units, together with the rows that are past their bounds then (`Units::overdue`). So nobody sees a row
// whose rounding a unit has hidden, and what would be is what will be, to the bit.
//
// The sample is a function of the graph and the batch, and the moment one of the number of batches: a replay gives the
// same bits. A lazy engine measures only in a batch that it computes at once, when it is settled.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <unordered_map>
#include <unordered_set>

#include "hashing/mix_hash.h"
#include "inference/directed_changes.h"
#include "inference/engine_scratch.h"
#include "inference/message_sums.h"
#include "inference/rounding.h"
#include "program/kernels.h"
#include "threads/parallel.h"

namespace livegnn {
namespace {

constexpr size_t kTried = 512, kTargets = 128, kEdgesOfTarget = 2;
constexpr size_t kMostScanned = size_t{1} << 21;  // in-edges: a few milliseconds of hubs
constexpr size_t kMostSampled = size_t{1} << 13;  // in-edges, in search of a channel that has had messages
constexpr size_t kEvery = 1024;                   // batches
constexpr size_t kPart = 8;                       // of the messages that there are
constexpr float kMoved = 4, kLeast = 1e-30f, kMost = 1e30f;

// The last number of batches up to `batches` at which scales are measured.
size_t last_moment(size_t batches) {
  if (batches >= kEvery) return batches / kEvery * kEvery;
  size_t moment = batches == 0 ? 0 : 1;
  while (4 * moment <= batches && moment > 0) moment *= 4;
  return moment;
}

// Of the magnitudes that are neither 0 nor without an end.
float median(std::vector<float>* magnitudes) {
  std::erase_if(*magnitudes, [](float x) { return !(x > 0) || !std::isfinite(x); });
  if (magnitudes->empty()) return 0;
  const auto middle = magnitudes->begin() + static_cast<std::ptrdiff_t>(magnitudes->size() / 2);
  std::nth_element(magnitudes->begin(), middle, magnitudes->end());
  return std::clamp(*middle, kLeast, kMost);
}

}  // namespace

namespace {

// Channels that have had no messages but 0 have no scale, and must have a unit.
float unit_without_scale(std::span<const float> scales) {
  float least = 0;
  for (float scale : scales) {
    if (scale > 0 && (least == 0 || scale < least)) least = scale;
  }
  return least == 0 ? kLeast : std::max(least / 100, kLeast);
}

}  // namespace

// By how much units are smaller than those that `inverses` are of, where they are smaller most.
float Engine::shrinkage(std::span<const float> scales, const float* inverses) {
  FloatBlock smaller(row_stride(scales.size()));
  invert_scales(scales, smaller.data());
  float shrunk = 1;
  for (size_t c = 0; c < scales.size(); ++c) shrunk = std::max(shrunk, smaller.data()[c] / inverses[c]);
  return std::min(shrunk, kMost);
}

void Engine::fill_scales(std::vector<float>* scales) {
  const float least = unit_without_scale(*scales), unit = least == kLeast ? 1 : least;
  for (float& scale : *scales) scale = scale == 0 ? unit : scale;
}

void Engine::invert_scales(std::span<const float> scales, float* inverses) {
  const float unit = unit_without_scale(scales);
  for (size_t c = 0; c < scales.size(); ++c) inverses[c] = 1 / (scales[c] == 0 ? unit : scales[c]);
}

std::vector<float> Engine::scales(size_t propagation) const {
  std::vector<float> scales = scales_[propagation];
  if (!scales.empty()) scales.push_back(means_[propagation]);
  return scales;
}

bool Engine::load_scales(size_t propagation, std::span<const float> scales) {
  const size_t width = scales_[propagation].size();
  if (width == 0) return scales.empty();
  if (scales.size() != width + 1 || !(scales[width] >= 0 && scales[width] <= 1)) return false;
  for (float scale : scales.first(width)) {
    if (scale != 0 && !(scale >= kLeast && scale <= kMost)) return false;
  }
  means_[propagation] = scales[width];
  scales_[propagation].assign(scales.begin(), scales.begin() + static_cast<std::ptrdiff_t>(width));
  invert_scales(scales_[propagation], inverses_[propagation].data());
  return true;
}

// A batch that is prepared, and who comes and goes with it.
struct Engine::After {
  const Graph& graph;
  const Delta& delta;
  const Prepared& prepared;
  std::vector<std::unordered_set<uint32_t>> added, removed;  // by node type

  After(const Graph& graph, const Delta& delta, const Prepared& prepared)
      : graph(graph), delta(delta), prepared(prepared) {
    for (const NodeDelta& nodes : delta.nodes) {
      removed.emplace_back(nodes.removed.begin(), nodes.removed.end());
      std::unordered_set<uint32_t>& all = added.emplace_back();
      for (size_t i = 0; i < nodes.added.size(); ++i) {
        if (nodes.added_ids[i] != kNoId) all.insert(nodes.added[i]);
      }
    }
  }

  std::span<const DirectedChange> changes(const PropagateStep& step, uint32_t target) const {
    return changes_of(prepared.edges[direction_of(graph, step)], target);
  }

  bool has(uint32_t node_type, uint32_t node, const IdMap& ids) const {
    if (added[node_type].contains(node)) return true;
    return node < ids.capacity() && ids.in_use(node) && !removed[node_type].contains(node);
  }
};

// Nodes from everywhere that have in-edges.
std::vector<Engine::SampledTarget> Engine::sample_targets(const PropagateStep& step, const After* after) const {
  const uint32_t node_type = program_.values[step.output].node_type;
  const IdMap& ids = graph_.nodes[node_type].ids;
  const EdgeView store = view_of(graph_, step);
  const size_t capacity = after == nullptr ? ids.capacity() : after->delta.nodes[node_type].capacity;
  const size_t tried = std::min(capacity, kTried);
  std::vector<SampledTarget> found, sample;
  for (size_t i = 0; i < tried; ++i) {
    const size_t first = i * capacity / tried, end = (i + 1) * capacity / tried;
    const auto node = static_cast<uint32_t>(first + MixHash{}(i) % (end - first));
    if (after == nullptr ? !ids.in_use(node) : !after->has(node_type, node, ids)) continue;
    int64_t degree = store.degree_in(node);
    if (after != nullptr) {
      for (const DirectedChange& change : after->changes(step, node)) degree += int{change.has} - int{change.had};
    }
    if (degree > 0) found.push_back({node, degree});
  }
  const size_t chosen = std::min(found.size(), kTargets);
  for (size_t i = 0; i < chosen; ++i) sample.push_back(found[i * found.size() / chosen]);
  return sample;
}

// As many in-edges of each target as there are, but not more than `each`.
std::vector<Engine::Sampled> Engine::sample_edges(const PropagateStep& step, std::span<const SampledTarget> targets,
                                                  size_t each, const After* after) const {
  const Graph::EdgeType& edges = graph_.edges[step.edge_type];
  const Table& features = edges.features.table();
  std::vector<Sampled> sample;
  size_t scanned = 0;
  for (const auto& [target, degree] : targets) {
    if (scanned >= kMostScanned || sample.size() >= kMostSampled) break;
    std::span<const DirectedChange> changes;
    if (after != nullptr) changes = after->changes(step, target);
    size_t left = std::min(each, kMostSampled - sample.size());
    scan_messages(view_of(graph_, step), step, target, [&](NeighborSpan span) {
      scanned += span.size;
      for (size_t j = 0; j < span.size && left > 0; ++j) {
        const DirectedChange* change = changes.empty() ? nullptr : change_from(changes, span.ids[j], key_at(span, j));
        if (change != nullptr && !change->has) continue;
        --left;
        if (change != nullptr) {
          sample.push_back({span.ids[j], target, change->new_weight, change->new_features});
        } else {
          sample.push_back({span.ids[j], target, span.weights == nullptr ? 1.0f : span.weights[j],
                            span.rows == nullptr ? nullptr : features.row(span.rows[j])});
        }
      }
    });
    for (const DirectedChange& change : changes) {
      const bool is_loop = change.source == target, goes = is_loop ? !step.skip_loops : !step.only_loops;
      if (left == 0 || change.had || !change.has || !goes) continue;
      --left;
      sample.push_back({change.source, target, change.new_weight, change.new_features});
    }
  }
  return sample;
}

void Engine::rows_after(uint32_t value, std::span<const uint32_t> nodes, const After* after, RowArena* arena,
                        const float** out) const {
  if (after == nullptr) return stored_rows(value, nodes, arena, out);
  std::unordered_map<uint32_t, uint32_t> positions;
  for (uint32_t node : nodes) positions.emplace(node, kNoIndex);
  const Changes& changes = after->prepared.changes[value];
  for (size_t i = 0; i < changes.nodes.size(); ++i) {
    const auto found = positions.find(changes.nodes[i]);
    if (found != positions.end()) found->second = changes.positions[i];
  }
  std::vector<uint32_t> unchanged;
  for (uint32_t node : nodes) {
    if (positions.at(node) == kNoIndex) unchanged.push_back(node);
  }
  std::vector<const float*> stored(unchanged.size());
  stored_rows(value, unchanged, arena, stored.data());
  for (size_t i = 0, next = 0; i < nodes.size(); ++i) {
    const uint32_t position = positions.at(nodes[i]);
    out[i] = position == kNoIndex ? stored[next++] : changes.at(position);
  }
}

// Rows of messages, weights included. Where coefficients are kept beside the sums, which are divided by them in the
// end, without these.
void Engine::sample_messages(const PropagateStep& step, std::span<const Sampled> edges, const After* after,
                             size_t stride, float* out) const {
  const size_t width = program_.values[step.output].width;
  static thread_local RowArena arena;
  arena.clear();
  std::vector<uint32_t> sources, targets;
  for (const Sampled& edge : edges) {
    sources.push_back(edge.source);
    targets.push_back(edge.target);
  }
  if (step.message == kNoIndex) {
    std::vector<const float*> rows(edges.size());
    rows_after(step.input, sources, after, &arena, rows.data());
    for (size_t i = 0; i < edges.size(); ++i, out += stride) {
      for (size_t c = 0; c < width; ++c) out[c] = (step.weighted ? edges[i].weight : 1.0f) * rows[i][c];
    }
    return;
  }
  const MessageProgram& program = program_.messages[step.message];
  std::vector<std::vector<const float*>> rows(program.sources.size());
  for (size_t s = 0; s < rows.size(); ++s) {
    const MessageSource& source = program.sources[s];
    if (source.side != MessageSource::kSource && source.side != MessageSource::kTarget) continue;
    rows[s].resize(edges.size());
    rows_after(source.value, source.side == MessageSource::kSource ? sources : targets, after, &arena, rows[s].data());
  }
  MessageSums& sums = sums_of(step);
  const size_t channels = sums.channels();
  for (size_t first = 0; first < edges.size(); first += kBlockRows) {
    const size_t count = std::min(kBlockRows, edges.size() - first);
    sums.open(count);  // each to a target of its own
    for (size_t i = 0; i < count; ++i) {
      const Sampled& edge = edges[first + i];
      sums.add(i, 1, {edge.weight, edge.features}, [&](size_t s) { return rows[s][first + i]; });
    }
    sums.finish();
    for (size_t i = 0; i < count; ++i, out += stride) {
      for (size_t c = 0; c < width; ++c) {
        const float coefficient = step.context == kNoIndex ? 1.0f : sums.context(i)[c / channels];
        out[c] = coefficient == 0 ? 0 : sums.sum(i)[c] / coefficient;
      }
    }
  }
}

std::vector<float> Engine::typical(const PropagateStep& step, std::span<const SampledTarget> targets, size_t each,
                                   const After* after) const {
  const size_t width = program_.values[step.output].width, stride = row_stride(width);
  const std::vector<Sampled> edges = sample_edges(step, targets, each, after);
  std::vector<float> messages(edges.size() * stride), magnitudes, scales;
  sample_messages(step, edges, after, stride, messages.data());
  for (size_t c = 0; c < width; ++c) {
    magnitudes.clear();
    for (size_t i = 0; i < edges.size(); ++i) magnitudes.push_back(std::fabs(messages[i * stride + c]));
    scales.push_back(median(&magnitudes));
  }
  return scales;
}

// Of a few in-edges of each target; where a channel that has had a scale seems to have none, of many more.
std::vector<float> Engine::measure_scales(const PropagateStep& step, std::span<const SampledTarget> targets,
                                          std::span<const float> before, const After* after) const {
  std::vector<float> scales = typical(step, targets, kEdgesOfTarget, after), more;
  for (size_t c = 0; c < scales.size(); ++c) {
    if (before[c] == 0 || scales[c] != 0) continue;
    if (more.empty()) more = typical(step, targets, kMostSampled, after);
    scales[c] = more[c];
  }
  return scales;
}

// Of the channel whose means are the smallest, beside its scale; 0 where others than means are read.
float Engine::typical_mean(const PropagateStep& step, std::span<const SampledTarget> targets,
                           std::span<const float> scales, const After* after) const {
  if (!step.averaged) return 0;
  static thread_local RowArena arena;
  arena.clear();
  std::vector<uint32_t> nodes;
  for (const SampledTarget& target : targets) nodes.push_back(target.node);
  std::vector<const float*> rows(nodes.size());
  rows_after(step.output, nodes, after, &arena, rows.data());
  std::vector<float> magnitudes;
  float mean = 1;
  for (size_t c = 0; c < scales.size(); ++c) {
    if (scales[c] == 0) continue;
    magnitudes.clear();
    for (size_t i = 0; i < rows.size(); ++i) {
      magnitudes.push_back(std::fabs(rows[i][c]) / scales[c] / static_cast<float>(targets[i].degree));
    }
    mean = std::min(mean, median(&magnitudes));
  }
  return mean;
}

void Engine::measure_first() {
  for (size_t p = 0; p < program_.propagations.size(); ++p) {
    const PropagateStep& step = program_.propagations[p];
    if (step.aggregate != Aggregate::kSum) continue;
    const std::vector<SampledTarget> targets = sample_targets(step, nullptr);
    scales_[p] = typical(step, targets, kEdgesOfTarget, nullptr);
    invert_scales(scales_[p], inverses_[p].data());
    means_[p] = typical_mean(step, targets, scales_[p], nullptr);
    if (step.context == kNoIndex) begin_all_bounds(p);
  }
}

// Of rows that have all just been summed.
void Engine::begin_all_bounds(size_t propagation) {
  const PropagateStep& step = program_.propagations[propagation];
  const EdgeView store = view_of(graph_, step);
  const Rows kept = kept_rows(step.output);
  Table& errors = errors_[propagation];
  const size_t count = std::min(errors.rows(), kept.count);
  pool_->run(blocks_of(count), kLong, [&](size_t block) {
    for (size_t slot = block * kBlockRows; slot < std::min(count, (block + 1) * kBlockRows); ++slot) {
      const bool partial = partial_[step.output] >= 0;
      const auto node = partial ? residents_[direction_of(graph_, step)].nodes[slot] : static_cast<uint32_t>(slot);
      if (node == kNoIndex) continue;
      const float peak = kernels().scaled_peak(kept.width, kept.row(slot), inverses_[propagation].data());
      begin_bounds(peak, store.degree_in(node), errors.row(slot));
    }
  });
}

void Engine::forget_units(Prepared* prepared) const {
  prepared->measured = false;
  prepared->units.resize(program_.propagations.size());
  for (Prepared::Units& units : prepared->units) units = {};
}

bool Engine::is_measured_after(const Delta& delta, const Prepared& prepared) const {
  if (prepared.affected == 0 && prepared.edges_touched == 0) return false;  // nothing, or as good as
  if (measured_ < last_moment(batches_ + 1)) return true;
  size_t messages = 0;
  for (const PropagateStep& step : program_.propagations) {
    if (step.aggregate != Aggregate::kSum) continue;
    messages += graph_.edges[step.edge_type].store->num_edges() + delta.edges[step.edge_type].size();
  }
  return kPart * (touched_ + prepared.edges_touched) > messages;
}

// Whether any unit is a smaller one, so that rows which the batch has not reached may be past their bounds.
bool Engine::measure_after(const Delta& delta, Prepared* prepared) {
  const After after(graph_, delta, *prepared);
  bool smaller = false;
  for (size_t p = 0; p < program_.propagations.size(); ++p) {
    const PropagateStep& step = program_.propagations[p];
    if (step.aggregate != Aggregate::kSum) continue;
    const std::vector<SampledTarget> targets = sample_targets(step, &after);
    const std::vector<float> measured = measure_scales(step, targets, scales_[p], &after);
    Prepared::Units& units = prepared->units[p];
    std::vector<float> scales = scales_[p];
    for (size_t c = 0; c < scales.size(); ++c) {
      const float before = scales[c], now = measured[c];
      if (now == 0 || before == 0 || now <= before / kMoved) {
        scales[c] = now;
      } else if (now >= before * kMoved) {
        scales[c] = before * kMoved;
      }
    }
    units.shrunk = shrinkage(scales, inverses_[p].data());
    std::vector<float> present = scales;
    for (size_t c = 0; c < present.size(); ++c) present[c] = measured[c] == 0 ? 0 : present[c];
    const float mean = typical_mean(step, targets, present, &after), before = means_[p];
    const bool moved = before == 0 || mean <= before / kMoved || mean >= before * kMoved;
    units.mean = !moved ? before : before == 0 ? mean : std::min(mean, before * kMoved);
    if (scales == scales_[p] && units.mean == means_[p]) continue;
    units.scales = std::move(scales);
    if (units.shrunk == 1 && units.mean >= means_[p]) continue;
    smaller = true;
    find_overdue(p, &units);
  }
  prepared->measured = true;
  return smaller;
}

// The rows whose bounds are past what they may be in other units, in order.
void Engine::find_overdue(size_t propagation, Prepared::Units* units) const {
  const PropagateStep& step = program_.propagations[propagation];
  const Table& errors = errors_[propagation];
  const Rows kept = kept_rows(step.output);
  FloatBlock inverses(row_stride(kept.width));
  float* const inverse = inverses.data();
  invert_scales(units->scales, inverse);
  const size_t heads = step.message == kNoIndex ? 1 : heads_of(step), channels = kept.width / heads;
  const EdgeView store = view_of(graph_, step);
  const bool partial = partial_[step.output] >= 0;
  for (size_t slot = 0; slot < std::min(errors.rows(), kept.count); ++slot) {
    const auto node = partial ? residents_[direction_of(graph_, step)].nodes[slot] : static_cast<uint32_t>(slot);
    if (node == kNoIndex) continue;
    const float *const before = errors.row(slot), *const row = kept.row(slot);
    bool good = true;
    if (step.context == kNoIndex) {
      const Bounds bounds = unpack(before);
      good =
          is_good({units->shrunk * bounds.own, units->shrunk * bounds.moved},
                  kernels().scaled_peak(kept.width, row, inverse), units->mean, [&] { return store.degree_in(node); });
    } else {
      const float* const totals = stored_row(step.context, node);
      for (size_t h = 0; h < heads; ++h) {
        const float peak = kernels().scaled_peak(channels, row + h * channels, inverse + h * channels);
        good &= units->shrunk * before[h] <= kDriftTolerance * std::min(peak, std::fabs(totals[h]));
      }
    }
    if (!good) units->overdue.push_back(node);
  }
  std::sort(units->overdue.begin(), units->overdue.end());
}

// Needs no memory, as little as the commit of which it is a part.
void Engine::commit_units(const Prepared& prepared) noexcept {
  ++batches_;
  touched_ += prepared.edges_touched;
  if (!prepared.measured) return;
  measured_ = last_moment(batches_);
  touched_ = 0;
  for (size_t p = 0; p < prepared.units.size(); ++p) {
    const Prepared::Units& units = prepared.units[p];
    if (units.scales.empty()) continue;
    std::copy(units.scales.begin(), units.scales.end(), scales_[p].begin());
    means_[p] = units.mean;
    invert_scales(scales_[p], inverses_[p].data());
  }
}

// After the table has its new size, which may have moved it, and before bounds are written that are in new units.
void Engine::commit_bounds(size_t propagation, const Prepared& prepared) noexcept {
  const float shrunk = prepared.units[propagation].shrunk;
  if (shrunk == 1) return;
  Table& errors = errors_[propagation];
  const bool has_context = program_.propagations[propagation].context != kNoIndex;
  for (size_t i = 0; i < errors.rows(); ++i) {
    float* const row = errors.row(i);
    if (has_context) {
      for (size_t h = 0; h < errors.width() / 2; ++h) row[h] *= shrunk;  // those of contexts, behind them, have no unit
    } else {
      const Bounds bounds = unpack(row);
      pack({shrunk * bounds.own, shrunk * bounds.moved}, row);
    }
  }
}

Engine::NewUnits::NewUnits(Engine* engine, const Prepared& prepared) : engine_(*engine), means_(engine->means_) {
  for (size_t p = 0; p < prepared.units.size(); ++p) {
    const Prepared::Units& units = prepared.units[p];
    if (units.scales.empty()) continue;
    invert_scales(units.scales, engine->inverses_[p].data());
    engine->shrunk_[p] = units.shrunk;
    engine->means_[p] = units.mean;
  }
}

Engine::NewUnits::~NewUnits() {
  for (size_t p = 0; p < engine_.shrunk_.size(); ++p) {
    invert_scales(engine_.scales_[p], engine_.inverses_[p].data());
    engine_.shrunk_[p] = 1;
  }
  engine_.means_.swap(means_);
}

}  // namespace livegnn
