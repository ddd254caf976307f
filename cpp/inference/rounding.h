// How much rounding a row that is not summed from its neighbours may have gathered, in units of columns.
//
// Channels of one row may differ by ten orders of magnitude, and a model may read the smallest. So a magnitude is that
// of a row whose every channel is divided by the channel's scale: what messages typically are there, over the graph
// (units.h). A spike in one channel is then large whichever channel it is in.
//
// What a row has gathered comes in two parts, to first order and for its worst channel:
//
//   own      each time, the row itself was rounded, as large as it was then
//   moved    the terms that came and went were rounded when they were taken, and when they were added
//
// `own` alone would have hubs summed anew at every touch, since the sum of n terms of one sign is n of them, while
// channels whose terms cancel are known to the root of n. But its larger part is rounding of channels that are as large
// as they were, and is small beside them. What matters to any other is by how much the channel can have been larger: no
// more than what has moved. So a row is good while
//
//   own + moved                         <= kDriftTolerance * its magnitude, and
//   moved + min(own, touches * moved)   <= kDriftTolerance * sqrt(number of its terms)
//
// with own / magnitude for the touches. A row that has just been summed begins as if it had been touched as often as
// its partial sums were rounded: these errors partly cancel, but less where terms are alike, and three times the root
// of their number is what was seen of such. A sum of which only the mean is read may differ by more than the root of n,
// where means do not cancel as much: by as many times kDriftTolerance as n typical means are. Whatever is not finite is
// not good.
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
inline constexpr size_t kRowBounds = 1;        // floats that a row of sums keeps of its rounding: see `pack`

struct Bounds {
  float own = 0, moved = 0;
};

// Both parts in the place of one float, since a batch reads and writes those of rows all over the graph: half the bytes
// miss the cache half as often. Each has 7 bits of exponent, from 2^-80 on, and 9 of its fraction, and is rounded up,
// so that small steps add up; less than 2^-80 is nothing. What is too large to be said has no end, and so has
// what is not a number. Without branches, since each row that a batch reaches passes here.
inline constexpr int32_t kCodeShift = 14, kCodeFirst = (127 - 80) << 23, kCodeEndless = 0xffff;

// Of a bound that is not below 0.
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

// Of a sum of `count` terms that come to `reach`: each was rounded when it was taken and again when it was added; the
// latter errors partly cancel.
inline float rounding_of_terms(float reach, size_t count) {
  return kUnit * reach * (2 + std::sqrt(static_cast<float>(static_cast<int64_t>(count))));
}

// Packed into `cell`: of a row as large as `peak` that has just been summed from `count` terms.
inline void begin_bounds(float peak, size_t count, float* cell) {
  pack({3 * std::sqrt(static_cast<float>(std::min(count, kSumBlock))) * kUnit * peak, 0}, cell);
}

// After one more touch, from those packed in `before`, of a row that is now as large as `peak`; also packed into
// `cell`. Units are `shrunk` times smaller than those in which `before` is.
inline Bounds touch_bounds(const float* before, float shrunk, float peak, float reach, size_t count, float* cell) {
  Bounds bounds = unpack(before);
  bounds.own = shrunk * bounds.own + kUnit * peak;
  bounds.moved = shrunk * bounds.moved + rounding_of_terms(reach, count);
  pack(bounds, cell);
  return bounds;
}

// What a sum of some messages comes to, in units: the root of their number if they cancel. `mean`: what means typically
// are where only these are read, else 0.
inline float typical_sum(size_t terms, float mean) {
  const auto n = static_cast<float>(std::max<size_t>(1, terms));
  return std::max(std::sqrt(n), n * mean);
}

// `terms()` is asked for only where it decides: to look a degree up costs a cache miss.
template <class Terms>
bool is_good(const Bounds& bounds, float peak, float mean, const Terms& terms) {
  const auto [own, moved] = bounds;
  const float error = own + moved;
  if (!(error <= kDriftTolerance * peak) || !(error < std::numeric_limits<float>::max())) return false;
  // A term that moved is in `moved` three times at least: own / (kUnit * peak) * (moved / 3) is what comes of touches.
  auto within = [&](float most) { return error <= most || own * moved <= 3 * kUnit * peak * (most - moved); };
  return peak == 0 || within(kDriftTolerance) || within(kDriftTolerance * typical_sum(terms(), mean));
}

}  // namespace livegnn
