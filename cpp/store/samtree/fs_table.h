// Sums of weights that can be updated and searched in logarithmic time (PlatoD2GL, section V-A: FSTable).
//
// A Fenwick tree over the complete runs of `Run` weights: entry i is the sum of the runs (i - LSB(i + 1), i].
//
//   weights  | w0 .. w31 | w32 .. w63 | w64 .. w95 | w96 .. w127 | w128 ..      Run = 32
//   table    |    s0     |  s0 + s1   |     s2     |  s0 .. s3   |  (none: the run is not complete)
//
// The paper's table has an entry for every weight (Run = 1) and replaces the weights, which are then recovered as
// differences, with rounding errors. Here the weights are stored unchanged, and the table takes 1/Run of their memory.
// The last step of a search adds up one run, which fits in two cache lines, and so does the sum of the incomplete run.
//
// Invariants: an entry is a function of the weights alone: it is always computed as the sum of its own run, in a fixed
// order, and of the entries below it; changes are not added to it. So there is no drift: after any number of updates an
// entry differs from the exact sum by at most (Run / 4 + 3 + log2(runs)) * 2^-24 of it. A negative weight counts as 0.
// Appending changes no existing entry, so a reader that knows a smaller number of weights may go on reading. Thread
// safety: none of its own; it works on memory that the caller owns.
#pragma once

#include <bit>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace livegnn {

template <uint32_t Run>
struct BasicFSTable {
  static constexpr uint32_t kRun = Run;

  // Length of the table over n weights.
  static constexpr uint32_t size(uint32_t n) { return n / Run; }

  static void build(const float* weights, uint32_t n, float* table) {
    for (uint32_t i = 0; i < size(n); ++i) table[i] = entry(weights, table, i);
  }

  // Call it after weight i of n has changed; updates the entry of its run, and those that contain it. Requires: i < n.
  static void update(const float* weights, uint32_t n, float* table, uint32_t i) {
    assert(i < n);
    for (uint32_t r = i / Run; r < size(n); r += lowest_bit(r + 1)) table[r] = entry(weights, table, r);
  }

  // Call it after weight n - 1 was appended.
  static void append(const float* weights, uint32_t n, float* table) {
    if (n % Run == 0) table[n / Run - 1] = entry(weights, table, n / Run - 1);
  }

  // Call it after weight i was overwritten by the last one, n, which no longer counts. (Nothing to do if weight i was
  // itself the last.)
  static void remove(const float* weights, uint32_t n, float* table, uint32_t i) {
    if (i < n) update(weights, n, table, i);
  }

  static double total(const float* weights, uint32_t n, const float* table) {
    double sum = run_sum(weights + size(n) * Run, n % Run);
    for (uint32_t i = size(n); i > 0; i -= lowest_bit(i)) sum += table[i - 1];
    return sum;
  }

  // The run in which the running sum first exceeds `rest`; `rest` becomes the remainder within that run (FTS, algorithm
  // 5). If no complete run does, the run after the last complete one.
  static uint32_t find_run(uint32_t n, const float* table, double* rest) {
    const uint32_t count = size(n);
    uint32_t run = 0;
    for (uint32_t step = std::bit_floor(count); step > 0; step /= 2) {
      if (run + step <= count && table[run + step - 1] <= *rest) {
        run += step;
        *rest -= table[run - 1];
      }
    }
    return run;
  }

  // The weight within a run at which the running sum first exceeds `rest`. Rounding may carry `rest` past the end; then
  // it is the last weight of the run that is not 0. Returns n if every weight of the run is 0.
  static uint32_t find_in_run(const float* weights, uint32_t n, uint32_t run, double rest) {
    if (Run % 8 == 0 && (run + 1) * Run <= n) {
      const uint32_t found = run * Run + find_in_full_run(weights + run * Run, rest);
      if (weights[found] > 0) return found;
    }
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

  // Draws by weight: `at` is uniform in [0, total). Returns n if every weight is 0. Requires: `at` is not negative.
  static uint32_t find(const float* weights, uint32_t n, const float* table, double at) {
    assert(at >= 0);
    const uint32_t run = find_run(n, table, &at);
    const uint32_t found = find_in_run(weights, n, run, at);
    if (found < n || run == 0) return found;
    // Rounding has led past the last weight, or into a run of zeros: take the nearest positive weight before it.
    for (uint32_t i = run * Run < n ? run * Run : n; i > 0; --i) {
      if (weights[i - 1] > 0) return i - 1;
    }
    return n;
  }

 private:
  static uint32_t lowest_bit(uint32_t i) { return i & (~i + 1); }

  // Four running sums, added up at the end: as fast as vector instructions, and with the same bits on every machine.
  static float run_sum(const float* weights, uint32_t n) {
    float sums[4] = {0, 0, 0, 0};
    uint32_t i = 0;
    for (; i + 4 <= n; i += 4) {
      for (uint32_t j = 0; j < 4; ++j) sums[j] += weights[i + j] > 0 ? weights[i + j] : 0.0f;
    }
    for (uint32_t j = 0; j < n % 4; ++j) sums[j] += weights[i + j] > 0 ? weights[i + j] : 0.0f;
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
  }

  // Contains no branch that depends on weights, because such branches are unpredictable. First finds the group of
  // eight, then the weight within it.
  static uint32_t find_in_full_run(const float* weights, double rest) {
    double before = 0, sum = 0;
    uint32_t found = 0;
    for (uint32_t i = 0; i + 8 < Run; i += 8) {
      sum += run_sum(weights + i, 8);
      const bool past = sum <= rest;
      found += past ? 8 : 0;
      before = past ? sum : before;
    }
    const float* eight = weights + found;
    for (uint32_t j = 0; j < 7; ++j) {
      before += eight[j] > 0 ? eight[j] : 0.0f;
      found += before <= rest ? 1 : 0;
    }
    return found;
  }

  static float entry(const float* weights, const float* table, uint32_t r) {
    float sum = run_sum(weights + r * Run, Run);
    for (uint32_t step = 1; step < lowest_bit(r + 1); step *= 2) sum += table[r - step];
    return sum;
  }
};

using FSTable = BasicFSTable<32>;

}  // namespace livegnn
