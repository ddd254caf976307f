// The units in which rounding is bounded: what messages typically are, channel by channel.
//
// A scale is the median of a channel's magnitudes over a sample of messages, those that are 0 left aside; 0 where all
// are, and then the unit is a hundredth of the smallest. It is measured when the engine is made, after 1, 4, 16, ...,
// 1024, 2048, 3072, ... batches, since a graph may begin with nothing, and when half as many messages were added or
// taken back as there are. It stays what it is while the graph only varies by less than a factor of four.
//
// A unit that is too small has rows summed anew without need, one that is too large has them be wrong. So a scale falls
// at once, and rises by no more than that factor each time. Where it has fallen, the bounds of rows grow by as much;
// the rows that are past their bounds then (`overdue_`) are summed anew by a batch of nothing that follows at once, so
// that nobody sees them longer than that; by the next batch, if memory for it is wanting.
//
// The sample is a function of the graph, and the moment one of the number of batches: a replay gives the same bits. A
// lazy engine measures only when a batch has had it settle.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <exception>
#include <mutex>
#include <shared_mutex>

#include "directed_changes.h"
#include "engine_scratch.h"
#include "kernels.h"
#include "livegnn/mix_hash.h"
#include "message_sums.h"
#include "rounding.h"

namespace livegnn {
namespace {

constexpr size_t kTried = 512, kTargets = 128, kEdgesOfTarget = 2;
constexpr size_t kMostScanned = size_t{1} << 21;  // in-edges: a few milliseconds of hubs
constexpr size_t kEvery = 1024;                   // batches
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
  return least == 0 ? 1 : std::max(least / 100, kLeast);
}

}  // namespace

void Engine::fill_scales(std::vector<float>* scales) {
  const float unit = unit_without_scale(*scales);
  for (float& scale : *scales) scale = scale == 0 ? unit : scale;
}

// Needs no memory: scales, inverses and the bounds in their units change together, or not at all.
void Engine::invert_scales(size_t propagation) {
  const std::vector<float>& scales = scales_[propagation];
  const float unit = unit_without_scale(scales);
  for (size_t c = 0; c < scales.size(); ++c) inverses_[propagation].data()[c] = 1 / (scales[c] == 0 ? unit : scales[c]);
}

bool Engine::load_scales(size_t propagation, std::span<const float> scales) {
  if (scales.size() != scales_[propagation].size()) return false;
  for (float scale : scales) {
    if (scale != 0 && !(scale >= kLeast && scale <= kMost)) return false;
  }
  scales_[propagation].assign(scales.begin(), scales.end());
  invert_scales(propagation);
  return true;
}

// A few in-edges each of targets from everywhere.
std::vector<Engine::Sampled> Engine::sample_edges(const PropagateStep& step) const {
  const Graph::EdgeType& edges = graph_.edges[step.edge_type];
  const Table& features = edges.features.table();
  const IdMap& ids = graph_.nodes[program_.values[step.output].node_type].ids;
  const size_t capacity = ids.capacity(), tried = std::min(capacity, kTried);
  std::vector<uint32_t> targets;
  for (size_t i = 0; i < tried; ++i) {
    const size_t first = i * capacity / tried, end = (i + 1) * capacity / tried;
    const auto node = static_cast<uint32_t>(first + MixHash{}(i) % (end - first));
    if (ids.in_use(node) && edges.store->degree_in(node) > 0) targets.push_back(node);
  }
  std::vector<Sampled> sample;
  const size_t chosen = std::min(targets.size(), kTargets);
  for (size_t i = 0, scanned = 0; i < chosen && scanned < kMostScanned; ++i) {
    const uint32_t target = targets[i * targets.size() / chosen];
    size_t left = kEdgesOfTarget;
    scan_messages(*edges.store, step.skip_loops, target, [&](NeighborSpan span) {
      scanned += span.size;
      for (size_t j = 0; j < span.size && left > 0; ++j) {
        --left;
        sample.push_back({span.ids[j], target, span.weights == nullptr ? 1.0f : span.weights[j],
                          span.rows == nullptr ? nullptr : features.row(span.rows[j])});
      }
    });
  }
  return sample;
}

// Rows of messages, weights included. Where coefficients are kept beside the sums, which are divided by them in the
// end, without these.
void Engine::sample_messages(const PropagateStep& step, std::span<const Sampled> edges, size_t stride,
                             float* out) const {
  const size_t width = program_.values[step.output].width;
  static thread_local RowArena arena;
  arena.clear();
  if (step.message == kNoIndex) {
    std::vector<uint32_t> sources;
    for (const Sampled& edge : edges) sources.push_back(edge.source);
    std::vector<const float*> rows(edges.size());
    stored_rows(step.input, sources, &arena, rows.data());
    for (size_t i = 0; i < edges.size(); ++i, out += stride) {
      for (size_t c = 0; c < width; ++c) out[c] = (step.weighted ? edges[i].weight : 1.0f) * rows[i][c];
    }
    return;
  }
  const MessageProgram& program = program_.messages[step.message];
  const std::vector<Rows> stored = message_rows(program);
  MessageSums& sums = sums_of(step);
  const size_t channels = sums.channels();
  for (size_t first = 0; first < edges.size(); first += kBlockRows) {
    const size_t count = std::min(kBlockRows, edges.size() - first);
    sums.open(count);  // each to a target of its own
    for (size_t i = 0; i < count; ++i) {
      const Sampled& edge = edges[first + i];
      sums.add(i, 1, {edge.weight, edge.features}, [&](size_t s) -> const float* {
        return stored[s].row(program.sources[s].side == MessageSource::kSource ? edge.source : edge.target);
      });
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

std::vector<float> Engine::typical(const PropagateStep& step) const {
  const size_t width = program_.values[step.output].width, stride = row_stride(width);
  const std::vector<Sampled> edges = sample_edges(step);
  std::vector<float> messages(edges.size() * stride), magnitudes, scales;
  sample_messages(step, edges, stride, messages.data());
  for (size_t c = 0; c < width; ++c) {
    magnitudes.clear();
    for (size_t i = 0; i < edges.size(); ++i) magnitudes.push_back(std::fabs(messages[i * stride + c]));
    scales.push_back(median(&magnitudes));
  }
  return scales;
}

void Engine::measure(bool first) {
  for (size_t p = 0; p < program_.propagations.size(); ++p) {
    const PropagateStep& step = program_.propagations[p];
    if (step.aggregate != Aggregate::kSum) continue;
    const std::vector<float> scales = typical(step);
    std::unique_lock<decltype(graph_.lock)> alone;
    if (lazy_ != nullptr && !first) alone = std::unique_lock(graph_.lock);  // queries read them
    float shrunk = 1;
    for (size_t c = 0; c < scales.size(); ++c) {
      const float before = scales_[p][c], now = scales[c];
      if (first) {
        scales_[p][c] = now;
      } else if (now == 0) {
        continue;  // all gone, or not there yet
      } else if (before == 0 || now <= before / kMoved) {
        shrunk = std::max(shrunk, 1 / inverses_[p].data()[c] / now);
        scales_[p][c] = now;
      } else if (now >= before * kMoved) {
        scales_[p][c] = before * kMoved;
      }
    }
    invert_scales(p);
    if (first || shrunk == 1) continue;
    // Those of contexts, in the second half, have no unit.
    Table& errors = errors_[p];
    const size_t bounds = step.context == kNoIndex ? errors.width() : errors.width() / 2;
    for (size_t i = 0; i < errors.rows(); ++i) {
      for (size_t b = 0; b < bounds; ++b) errors.row(i)[b] *= shrunk;
    }
    if (lazy_ == nullptr) find_overdue(p);
  }
}

// The rows whose bounds are past what they may be, in order.
void Engine::find_overdue(size_t propagation) {
  const PropagateStep& step = program_.propagations[propagation];
  const Table& errors = errors_[propagation];
  const Rows kept = kept_rows(step.output);
  const float* const inverse = inverses_[propagation].data();
  const size_t heads = step.message == kNoIndex ? 1 : heads_of(step), channels = kept.width / heads;
  const auto& store = *graph_.edges[step.edge_type].store;
  std::vector<uint32_t>& overdue = overdue_[propagation];
  overdue.clear();
  for (size_t slot = 0; slot < std::min(errors.rows(), kept.count); ++slot) {
    const bool partial = partial_[step.output] >= 0;
    const auto node = partial ? residents_[step.edge_type].nodes[slot] : static_cast<uint32_t>(slot);
    if (node == kNoIndex) continue;
    const float *const bounds = errors.row(slot), *const row = kept.row(slot);
    bool good = true;
    if (step.context == kNoIndex) {
      good = is_good(bounds, kernels().scaled_peak(kept.width, row, inverse), [&] { return store.degree_in(node); });
    } else {
      const float* const totals = stored_row(step.context, node);
      for (size_t h = 0; h < heads; ++h) {
        const float peak = kernels().scaled_peak(channels, row + h * channels, inverse + h * channels);
        good &= bounds[h] <= kDriftTolerance * std::min(peak, std::fabs(totals[h]));
      }
    }
    if (!good) overdue.push_back(node);
  }
  std::sort(overdue.begin(), overdue.end());
}

void Engine::measure_if_due() {
  size_t messages = 0;
  for (const PropagateStep& step : program_.propagations) {
    messages += step.aggregate == Aggregate::kSum ? graph_.edges[step.edge_type].store->num_edges() : 0;
  }
  if (measured_ >= last_moment(batches_) && 2 * touched_ <= messages) return;
  measured_ = last_moment(batches_);
  touched_ = 0;
  try {
    measure(false);
  } catch (const std::exception&) {
    // A function of the user's may fail, and the batch is there already: what was measured before goes on.
  }
}

}  // namespace livegnn
