#include "inference/rounding/rounding_scales.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "inference/evaluation/message_sums.h"
#include "inference/rounding/error_bounds.h"
#include "inference/rounding/rounding.h"
#include "inference/rounding/rounding_state.h"
#include "inference/rounding/sample_reader.h"
#include "inference/rows/changes.h"
#include "inference/rows/effects.h"
#include "program/kernels.h"

namespace livegnn {
namespace {

constexpr size_t kEvery = 1024;  // batches
constexpr size_t kPart = 8;      // of all messages
constexpr float kMoved = 4;

// The last number of batches up to `batches` at which scales are measured.
size_t last_moment(size_t batches) {
  if (batches >= kEvery) return batches / kEvery * kEvery;
  size_t moment = batches == 0 ? 0 : 1;
  while (4 * moment <= batches && moment > 0) moment *= 4;
  return moment;
}

// The unit of channels that have had no messages but 0, and so have no scale.
float unit_without_scale(std::span<const float> scales) {
  float least = 0;
  for (float scale : scales) {
    if (scale > 0 && (least == 0 || scale < least)) least = scale;
  }
  return least == 0 ? kLeastScale : std::max(least / 100, kLeastScale);
}

// The factor by which units shrink compared with `inverses`, for the channel that shrinks most.
float shrinkage(std::span<const float> scales, const float* smaller, const float* inverses) {
  float shrunk = 1;
  for (size_t c = 0; c < scales.size(); ++c) shrunk = std::max(shrunk, smaller[c] / inverses[c]);
  return std::min(shrunk, kMostScale);
}

// The new scale, from a measurement and the previous scale.
float moved_scale(float before, float now) {
  if (now == 0 || before == 0 || now <= before / kMoved) return now;
  return now >= before * kMoved ? before * kMoved : before;
}

// The rows whose bounds exceed the limit in new units, sorted.
void find_overdue(const RowState& rows, const RoundingState& rounding, size_t propagation, NewScale* scale) {
  const PropagateStep& step = rows.program.propagations[propagation];
  const Table& errors = rounding.errors[propagation];
  const Rows kept = rows.kept_rows(step.output);
  const float* const inverse = scale->inverses.data();
  const size_t heads = step.message == kNoIndex ? 1 : heads_of(rows.program, step), channels = kept.width / heads;
  const EdgeView store = view_of(rows.graph, step);
  for (size_t slot = 0; slot < std::min(errors.rows(), kept.count); ++slot) {
    const uint32_t node = rows.node_at(step, slot);
    if (node == kNoIndex || rows.is_foreign(rows.program.values[step.output].node_type, node)) continue;
    const float *const before = errors.row(slot), *const row = kept.row(slot);
    bool good = true;
    if (step.context == kNoIndex) {
      const Bounds bounds = unpack(before);
      good = is_good({scale->shrunk * bounds.own, scale->shrunk * bounds.moved},
                     kernels().scaled_peak(kept.width, row, inverse), scale->mean, scale->offset,
                     [&] { return store.degree_in(node); });
    } else {
      const float* const totals = rows.stored_row(step.context, node);
      for (size_t h = 0; h < heads; ++h) {
        const float peak = kernels().scaled_peak(channels, row + h * channels, inverse + h * channels);
        good &= is_good_head(scale->shrunk * before[h], peak, before[heads + h], totals[h], scale->offset,
                             [&] { return store.degree_in(node); });
      }
    }
    if (!good) scale->overdue.push_back(node);
  }
  std::sort(scale->overdue.begin(), scale->overdue.end());
}

}  // namespace

void RoundingScale::begin(size_t width) {
  scales.assign(width, 0.0f);
  inverses = FloatBlock(row_stride(width));
  invert_scales(scales, inverses.data());
}

void RoundingScale::set(std::span<const float> measured, float typical_mean, bool is_offset) noexcept {
  std::copy(measured.begin(), measured.end(), scales.begin());
  mean = typical_mean;
  offset = is_offset;
  invert_scales(scales, inverses.data());
}

bool RoundingScale::fits() const {
  std::vector<float> expected(row_stride(scales.size()));
  invert_scales(scales, expected.data());
  return std::memcmp(expected.data(), inverses.data(), scales.size() * sizeof(float)) == 0;
}

std::vector<float> RoundingScale::saved() const {
  std::vector<float> all = scales;
  if (!all.empty()) all.insert(all.end(), {mean, offset ? 1.0f : 0.0f});
  return all;
}

bool RoundingScale::load(std::span<const float> from) {
  const size_t width = scales.size();
  if (width == 0) return from.empty();
  if (from.size() != width + 2 || !(from[width] >= 0 && from[width] <= 1)) return false;
  if (from[width + 1] != 0 && from[width + 1] != 1) return false;
  for (float scale : from.first(width)) {
    if (scale != 0 && !(scale >= kLeastScale && scale <= kMostScale)) return false;
  }
  set(from.first(width), from[width], from[width + 1] == 1);
  return true;
}

void NewScales::forget(size_t propagations) {
  measured = in_use = false;
  all.resize(propagations);
  for (NewScale& scale : all) {
    scale.scales.clear();
    scale.overdue.clear();
    scale.mean = 0;
    scale.offset = false;
    scale.shrunk = 1;
  }
}

ScaleInUse scale_in_use(const RoundingState& rounding, const NewScales& fresh, size_t propagation) {
  const RoundingScale& kept = rounding.scales[propagation];
  const NewScale& scale = fresh.of(propagation);
  if (!fresh.in_use || scale.scales.empty()) return {kept.inverses.data(), kept.mean, kept.offset, 1};
  return {scale.inverses.data(), scale.mean, scale.offset, scale.shrunk};
}

void fill_scales(std::vector<float>* scales) {
  const float least = unit_without_scale(*scales), unit = least == kLeastScale ? 1 : least;
  for (float& scale : *scales) scale = scale == 0 ? unit : scale;
}

void invert_scales(std::span<const float> scales, float* inverses) noexcept {
  const float unit = unit_without_scale(scales);
  for (size_t c = 0; c < scales.size(); ++c) inverses[c] = 1 / (scales[c] == 0 ? unit : scales[c]);
}

Totals& Totals::operator+=(const Totals& part) {
  affected += part.affected;
  touched += part.touched;
  messages += part.messages;
  return *this;
}

void measure_first(const RowState& rows, RoundingState* rounding, ThreadPool* pool) {
  for (size_t p = 0; p < rows.program.propagations.size(); ++p) {
    const PropagateStep& step = rows.program.propagations[p];
    if (step.aggregate != Aggregate::kSum) continue;
    const WholeSample sample(rows, *rounding, step, nullptr);
    measure_first_of(rows, p, sample.few, rounding, pool);
  }
}

void measure_first_of(const RowState& rows, size_t propagation, const MessageSample& few, RoundingState* rounding,
                      ThreadPool* pool) {
  const PropagateStep& step = rows.program.propagations[propagation];
  const Measurement measurement(rows.program, step, few);
  const std::vector<float> scales = measurement.typical();
  rounding->scales[propagation].set(scales, measurement.mean(scales), measurement.is_offset());
  if (step.context == kNoIndex) begin_all_bounds(rows, propagation, pool, rounding);
}

Totals totals_of(const RowState& rows, const Delta& delta, const Effects& effects) {
  Totals totals{effects.affected, effects.edges_touched, 0};
  for (const PropagateStep& step : rows.program.propagations) {
    if (step.aggregate != Aggregate::kSum) continue;
    totals.messages += rows.graph.edges[step.edge_type].store->num_edges() + delta.edges[step.edge_type].size();
  }
  return totals;
}

bool is_measured_after(const RoundingState& rounding, const Totals& totals) {
  if (totals.affected == 0 && totals.touched == 0) return false;  // nothing relevant changed
  if (rounding.moments.measured < last_moment(rounding.moments.batches + 1)) return true;
  return kPart * (rounding.moments.touched + totals.touched) > totals.messages;
}

bool renew_scale(const RoundingScale& now, const Measurement& measurement, const Measurement::More& more,
                 NewScale* scale) {
  scale->offset = measurement.is_offset();
  if (scale->offset == now.offset && measurement.confirms(now.scales, now.mean, kMoved))
    return false;  // as nearly always
  const std::vector<float> measured = measurement.scales(now.scales, more);
  std::vector<float> scales = now.scales, present(scales.size());
  for (size_t c = 0; c < scales.size(); ++c) {
    scales[c] = moved_scale(scales[c], measured[c]);
    present[c] = measured[c] == 0 ? 0 : scales[c];
  }
  FloatBlock inverses(row_stride(scales.size()));
  invert_scales(scales, inverses.data());
  scale->shrunk = shrinkage(scales, inverses.data(), now.inverses.data());
  const float mean = measurement.mean(present), before = now.mean;
  const bool moved = before == 0 || mean <= before / kMoved || mean >= before * kMoved;
  scale->mean = !moved ? before : before == 0 ? mean : std::min(mean, before * kMoved);
  if (scales == now.scales && scale->mean == before && scale->offset == now.offset) return false;
  scale->scales = std::move(scales);
  scale->inverses = std::move(inverses);
  return scale->shrunk != 1 || scale->mean < before || scale->offset > now.offset;
}

bool measure_scale(const RowState& rows, const RoundingState& rounding, size_t propagation, const MessageSample& few,
                   const Measurement::More& more, NewScale* scale) {
  const Measurement measurement(rows.program, rows.program.propagations[propagation], few);
  const bool smaller = renew_scale(rounding.scales[propagation], measurement, more, scale);
  if (smaller) find_overdue(rows, rounding, propagation, scale);
  return smaller;
}

bool measure_after(const RowState& rows, const RoundingState& rounding, const BatchChanges& changes, NewScales* fresh) {
  bool smaller = false;
  for (size_t p = 0; p < rows.program.propagations.size(); ++p) {
    if (rows.program.propagations[p].aggregate != Aggregate::kSum) continue;
    const WholeSample sample(rows, rounding, rows.program.propagations[p], &changes);
    smaller |= measure_scale(rows, rounding, p, sample.few, [&] { return sample.many(); }, &fresh->all[p]);
  }
  fresh->measured = true;
  return smaller;
}

void commit_scales(const NewScales& fresh, const Totals& totals, RoundingState* rounding) noexcept {
  Moments& moments = rounding->moments;
  ++moments.batches;
  moments.touched += totals.touched;
  if (!fresh.measured) return;
  moments.measured = last_moment(moments.batches);
  moments.touched = 0;
  for (size_t p = 0; p < fresh.all.size(); ++p) {
    const NewScale& scale = fresh.all[p];
    if (!scale.scales.empty()) rounding->scales[p].set(scale.scales, scale.mean, scale.offset);
  }
}

}  // namespace livegnn
