// Shared by the tests of kernels: every instruction set that the processor has, and scattered rows.
#pragma once

#include <cstring>
#include <utility>
#include <vector>

#include "memory/table.h"
#include "program/kernels.h"
#include "testing/testing.h"

namespace livegnn {

namespace generic {
extern const Kernels kKernels;
}
#if defined(__x86_64__)
namespace avx2 {
extern const Kernels kKernels;
}
namespace avx512 {
extern const Kernels kKernels;
}
#endif

namespace testing {

using Floats = std::vector<float>;

inline constexpr double kHalfUlp = 1.0 / (1 << 24);  // half the distance from 1 to the next float32

// The sets that this processor has, the simplest first.
inline std::vector<const Kernels*> all_kernels() {
  std::vector<const Kernels*> all{&generic::kKernels};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) all.push_back(&avx2::kKernels);
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl")) {
    all.push_back(&avx512::kKernels);
  }
#endif
  return all;
}

inline std::vector<size_t> widths() {
  std::vector<size_t> all;
  for (size_t width = 1; width <= 70; ++width) all.push_back(width);
  all.insert(all.end(), {96, 127, 128, 200, 256});
  return all;
}

inline bool same_bits(const float* a, const float* b, size_t n) { return std::memcmp(a, b, n * sizeof(float)) == 0; }
inline bool same_bits(const Floats& a, const Floats& b) {
  return a.size() == b.size() && same_bits(a.data(), b.data(), a.size());
}

// Rows scattered in memory, in random order.
struct ScatteredRows {
  ScatteredRows(size_t count, size_t width, Random* random) : stride(row_stride(width) + 16), data(count * stride) {
    std::vector<size_t> places(count);
    for (size_t i = 0; i < count; ++i) places[i] = i;
    for (size_t i = count; i > 1; --i) std::swap(places[i - 1], places[random->below(i)]);
    for (size_t i = 0; i < count; ++i) {
      float* row = data.data() + places[i] * stride;
      Floats values = random->floats(width);
      std::copy(values.begin(), values.end(), row);
      rows.push_back(row);
    }
  }

  size_t stride;
  Floats data;
  std::vector<const float*> rows;
};

// Runs `body(kernels)` with every set and checks that all give the same bits.
template <class Body>
Floats agreed(const Body& body) {
  Floats first;
  for (const Kernels* k : all_kernels()) {
    Floats result = body(*k);
    if (k == &generic::kKernels) first = result;
    CHECK(same_bits(first, result));
  }
  return first;
}

}  // namespace testing
}  // namespace livegnn
