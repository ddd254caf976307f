// Sums of weights that can be changed and searched in logarithmic time (PlatoD2GL, section V-A: FSTable).
//
// A Fenwick tree over runs of `Run` weights: entry i is the sum of the runs (i - LSB(i + 1), i].
//
//   weights  | w0 .. w31 | w32 .. w63 | w64 .. w95 | w96 .. w127 | w128 ..      Run = 32
//   table    |    s0     |  s0 + s1   |     s2     |  s0 .. s3   |  s4
//
// The paper's table has an entry for every weight (Run = 1) and stands in the place of the weights, which then come back
// as differences, rounded. Here the weights stay as they were given, and the table takes 1/Run of their memory; the last
// step of a search adds up one run, which lies in two cache lines. Where there is one run, there is no table.
//
// Invariant: an entry is a function of the weights alone: it is always the sum of its own run, in a fixed order, and of
// the entries below it; changes are not added to it. So nothing drifts: after any number of updates an entry differs from
// the exact sum by at most (Run / 4 + 3 + log2(runs)) * 2^-24 of it. A negative weight counts as 0.
// Thread safety: none of its own; it works on memory that the caller owns.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace livegnn {

template <uint32_t Run>
struct BasicFSTable {
  static constexpr uint32_t runs(uint32_t n) { return (n + Run - 1) / Run; }
  // How long the table over n weights is.
  static constexpr uint32_t size(uint32_t n) { return n <= Run ? 0 : runs(n); }

  static void build(const float* weights, uint32_t n, float* table) {
    for (uint32_t i = 0; i < size(n); ++i) table[i] = entry(weights, n, table, i);
  }

  // After weight i of n has changed: entry i / Run and those that contain it. A weight that was appended is weight n - 1;
  // one that was deleted was overwritten by the last, which is then `update` of i in n - 1 and `truncate`.
  static void update(const float* weights, uint32_t n, float* table, uint32_t i) {
    for (uint32_t r = i / Run; r < size(n); r += lowest_bit(r + 1)) table[r] = entry(weights, n, table, r);
  }

  // After weight n, the last, was taken away: the run that it was in, if that is still there.
  static void truncate(const float* weights, uint32_t n, float* table) {
    if (n > 0) update(weights, n, table, n - 1);
  }

  static double total(const float* weights, uint32_t n, const float* table) {
    if (n <= Run) return run_sum(weights, n);
    double sum = 0;
    for (uint32_t i = runs(n); i > 0; i -= lowest_bit(i)) sum += table[i - 1];
    return sum;
  }

  // The run in which the running sum first exceeds `rest`, which becomes what is left of it there (FTS, algorithm 5).
  static uint32_t find_run(uint32_t n, const float* table, double* rest) {
    const uint32_t count = size(n);
    uint32_t run = 0;
    for (uint32_t step = std::bit_floor(count); step > 0; step /= 2) {
      if (run + step <= count && table[run + step - 1] <= *rest) {
        run += step;
        *rest -= table[run - 1];
      }
    }
    return run < count || count == 0 ? run : count - 1;
  }

  // The weight within a run at which the running sum first exceeds `rest`; rounding may carry `rest` past the end, then
  // it is the last weight of the run that is not 0. n, if every weight of the run is.
  static uint32_t find_in_run(const float* weights, uint32_t n, uint32_t run, double rest) {
    const uint32_t begin = run * Run, end = begin + Run < n ? begin + Run : n;
    double sum = 0;
    uint32_t last = n;
    for (uint32_t i = begin; i < end; ++i) {
      if (!(weights[i] > 0)) continue;
      sum += weights[i];
      last = i;
      if (sum > rest) break;
    }
    return last;
  }

  // Draws by weight: `at` is uniform in [0, total). n, if every weight is 0.
  static uint32_t find(const float* weights, uint32_t n, const float* table, double at) {
    const uint32_t run = find_run(n, table, &at);
    const uint32_t found = find_in_run(weights, n, run, at);
    if (found < n || run == 0) return found;
    // Rounding has led into a run of zeros: the nearest weight before it is as right as any.
    for (uint32_t i = run * Run; i > 0; --i) {
      if (weights[i - 1] > 0) return i - 1;
    }
    return n;
  }

 private:
  static uint32_t lowest_bit(uint32_t i) { return i & (~i + 1); }

  // Four running sums, added up at the end: as fast as vectors are, and the same on every machine.
  static float run_sum(const float* weights, uint32_t n) {
    float sums[4] = {0, 0, 0, 0};
    uint32_t i = 0;
    for (; i + 4 <= n; i += 4) {
      for (uint32_t j = 0; j < 4; ++j) sums[j] += weights[i + j] > 0 ? weights[i + j] : 0.0f;
    }
    for (uint32_t j = 0; i < n; ++i, ++j) sums[j] += weights[i] > 0 ? weights[i] : 0.0f;
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
  }

  static float entry(const float* weights, uint32_t n, const float* table, uint32_t r) {
    const uint32_t begin = r * Run, end = begin + Run < n ? begin + Run : n;
    float sum = run_sum(weights + begin, end - begin);
    for (uint32_t step = 1; step < lowest_bit(r + 1); step *= 2) sum += table[r - step];
    return sum;
  }
};

using FSTable = BasicFSTable<32>;

}  // namespace livegnn
