// Bounds on the rounding error of a row that is updated instead of summed from its neighbours, in units of columns.
//
// Channels of one row may differ by ten orders of magnitude, and a model may read the smallest. So a magnitude is
// measured after dividing every channel by the channel's scale: the typical size of a message there, over the whole
// graph (rounding_scales.h). A spike is then equally large in every channel.
//
// The accumulated error has two parts, to first order and for the worst channel:
//
//   own      at each touch, the row itself was rounded, with the magnitude that it had then
//   moved    the added and removed terms were rounded when they were computed, and when they were added
//
// With `own` alone, hubs would be summed again at every touch, because the sum of n terms of one sign is about n of
// them, while channels whose terms cancel are only known to the root of n. But the larger part of `own` is rounding in
// channels that are still as large as they were, and it is small relative to them. For any other channel, what matters
// is how much larger it can have been: at most what has moved. So a row is good while
//
//   own + moved                         <= kDriftTolerance * its magnitude, and
//   moved + min(own, touches * moved)   <= kDriftTolerance * sqrt(number of its terms)
//
// where own / magnitude stands for the touches. A row that has just been summed starts as if it had been touched as
// often as its partial sums were rounded. These errors partly cancel, but less if the terms are alike; three times the
// root of their number was observed for such terms. A sum of which only the mean is read may differ by more than the
// root of n if means do not cancel as much: by kDriftTolerance times n typical means. A row that is not finite is never
// good.
//
// Messages may also be far from 0 compared with how they differ, as years are. A model may read nothing but how the
// sums of such messages differ, as a norm does, and beside that all roundings of the row are large. They add up like
// random steps. So a row is as good as a new one while it has been touched at most an eighth as often as it has terms.
//
// Thread safety: pure functions.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "program/row_sum.h"

namespace livegnn {

inline constexpr float kDriftTolerance = 2e-5f;
inline constexpr float kUnit = 5.9604645e-8f;  // half the distance from 1 to the next float32
inline constexpr size_t kRowBounds = 1;        // floats per row of sums for its bounds: see `pack`

struct Bounds {
  float own = 0, moved = 0;
};

// Both parts are packed into one float: a batch reads and writes the bounds of rows all over the graph, and half the
// bytes give half the cache misses. Each part has 7 bits of exponent, from 2^-80 on, and 9 bits of fraction. It is
// rounded up, so that small steps add up; a value below 2^-80 becomes zero. A value that is too large to encode becomes
// infinite, and so does NaN. The code has no branches, because it runs for each row that a batch reaches.
inline constexpr int32_t kCodeShift = 14, kCodeFirst = (127 - 80) << 23, kCodeEndless = 0xffff;

// Requires: the bound is not negative.
inline uint32_t encode_bound(float bound) {
  const int32_t above = std::bit_cast<int32_t>(bound) - kCodeFirst + (1 << kCodeShift) - 1;
  return static_cast<uint32_t>(std::min(std::max(above, 0) >> kCodeShift, kCodeEndless));
}

inline float decode_bound(uint32_t code) {
  const auto bound = std::bit_cast<float>((code << kCodeShift) + static_cast<uint32_t>(kCodeFirst));
  const float ended = code == 0 ? 0.0f : bound;
  return code == static_cast<uint32_t>(kCodeEndless) ? std::numeric_limits<float>::infinity() : ended;
}

inline void pack(const Bounds& bounds, float* cell) {
  const uint32_t codes = encode_bound(bounds.own) << 16 | encode_bound(bounds.moved);
  std::memcpy(cell, &codes, sizeof(codes));
}

inline Bounds unpack(const float* cell) {
  uint32_t codes;
  std::memcpy(&codes, cell, sizeof(codes));
  return {decode_bound(codes >> 16), decode_bound(codes & 0xffff)};
}

// The rounding of a sum of `count` terms whose magnitudes add up to `reach`: each was rounded when it was computed and
// again when it was added; the latter errors partly cancel.
inline float rounding_of_terms(float reach, size_t count) {
  return kUnit * reach * (2 + std::sqrt(static_cast<float>(static_cast<int64_t>(count))));
}

// The touches with which a row that has just been summed starts.
inline float first_touches(size_t terms) { return 3 * std::sqrt(static_cast<float>(std::min(terms, kSumBlock))); }

// How often a sum of messages that are far from 0 may be touched after that.
inline float most_touches(size_t terms) { return 1 + static_cast<float>(terms) / 8; }

// Initial bounds, packed into `cell`, of a row of magnitude `peak` that has just been summed from `count` terms.
inline void begin_bounds(float peak, size_t count, float* cell) {
  pack({first_touches(count) * kUnit * peak, 0}, cell);
}

// The bounds after one more touch, from those packed in `before`, for a row whose magnitude is now `peak`; also packed
// into `cell`. The new units are `shrunk` times smaller than those of `before`.
inline Bounds touch_bounds(const float* before, float shrunk, float peak, float reach, size_t count, float* cell) {
  Bounds bounds = unpack(before);
  bounds.own = shrunk * bounds.own + kUnit * peak;
  bounds.moved = shrunk * bounds.moved + rounding_of_terms(reach, count);
  pack(bounds, cell);
  return bounds;
}

// The typical magnitude of a sum of messages, in units: the root of their number if they cancel. `mean`: the typical
// mean if only means are read, else 0.
inline float typical_sum(size_t terms, float mean) {
  const auto n = static_cast<float>(std::max<size_t>(1, terms));
  return std::max(std::sqrt(n), n * mean);
}

// offset: whether messages are far from 0. `terms()` is called only if the result depends on it, because looking up a
// degree costs a cache miss.
template <class Terms>
bool is_good(const Bounds& bounds, float peak, float mean, bool offset, const Terms& terms) {
  const auto [own, moved] = bounds;
  const float error = own + moved;
  if (!(error <= kDriftTolerance * peak) || !(error < std::numeric_limits<float>::max())) return false;
  // A first bound is rounded up when it is packed.
  if (offset && !(own <= kUnit * peak * (1.01f * first_touches(terms()) + most_touches(terms())))) return false;
  // A term that moved counts at least three times in `moved`: own / (kUnit * peak) * (moved / 3) is the error of the
  // touches.
  auto within = [&](float most) { return error <= most || own * moved <= 3 * kUnit * peak * (most - moved); };
  return peak == 0 || within(kDriftTolerance) || within(kDriftTolerance * typical_sum(terms(), mean));
}

// The same for a head of a row that is divided by a total, the sum of its coefficients: the result is a mean of
// messages, whose unit is that of messages. A row and a total that have just been summed have no error.
template <class Terms>
bool is_good_head(float error, float peak, float total_error, float total, bool offset, const Terms& terms) {
  const float size = std::fabs(total);
  if (!(error <= kDriftTolerance * std::min(peak, size) && total_error <= kDriftTolerance * size)) return false;
  if (!std::isfinite(peak) || !std::isfinite(size)) return false;
  if (!offset) return true;
  const float most = kUnit * most_touches(terms());
  return error <= most * peak && total_error <= most * size;
}

}  // namespace livegnn
