// The kernels, compiled once per instruction set into their own namespace: LIVEGNN_ISA names it, LIVEGNN_LANES is the
// number of floats in a register. kernels.h documents the functions. This file uses no function template of the
// standard library: the linker keeps one copy of each, and it could keep one that was compiled for an instruction set
// that the processor lacks.
#include "program/kernels.h"
#include "program/kernels_codes.h"
#include "program/kernels_product.h"
#include "program/kernels_vector.h"

namespace livegnn::LIVEGNN_ISA {
namespace {

// W vectors of the sum stay in registers during the loop over rows.
template <size_t W>
void add_rows_strip(size_t count, const float* const* rows, const uint32_t* indices, const float* coefficients,
                    size_t offset, float* sum) {
  Vector total[W];
  for (size_t w = 0; w < W; ++w) total[w] = load(sum + offset + w * kLanes);
  for (size_t i = 0; i < count; ++i) {
    const float* row = rows[indices[i]] + offset;
    Vector coefficient = broadcast(coefficients[i]);
    for (size_t w = 0; w < W; ++w) total[w] = fused(coefficient, load(row + w * kLanes), total[w]);
  }
  for (size_t w = 0; w < W; ++w) store(sum + offset + w * kLanes, total[w]);
}

void add_rows(size_t width, size_t count, const float* const* rows, const uint32_t* indices, const float* coefficients,
              float* sum) {
  size_t offset = 0;
  for (; offset + 8 * kLanes <= width; offset += 8 * kLanes) {
    add_rows_strip<8>(count, rows, indices, coefficients, offset, sum);
  }
  if (offset + 4 * kLanes <= width) {
    add_rows_strip<4>(count, rows, indices, coefficients, offset, sum);
    offset += 4 * kLanes;
  }
  if (offset + 2 * kLanes <= width) {
    add_rows_strip<2>(count, rows, indices, coefficients, offset, sum);
    offset += 2 * kLanes;
  }
  if (offset + kLanes <= width) {
    add_rows_strip<1>(count, rows, indices, coefficients, offset, sum);
    offset += kLanes;
  }
  if (offset == width) return;
  for (size_t i = 0; i < count; ++i) {
    const float* row = rows[indices[i]];
    for (size_t c = offset; c < width; ++c) sum[c] += coefficients[i] * row[c];
  }
}

// Like `add_rows`, with rows of a table; the next rows are prefetched while one is added.
template <size_t W>
void gather_strip(size_t count, const float* table, size_t stride, const uint32_t* ids, const float* coefficients,
                  size_t offset, float* sum) {
  constexpr size_t kAhead = 6;
  Vector total[W];
  for (size_t w = 0; w < W; ++w) total[w] = load(sum + offset + w * kLanes);
  for (size_t i = 0; i < count; ++i) {
    if (i + kAhead < count) {
      const float* next = table + ids[i + kAhead] * stride + offset;
      for (size_t c = 0; c < W * kLanes; c += 16) __builtin_prefetch(next + c);
    }
    const float* row = table + ids[i] * stride + offset;
    Vector coefficient = broadcast(coefficients == nullptr ? 1.0f : coefficients[i]);
    for (size_t w = 0; w < W; ++w) total[w] = fused(coefficient, load(row + w * kLanes), total[w]);
  }
  for (size_t w = 0; w < W; ++w) store(sum + offset + w * kLanes, total[w]);
}

void gather_rows(size_t width, size_t count, const float* table, size_t stride, const uint32_t* ids,
                 const float* coefficients, float* sum) {
  size_t offset = 0;
  for (; offset + 8 * kLanes <= width; offset += 8 * kLanes) {
    gather_strip<8>(count, table, stride, ids, coefficients, offset, sum);
  }
  if (offset + 4 * kLanes <= width) {
    gather_strip<4>(count, table, stride, ids, coefficients, offset, sum);
    offset += 4 * kLanes;
  }
  if (offset + 2 * kLanes <= width) {
    gather_strip<2>(count, table, stride, ids, coefficients, offset, sum);
    offset += 2 * kLanes;
  }
  if (offset + kLanes <= width) {
    gather_strip<1>(count, table, stride, ids, coefficients, offset, sum);
    offset += kLanes;
  }
  if (offset == width) return;
  for (size_t i = 0; i < count; ++i) {
    const float* row = table + ids[i] * stride;
    float coefficient = coefficients == nullptr ? 1.0f : coefficients[i];
    for (size_t c = offset; c < width; ++c) sum[c] += coefficient * row[c];
  }
}

void max_rows(size_t width, size_t count, const float* const* rows, const uint32_t* indices, const float* coefficients,
              float* out, uint32_t* ties) {
  for (size_t i = 0; i < count; ++i) {
    const float* row = rows[indices[i]];
    for (size_t c = 0; c < width; ++c) {
      const float value = coefficients[i] * row[c], before = out[c];
      const uint32_t equal = ties[c] + (value == before ? 1 : 0);
      const bool takes = value > before || value != value;  // NaN persists, as in a framework
      ties[c] = takes ? 1 : equal;
      out[c] = takes ? value : before;
    }
  }
}

void count_equal(size_t width, const float* row, float coefficient, const float* out, uint32_t* ties) {
  for (size_t c = 0; c < width; ++c) ties[c] += coefficient * row[c] == out[c] ? 1 : 0;
}

void subtract(size_t width, const float* a, const float* b, float* out) {
  for (size_t c = 0; c < width; ++c) out[c] = a[c] - b[c];
}

// Magnitudes as bits, in the order of the numbers, with non-finite values above all others: a comparison of floats
// would ignore a NaN.
typedef int Bits __attribute__((vector_size(kLanes * sizeof(float)), aligned(4), may_alias));
constexpr int kMagnitude = 0x7fffffff, kInfinity = 0x7f800000;
inline int larger_bits(int a, int b) { return a > b ? a : b; }
inline Bits larger_bits(Bits a, Bits b) { return a > b ? a : b; }
inline Bits magnitude_bits(Vector value) {
  Bits bits;
  __builtin_memcpy(&bits, &value, sizeof(bits));
  return bits & kMagnitude;
}
inline int magnitude_bits(float value) {
  int bits;
  __builtin_memcpy(&bits, &value, sizeof(bits));
  return bits & kMagnitude;
}
inline int largest_of(Bits lanes) {
  int highest = 0;
  for (size_t i = 0; i < kLanes; ++i) highest = larger_bits(highest, lanes[i]);
  return highest;
}
inline float float_of(int bits) {
  float value;
  __builtin_memcpy(&value, &bits, sizeof(value));
  return value;
}

bool apply_delta(size_t width, const float* old, const float* delta, const float* inverse, float* out, float* peak) {
  Bits differs = {}, largest = {};
  size_t c = 0;
  for (; c + kLanes <= width; c += kLanes) {
    const Vector before = load(old + c), value = before + load(delta + c);
    differs |= value != before;
    largest = larger_bits(largest, magnitude_bits(value * load(inverse + c)));
    store(out + c, value);
  }
  int changed = 0, highest = largest_of(largest);
  for (size_t i = 0; i < kLanes; ++i) changed |= differs[i];
  for (; c < width; ++c) {
    const float value = old[c] + delta[c];
    changed |= value != old[c] ? 1 : 0;
    highest = larger_bits(highest, magnitude_bits(value * inverse[c]));
    out[c] = value;
  }
  *peak = float_of(highest);
  return changed != 0;
}

bool differs(size_t width, const float* a, const float* b) {
  return __builtin_memcmp(a, b, width * sizeof(float)) != 0;
}

float peak(size_t width, const float* row) {
  Vector largest = {};
  size_t c = 0;
  for (; c + kLanes <= width; c += kLanes) {
    const Vector value = load(row + c), positive = value < 0 ? -value : value;
    largest = positive > largest ? positive : largest;
  }
  float highest = 0;
  for (size_t i = 0; i < kLanes; ++i) highest = larger(highest, largest[i]);
  for (; c < width; ++c) highest = larger(highest, magnitude(row[c]));
  return highest;
}

float scaled_peak(size_t width, const float* row, const float* inverse) {
  Bits largest = {};
  size_t c = 0;
  for (; c + kLanes <= width; c += kLanes) {
    largest = larger_bits(largest, magnitude_bits(load(row + c) * load(inverse + c)));
  }
  int highest = largest_of(largest);
  for (; c < width; ++c) highest = larger_bits(highest, magnitude_bits(row[c] * inverse[c]));
  return float_of(highest);
}

bool finite(size_t width, const float* row) {
  Bits largest = {}, beside = {};
  size_t c = 0;
  for (; c + 2 * kLanes <= width; c += 2 * kLanes) {
    largest = larger_bits(largest, magnitude_bits(load(row + c)));
    beside = larger_bits(beside, magnitude_bits(load(row + c + kLanes)));
  }
  for (; c + kLanes <= width; c += kLanes) largest = larger_bits(largest, magnitude_bits(load(row + c)));
  int highest = largest_of(larger_bits(largest, beside));
  for (; c < width; ++c) highest = larger_bits(highest, magnitude_bits(row[c]));
  return highest < kInfinity;
}

#if LIVEGNN_LANES == 16
typedef float Half __attribute__((vector_size(8 * sizeof(float)), aligned(4), may_alias));
#endif

// Copies, because a template argument loses the alignment that its type was given.
template <class T>
inline T read(const float* p) {
  T value;
  __builtin_memcpy(&value, p, sizeof(T));
  return value;
}
template <class T>
inline void write(float* p, T value) {
  __builtin_memcpy(p, &value, sizeof(T));
}

// `out[r][c] = function(r, c)`, with as many columns at once as there are lanes; `function` is called with the type to
// read.
template <class Function>
inline void map_rows(size_t rows, size_t width, float* out, size_t stride, const Function& function) {
  for (size_t r = 0; r < rows; ++r, out += stride) {
    size_t c = 0;
    for (; c + kLanes <= width; c += kLanes) write(out + c, function(Vector{}, r, c));
#if LIVEGNN_LANES == 16
    if (c + 8 <= width) {
      write(out + c, function(Half{}, r, c));
      c += 8;
    }
#endif
    for (; c < width; ++c) out[c] = function(0.0f, r, c);
  }
}

void add(size_t rows, size_t width, const float* const* a, const float* const* b, float* out, size_t stride) {
  map_rows(rows, width, out, stride, [&](auto type, size_t r, size_t c) {
    return read<decltype(type)>(a[r] + c) + read<decltype(type)>(b[r] + c);
  });
}
void multiply_elements(size_t rows, size_t width, const float* const* a, const float* const* b, float* out,
                       size_t stride) {
  map_rows(rows, width, out, stride, [&](auto type, size_t r, size_t c) {
    return read<decltype(type)>(a[r] + c) * read<decltype(type)>(b[r] + c);
  });
}
void maximum(size_t rows, size_t width, const float* const* a, const float* const* b, float* out, size_t stride) {
  map_rows(rows, width, out, stride, [&](auto type, size_t r, size_t c) {
    const auto left = read<decltype(type)>(a[r] + c), right = read<decltype(type)>(b[r] + c);
    return left > right || left != left ? left : right;
  });
}
void add_scaled(size_t rows, size_t width, const float* const* a, const float* const* b, const float* factors,
                float* out, size_t stride) {
  map_rows(rows, width, out, stride, [&](auto type, size_t r, size_t c) {
    return read<decltype(type)>(a[r] + c) + factors[r] * read<decltype(type)>(b[r] + c);
  });
}
void scale(size_t rows, size_t width, const float* const* a, const float* factors, float* out, size_t stride) {
  map_rows(rows, width, out, stride,
           [&](auto type, size_t r, size_t c) { return read<decltype(type)>(a[r] + c) * factors[r]; });
}
void scale_shift(size_t rows, size_t width, const float* const* a, const float* scale, const float* shift, float* out,
                 size_t stride) {
  map_rows(rows, width, out, stride, [&](auto type, size_t r, size_t c) {
    using T = decltype(type);
    T value = read<T>(a[r] + c);
    if (scale != nullptr) value = value * read<T>(scale + c);
    if (shift != nullptr) value = value + read<T>(shift + c);
    return value;
  });
}
void relu(size_t rows, size_t width, const float* const* a, float* out, size_t stride) {
  map_rows(rows, width, out, stride, [&](auto type, size_t r, size_t c) {
    const auto value = read<decltype(type)>(a[r] + c);
    return value <= 0.0f ? decltype(type){} : value;  // NaN stays NaN
  });
}
void leaky_relu(size_t rows, size_t width, const float* const* a, float slope, float* out, size_t stride) {
  map_rows(rows, width, out, stride, [&](auto type, size_t r, size_t c) {
    const auto value = read<decltype(type)>(a[r] + c);
    return value > 0.0f ? value : value * slope;
  });
}

// e^x to about one unit in the last place: 2^n times a polynomial in the remainder. Outside the range of float32 the
// result is the smallest or the largest normal number.
// The function below returns 2^n, given n + 1.5 * 2^23, which has n in its lowest bits.
inline float power_of_two(float shifted) {
  int bits;
  __builtin_memcpy(&bits, &shifted, sizeof(bits));
  bits = static_cast<int>(static_cast<unsigned>(bits + 127) << 23);
  __builtin_memcpy(&shifted, &bits, sizeof(bits));
  return shifted;
}
inline Vector power_of_two(Vector shifted) {
  typedef int Bits __attribute__((vector_size(kLanes * sizeof(float))));
  Bits bits;
  __builtin_memcpy(&bits, &shifted, sizeof(bits));
  bits = (bits + 127) << 23;
  __builtin_memcpy(&shifted, &bits, sizeof(bits));
  return shifted;
}
#if LIVEGNN_LANES == 16
inline Half power_of_two(Half shifted) {
  typedef int Bits __attribute__((vector_size(8 * sizeof(float))));
  Bits bits;
  __builtin_memcpy(&bits, &shifted, sizeof(bits));
  bits = (bits + 127) << 23;
  __builtin_memcpy(&shifted, &bits, sizeof(bits));
  return shifted;
}
#endif

template <class T>
inline T exponential_of(T x) {
  const T zero = {};
  x = x < -87.0f ? zero - 87.0f : x;
  x = x > 88.0f ? zero + 88.0f : x;
  // Adding 1.5 * 2^23 rounds to the nearest whole number, which is then in the lowest bits.
  const T shifted = x * 1.44269504f + 12582912.0f;
  const T n = shifted - 12582912.0f;
  const T r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  T p = r * 1.9875691500e-4f + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  return p * power_of_two(shifted);
}

void exponential(size_t rows, size_t width, const float* const* a, float* out, size_t stride) {
  map_rows(rows, width, out, stride,
           [&](auto type, size_t r, size_t c) { return exponential_of(read<decltype(type)>(a[r] + c)); });
}
void sigmoid(size_t rows, size_t width, const float* const* a, float* out, size_t stride) {
  map_rows(rows, width, out, stride, [&](auto type, size_t r, size_t c) {
    return 1.0f / (1.0f + exponential_of(-read<decltype(type)>(a[r] + c)));
  });
}

void sum_channels(size_t rows, size_t heads, size_t channels, const float* const* a, float* out, size_t stride) {
  for (size_t r = 0; r < rows; ++r) {
    for (size_t h = 0; h < heads; ++h) {
      const float* row = a[r] + h * channels;
      Vector total = {};
      size_t c = 0;
      for (; c + kLanes <= channels; c += kLanes) total += load(row + c);
      float sum = 0;
      for (size_t i = 0; i < kLanes; ++i) sum += total[i];
      for (; c < channels; ++c) sum += row[c];
      out[r * stride + h] = sum;
    }
  }
}

void scale_heads(size_t rows, size_t heads, size_t channels, const float* const* a, const float* const* factors,
                 float* out, size_t stride) {
  for (size_t r = 0; r < rows; ++r) {
    for (size_t h = 0; h < heads; ++h) {
      const float* row = a[r] + h * channels;
      float* to = out + r * stride + h * channels;
      const float factor = factors[r][h];
      size_t c = 0;
      for (; c + kLanes <= channels; c += kLanes) store(to + c, load(row + c) * factor);
      for (; c < channels; ++c) to[c] = row[c] * factor;
    }
  }
}

void add_heads(size_t heads, size_t channels, const float* row, const float* weights, const float* inverse, float* sum,
               float* reach) {
  for (size_t h = 0; h < heads; ++h, row += channels, inverse += channels, sum += channels) {
    const Vector weight = broadcast(weights[h]);
    Bits largest = {};
    size_t c = 0;
    for (; c + kLanes <= channels; c += kLanes) {
      const Vector value = load(row + c);
      largest = larger_bits(largest, magnitude_bits(value * load(inverse + c)));
      store(sum + c, fused(weight, value, load(sum + c)));
    }
    int highest = largest_of(largest);
    for (; c < channels; ++c) {
      highest = larger_bits(highest, magnitude_bits(row[c] * inverse[c]));
      sum[c] += weights[h] * row[c];
    }
    reach[h] += magnitude(weights[h]) * float_of(highest);
  }
}

// Sixteen double lanes whatever the instruction set, added up in a fixed order.
template <class Term>
double lane_sum(size_t n, const Term& term) {
  double lanes[16] = {};
  size_t i = 0;
  for (; i + 16 <= n; i += 16) {
    for (size_t j = 0; j < 16; ++j) lanes[j] += term(i + j);
  }
  for (size_t j = 0; i + j < n; ++j) lanes[j] += term(i + j);
  double total = 0;
  for (double lane : lanes) total += lane;
  return total;
}

void normalize_layer(size_t n, const float* a, const float* scale, const float* shift, float epsilon, float* out) {
  double mean = lane_sum(n, [&](size_t i) { return static_cast<double>(a[i]); }) / static_cast<double>(n);
  double variance = lane_sum(n, [&](size_t i) { return (a[i] - mean) * (a[i] - mean); }) / static_cast<double>(n);
  double factor = 1.0 / __builtin_sqrt(variance + static_cast<double>(epsilon));
  for (size_t i = 0; i < n; ++i) {
    auto value = static_cast<float>((a[i] - mean) * factor);
    if (scale != nullptr) value *= scale[i];
    out[i] = shift == nullptr ? value : value + shift[i];
  }
}

void normalize_l2(size_t n, const float* a, float epsilon, float* out) {
  double norm = __builtin_sqrt(lane_sum(n, [&](size_t i) { return static_cast<double>(a[i]) * a[i]; }));
  const auto length = static_cast<float>(norm);
  const float divisor = length < epsilon ? epsilon : length;  // NaN stays NaN
  for (size_t i = 0; i < n; ++i) out[i] = a[i] / divisor;
}

}  // namespace

extern const Kernels kKernels;
const Kernels kKernels = {LIVEGNN_ISA_NAME,
                          multiply,
                          add_rows,
                          gather_rows,
                          subtract,
                          apply_delta,
                          max_rows,
                          count_equal,
                          differs,
                          peak,
                          scaled_peak,
                          finite,
                          add,
                          multiply_elements,
                          maximum,
                          add_scaled,
                          scale,
                          scale_shift,
                          relu,
                          leaky_relu,
                          exponential,
                          sigmoid,
                          sum_channels,
                          scale_heads,
                          add_heads,
                          score_signs,
                          multiply_codes,
                          normalize_layer,
                          normalize_l2};

}  // namespace livegnn::LIVEGNN_ISA
