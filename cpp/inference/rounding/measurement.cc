#include "inference/rounding/measurement.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

namespace livegnn {
namespace {

constexpr float kOffset = 8;  // times the difference of two messages
constexpr float kInfinite = std::numeric_limits<float>::infinity();

// The median of the magnitudes that are neither 0 nor infinite; 0 if there are none.
float median(std::vector<float>* magnitudes) {
  std::erase_if(*magnitudes, [](float x) { return !(x > 0) || !std::isfinite(x); });
  if (magnitudes->empty()) return 0;
  const auto middle = magnitudes->begin() + static_cast<std::ptrdiff_t>(magnitudes->size() / 2);
  std::nth_element(magnitudes->begin(), middle, magnitudes->end());
  return std::clamp(*middle, kLeastScale, kMostScale);
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

float typical_of(const MessageSample& sample, size_t channel) {
  std::vector<float> magnitudes(sample.rows.size());
  for (size_t i = 0; i < magnitudes.size(); ++i) magnitudes[i] = sample.magnitude(i, channel);
  return median(&magnitudes);
}

}  // namespace

Measurement::Measurement(const Program& program, const PropagateStep& step, const MessageSample& few)
    : width_(program.values[step.output].width), averaged_(step.averaged), few_(few) {}

std::vector<float> Measurement::typical() const {
  std::vector<float> scales(width_);
  for (size_t c = 0; c < width_; ++c) scales[c] = typical_of(few_, c);
  return scales;
}

std::vector<float> Measurement::scales(std::span<const float> before, const More& more) const {
  std::vector<float> scales = typical();
  std::optional<MessageSample> many;
  for (size_t c = 0; c < width_; ++c) {
    if (before[c] == 0 || scales[c] != 0) continue;
    if (!many) many.emplace(more());
    scales[c] = typical_of(*many, c);
  }
  return scales;
}

float Measurement::mean(std::span<const float> scales) const {
  if (!averaged_) return 0;
  std::vector<float> magnitudes;
  float mean = 1;
  for (size_t c = 0; c < width_; ++c) {
    if (scales[c] == 0) continue;
    magnitudes.clear();
    for (const MessageSample::Target& target : few_.targets) {
      magnitudes.push_back(std::fabs(target.sum[c]) / scales[c] / static_cast<float>(target.degree));
    }
    mean = std::min(mean, median(&magnitudes));
  }
  return mean;
}

bool Measurement::is_offset() const {
  const size_t count = few_.rows.size();
  const std::vector<float> none(width_), most(width_, kOffset);
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
  if (!averaged_) return mean == 0;
  const std::vector<float> low(scales.size(), mean / factor), high(scales.size(), mean * factor);
  const std::vector<Counts> counts = count_all(few_.targets.size(), low, high, [&](size_t i) {
    const MessageSample::Target& target = few_.targets[i];
    return [row = target.sum, degree = static_cast<float>(target.degree), from = scales.data()](size_t c) {
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

}  // namespace livegnn
