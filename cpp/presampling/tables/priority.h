// The priorities by which neighbours are sampled: a node's sample is the neighbours with the smallest ones.
//
//   uniform   a hash of (seed, query, node, neighbour): each neighbour comes first with the same probability
//   weight    -log(u) / weight, where u in (0, 1] is made of the same hash: the smallest are a draw without replacement
//             in proportion to the weights (A-ES: Efraimidis and Spirakis, Weighted Random Sampling with a Reservoir)
//   latest    the time, negated: greatest times first
//
// Equal priorities are ordered by the smaller neighbour. So a sample is a function of the node's present neighbours,
// and not of their history; and of the same numbers on every machine, because no priority depends on a library's
// logarithm.
//
// Thread safety: all of it.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "hashing/mix_hash.h"

namespace livegnn {

inline constexpr uint64_t kPriorityStep = 0x9e3779b97f4a7c15ULL;  // 2^64 over the golden ratio, made odd

// What the priorities of one query start from, and those of one node in it.
inline uint64_t query_salt(uint64_t seed, uint64_t query) {
  const MixHash mix;
  return mix(mix(seed + kPriorityStep) + query);
}
inline uint64_t node_salt(uint64_t query_salt, uint64_t node) { return MixHash{}(query_salt + node); }

inline uint64_t uniform_priority(uint64_t node_salt, uint64_t neighbor) {
  return MixHash{}(node_salt + (neighbor + 1) * kPriorityStep);
}

// A number whose order among unsigned ones is that of the doubles; -0 is as 0.
inline uint64_t ordered_bits(double number) {
  const auto bits = std::bit_cast<uint64_t>(number + 0.0);
  return bits ^ ((bits >> 63) != 0 ? ~uint64_t{0} : uint64_t{1} << 63);
}
inline double from_ordered_bits(uint64_t bits) {
  return std::bit_cast<double>(bits ^ ((bits >> 63) != 0 ? uint64_t{1} << 63 : ~uint64_t{0}));
}

inline uint64_t latest_priority(double time) { return ordered_bits(-time); }
inline double time_of_priority(uint64_t priority) { return 0.0 - from_ordered_bits(priority); }

// -log(u) for u in (0, 1], correct to a few units of the last place, and the same bits everywhere: additions,
// multiplications and one division, of which the compiler fuses none (cpp/CMakeLists.txt).
inline double minus_log(double u) {
  const auto bits = std::bit_cast<uint64_t>(u);
  auto exponent = static_cast<int>(bits >> 52) - 1023;
  double part = std::bit_cast<double>((bits & ((uint64_t{1} << 52) - 1)) | (uint64_t{1023} << 52));  // in [1, 2)
  if (part > 1.4142135623730951) {
    part *= 0.5;
    ++exponent;
  }
  // log(part) = 2 atanh(s), by its series, for |s| < 0.172.
  const double s = (part - 1) / (part + 1), z = s * s;
  double sum = 0;
  for (int n = 23; n >= 1; n -= 2) sum = sum * z + 1.0 / n;
  return std::fabs(exponent * 0.6931471805599453 + 2 * s * sum);
}

// Requires: a positive weight.
inline uint64_t weight_priority(uint64_t uniform_priority, float weight) {
  const double u = static_cast<double>((uniform_priority >> 11) + 1) * 0x1p-53;
  return ordered_bits(minus_log(u) / static_cast<double>(weight));
}

}  // namespace livegnn
