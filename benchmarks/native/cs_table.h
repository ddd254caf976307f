// The table that FSTable replaces: cumulative sums of weights, in the place of the weights (PlatoD2GL, section II-B).
//
// A draw is a binary search. A weight is the difference of two sums, so it comes back rounded to the sums' precision; a
// change is added to every sum behind it, as vectors.
// Thread safety: none of its own; it works on memory that the caller owns.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace livegnn::bench {

struct CSTable {
  static float weight(const float* sums, size_t i) { return i == 0 ? sums[0] : sums[i] - sums[i - 1]; }
  static float total(const float* sums, size_t n) { return n == 0 ? 0.0f : sums[n - 1]; }

  // What to append for a new weight after n others.
  static float next(const float* sums, size_t n, float weight) { return total(sums, n) + weight; }

  static void build(const float* weights, size_t n, float* sums) {
    double sum = 0;
    for (size_t i = 0; i < n; ++i) sums[i] = static_cast<float>(sum += weights[i]);
  }

  static void update(float* sums, size_t n, size_t i, float weight) {
    const float change = weight - CSTable::weight(sums, i);
    for (; i < n; ++i) sums[i] += change;
  }

  // The last of n takes the place of i; the caller shortens the table by one.
  static void remove(float* sums, size_t n, size_t i) {
    if (i + 1 < n) update(sums, n - 1, i, weight(sums, n - 1));
  }

  // The first sum that exceeds `at`, uniform in [0, total).
  static size_t find(const float* sums, size_t n, float at) {
    const auto found = static_cast<size_t>(std::upper_bound(sums, sums + n, at) - sums);
    return found < n ? found : n - 1;
  }
};

}  // namespace livegnn::bench
