// What the operators of row_operators.h compute: each formula once, for float32 and float64, with PyTorch's semantics.
// Thread safety: pure functions.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <type_traits>

#include "program/kernels.h"
#include "program/row_operators.h"

namespace livegnn {

// -- element by element -----------------------------------------------------------------------------------------------

// `function(a)`, or `function(a, settings)` if it takes settings.
template <class Real, class Function>
void map_one(const RowBlock<Real>& block, const Function& function) {
  Real settings[kMaxRowSettings];
  std::copy_n(block.settings, kMaxRowSettings, settings);
  for (size_t i = 0; i < block.rows; ++i) {
    const Real* __restrict a = block.inputs[0][i];
    Real* __restrict out = block.out + i * block.stride;
    for (size_t c = 0; c < block.width; ++c) {
      if constexpr (std::is_invocable_v<Function, Real, const Real*>) {
        out[c] = function(a[c], settings);
      } else {
        out[c] = function(a[c]);
      }
    }
  }
}

// An input with one channel is broadcast to every channel.
template <class Real, class Function>
void map_two(const RowBlock<Real>& block, const Function& function) {
  const size_t width = block.width;
  const bool one = block.widths[0] != width, other = block.widths[1] != width;
  for (size_t i = 0; i < block.rows; ++i) {
    const Real* __restrict a = block.inputs[0][i], * __restrict b = block.inputs[1][i];
    Real* __restrict out = block.out + i * block.stride;
    if (one) {
      const Real first = *a;
      for (size_t c = 0; c < width; ++c) out[c] = function(first, b[c]);
    } else if (other) {
      const Real second = *b;
      for (size_t c = 0; c < width; ++c) out[c] = function(a[c], second);
    } else {
      for (size_t c = 0; c < width; ++c) out[c] = function(a[c], b[c]);
    }
  }
}

template <class Real, class Function>
void map_three(const RowBlock<Real>& block, const Function& function) {
  const size_t width = block.width;
  size_t steps[3];
  for (size_t p = 0; p < 3; ++p) steps[p] = block.widths[p] == width ? 1 : 0;
  const bool alike = steps[0] == 1 && steps[1] == 1 && steps[2] == 1;
  for (size_t i = 0; i < block.rows; ++i) {
    const Real* __restrict a = block.inputs[0][i], * __restrict b = block.inputs[1][i], * __restrict d = block.inputs[2][i];
    Real* __restrict out = block.out + i * block.stride;
    if (alike) {
      for (size_t c = 0; c < width; ++c) out[c] = function(a[c], b[c], d[c]);
    } else {
      for (size_t c = 0; c < width; ++c) out[c] = function(a[c * steps[0]], b[c * steps[1]], d[c * steps[2]]);
    }
  }
}

template <class Real>
Real sign_of(Real x) {  // 0 for NaN
  return static_cast<Real>(x > 0 ? 1 : 0) - static_cast<Real>(x < 0 ? 1 : 0);
}

template <class Real>
Real clamp(Real x, Real least, Real most) {  // NaN stays NaN
  const Real above = x < least ? least : x;
  return above > most ? most : above;
}

template <class Real>
Real gelu(Real x) {
  return Real(0.5) * x * (1 + std::erf(x * static_cast<Real>(0.70710678118654752)));
}

template <class Real>
Real gelu_tanh(Real x) {
  const auto inner = static_cast<Real>(0.79788456080286536) * (x + static_cast<Real>(0.044715) * x * x * x);
  return Real(0.5) * x * (1 + std::tanh(inner));
}

template <class Real>
Real softplus(Real x, Real beta, Real threshold) {
  return x * beta > threshold ? x : std::log1p(std::exp(x * beta)) / beta;
}

// The result has the sign of the divisor.
template <class Real>
Real remainder(Real a, Real b) {
  const Real rest = std::fmod(a, b);
  return rest != 0 && (b < 0) != (rest < 0) ? rest + b : rest;
}

template <class Real>
Real floor_divide(Real a, Real b) {
  if (b == 0) return a / b;
  const Real rest = std::fmod(a, b);
  Real quotient = (a - rest) / b;
  if (rest != 0 && (b < 0) != (rest < 0)) quotient -= 1;
  if (quotient == 0) return std::copysign(Real(0), a / b);
  const Real whole = std::floor(quotient);  // except for rounding, the quotient is a whole number
  return quotient - whole > Real(0.5) ? whole + 1 : whole;
}

template <class Real>
Real silu(Real x) {
  return x / (1 + std::exp(-x));
}

inline void map_silu(const RowBlock<double>& block) {
  map_one(block, [](double x) { return silu(x); });
}

// Uses the sigmoid kernel, whose range ends where a float32 input may still be large enough to matter.
inline void map_silu(const RowBlock<float>& block) {
  constexpr float kLow = -80;
  kernels().sigmoid(block.rows, block.width, block.inputs[0], block.out, block.stride);
  for (size_t i = 0; i < block.rows; ++i) {
    const float* __restrict a = block.inputs[0][i];
    float* __restrict out = block.out + i * block.stride;
    int low = 0;
    for (size_t c = 0; c < block.width; ++c) {
      out[c] *= a[c];
      low |= a[c] < kLow ? 1 : 0;
    }
    for (size_t c = 0; low != 0 && c < block.width; ++c) {
      if (a[c] < kLow) out[c] = silu(a[c]);
    }
  }
}

// Some exponents are computed without the C library's pow, which treats -inf and -0 differently. The exponent is a
// float64 also for float32, because a rounded exponent would be another power.
template <class Real>
void power_of(const RowBlock<Real>& block) {
  const double exponent = block.settings[0];
  if (exponent == 0.5) {
    map_one(block, [](Real x) { return std::sqrt(x); });
  } else if (exponent == -0.5) {
    map_one(block, [](Real x) { return 1 / std::sqrt(x); });
  } else if (exponent == 1) {
    map_one(block, [](Real x) { return x; });
  } else if (exponent == 2) {
    map_one(block, [](Real x) { return x * x; });
  } else if (exponent == 3) {
    map_one(block, [](Real x) { return x * x * x; });
  } else if (exponent == -1) {
    map_one(block, [](Real x) { return 1 / x; });
  } else if (exponent == -2) {
    map_one(block, [](Real x) { return 1 / (x * x); });
  } else {
    map_one(block, [exponent](Real x) { return static_cast<Real>(std::pow(static_cast<double>(x), exponent)); });
  }
}

// -- by head ----------------------------------------------------------------------------------------------------------

// Calls `function(first channel, a, out)` for the channels of each head.
template <class Real, class Function>
void map_heads(const RowBlock<Real>& block, size_t heads, const Function& function) {
  const size_t channels = block.width / heads;
  for (size_t i = 0; i < block.rows; ++i) {
    for (size_t c = 0; c < block.width; c += channels) {
      function(c, block.inputs[0][i] + c, block.out + i * block.stride + c);
    }
  }
}

// The largest element is subtracted first, so that no exponential overflows.
template <class Real, bool kLogarithm>
void softmax(const RowBlock<Real>& block) {
  const auto heads = static_cast<size_t>(block.settings[0]);
  const size_t channels = block.width / heads;
  map_heads(block, heads, [&](size_t, const Real* a, Real* out) {
    const Real largest = *std::max_element(a, a + channels);
    double total = 0;
    for (size_t c = 0; c < channels; ++c) total += std::exp(static_cast<double>(a[c] - largest));
    const auto shift = static_cast<Real>(std::log(total));
    for (size_t c = 0; c < channels; ++c) {
      out[c] = kLogarithm ? a[c] - largest - shift
                          : static_cast<Real>(std::exp(static_cast<double>(a[c] - largest)) / total);
    }
  });
}

inline void layer_norm(const RowBlock<float>& block) {
  const auto heads = static_cast<size_t>(block.settings[1]);
  const auto epsilon = static_cast<float>(block.settings[0]);
  const Kernels& k = kernels();
  map_heads(block, heads, [&](size_t c, const float* a, float* out) {
    k.normalize_layer(block.width / heads, a, block.first == nullptr ? nullptr : block.first + c,
                      block.second == nullptr ? nullptr : block.second + c, epsilon, out);
  });
}

inline void layer_norm(const RowBlock<double>& block) {
  const auto heads = static_cast<size_t>(block.settings[1]);
  const size_t channels = block.width / heads;
  map_heads(block, heads, [&](size_t at, const double* a, double* out) {
    double mean = 0, variance = 0;
    for (size_t c = 0; c < channels; ++c) mean += a[c] / static_cast<double>(channels);
    for (size_t c = 0; c < channels; ++c) variance += (a[c] - mean) * (a[c] - mean) / static_cast<double>(channels);
    const double factor = 1 / std::sqrt(variance + block.settings[0]);
    for (size_t c = 0; c < channels; ++c) {
      out[c] = (a[c] - mean) * factor * (block.first == nullptr ? 1.0 : block.first[at + c]) +
               (block.second == nullptr ? 0.0 : block.second[at + c]);
    }
  });
}

inline void l2_normalize(const RowBlock<float>& block) {
  const auto heads = static_cast<size_t>(block.settings[1]);
  map_heads(block, heads, [&](size_t, const float* a, float* out) {
    kernels().normalize_l2(block.width / heads, a, static_cast<float>(block.settings[0]), out);
  });
}

inline void l2_normalize(const RowBlock<double>& block) {
  const auto heads = static_cast<size_t>(block.settings[1]);
  const size_t channels = block.width / heads;
  map_heads(block, heads, [&](size_t, const double* a, double* out) {
    double square = 0;
    for (size_t c = 0; c < channels; ++c) square += a[c] * a[c];
    for (size_t c = 0; c < channels; ++c) out[c] = a[c] / std::max(std::sqrt(square), block.settings[0]);
  });
}

template <class Real>
void scale_shift(const RowBlock<Real>& block) {
  for (size_t i = 0; i < block.rows; ++i) {
    for (size_t c = 0; c < block.width; ++c) {
      block.out[i * block.stride + c] = block.inputs[0][i][c] * (block.first == nullptr ? Real(1) : block.first[c]) +
                                        (block.second == nullptr ? Real(0) : block.second[c]);
    }
  }
}

template <class Real>
void scale_heads(const RowBlock<Real>& block) {
  const size_t channels = block.width / block.widths[1];
  for (size_t i = 0; i < block.rows; ++i) {
    for (size_t c = 0; c < block.width; ++c) {
      block.out[i * block.stride + c] = block.inputs[0][i][c] * block.inputs[1][i][c / channels];
    }
  }
}

// -- reductions -------------------------------------------------------------------------------------------------------

enum class Reduction { kSum, kMax, kMin, kProduct };

// The row has shape [before, size, after]. Sums and products are computed in float64, where intermediate results cannot
// overflow if the final one fits.
template <class Real, Reduction kReduction>
void reduce_by(const RowBlock<Real>& block, size_t before, size_t size, size_t after) {
  constexpr size_t kColumns = 64;
  constexpr bool kExact = kReduction == Reduction::kSum || kReduction == Reduction::kProduct;
  using Total = std::conditional_t<kExact, double, Real>;
  const auto join = [](Total total, Total x) {
    if constexpr (kReduction == Reduction::kSum) return total + x;
    if constexpr (kReduction == Reduction::kProduct) return total * x;
    if constexpr (kReduction == Reduction::kMax) return (total > x) | (total != total) ? total : x;
    if constexpr (kReduction == Reduction::kMin) return (total < x) | (total != total) ? total : x;
  };
  for (size_t i = 0; i < block.rows; ++i) {
    for (size_t b = 0; b < before; ++b) {
      const Real* const from = block.inputs[0][i] + b * size * after;
      Real* const out = block.out + i * block.stride + b * after;
      for (size_t c = 0; c < after; c += kColumns) {
        const size_t columns = std::min(kColumns, after - c);
        Total total[kColumns];
        std::copy_n(from + c, columns, total);
        for (size_t s = 1; s < size; ++s) {
          for (size_t k = 0; k < columns; ++k) total[k] = join(total[k], from[s * after + c + k]);
        }
        for (size_t k = 0; k < columns; ++k) out[c + k] = static_cast<Real>(total[k]);
      }
    }
  }
}

template <class Real>
void reduce(const RowBlock<Real>& block) {
  const auto before = static_cast<size_t>(block.settings[1]), size = static_cast<size_t>(block.settings[2]),
             after = static_cast<size_t>(block.settings[3]);
  switch (static_cast<Reduction>(static_cast<int>(block.settings[0]))) {
    case Reduction::kSum:
      return reduce_by<Real, Reduction::kSum>(block, before, size, after);
    case Reduction::kMax:
      return reduce_by<Real, Reduction::kMax>(block, before, size, after);
    case Reduction::kMin:
      return reduce_by<Real, Reduction::kMin>(block, before, size, after);
    case Reduction::kProduct:
      return reduce_by<Real, Reduction::kProduct>(block, before, size, after);
  }
}

template <class Real>
void sum_channels(const RowBlock<Real>& block) {
  reduce_by<Real, Reduction::kSum>(block, block.width, block.widths[0] / block.width, 1);
}

template <class Real>
void sum_heads(const RowBlock<Real>& block) {
  for (size_t i = 0; i < block.rows; ++i) {
    const Real* const from = block.inputs[0][i];
    Real* const out = block.out + i * block.stride;
    std::copy_n(from, block.width, out);
    for (size_t c = block.width; c < block.widths[0]; ++c) out[c % block.width] += from[c];
  }
}

// -- moves ------------------------------------------------------------------------------------------------------------

template <class Real>
void slice(const RowBlock<Real>& block) {
  const auto start = static_cast<size_t>(block.settings[0]);
  for (size_t i = 0; i < block.rows; ++i) {
    std::copy_n(block.inputs[0][i] + start, block.width, block.out + i * block.stride);
  }
}

template <class Real>
void repeat(const RowBlock<Real>& block) {
  const auto times = static_cast<size_t>(block.settings[0]), inner = static_cast<size_t>(block.settings[1]);
  for (size_t i = 0; i < block.rows; ++i) {
    Real* out = block.out + i * block.stride;
    for (size_t c = 0; c < block.widths[0]; c += inner) {
      const Real* const run = block.inputs[0][i] + c;
      if (inner == 1) {
        out = std::fill_n(out, times, *run);
      } else {
        for (size_t t = 0; t < times; ++t) out = std::copy_n(run, inner, out);
      }
    }
  }
}

template <class Real>
void take(const RowBlock<Real>& block) {
  for (size_t i = 0; i < block.rows; ++i) {
    const Real* const from = block.inputs[0][i];
    for (size_t c = 0; c < block.width; ++c) {
      block.out[i * block.stride + c] = from[static_cast<size_t>(block.first[c])];
    }
  }
}

template <class Real>
void constant(const RowBlock<Real>& block) {
  for (size_t i = 0; i < block.rows; ++i) {
    Real* const to = block.out + i * block.stride;
    if (block.first == nullptr) {
      *to = static_cast<Real>(block.settings[0]);
    } else {
      std::copy_n(block.first, block.width, to);
    }
  }
}

// The setting is the number of rows of the table. A number that is not whole is truncated.
template <class Real>
void lookup(const RowBlock<Real>& block) {
  const auto numbers = static_cast<Real>(block.settings[0]);
  const size_t width = block.width / block.widths[0];
  for (size_t i = 0; i < block.rows; ++i) {
    for (size_t k = 0; k < block.widths[0]; ++k) {
      Real* const out = block.out + i * block.stride + k * width;
      Real number = std::trunc(block.inputs[0][i][k]);
      if (number < 0) number += numbers;
      if (number >= 0 && number < numbers) {
        std::copy_n(block.first + static_cast<size_t>(number) * width, width, out);
      } else {
        std::fill_n(out, width, std::numeric_limits<Real>::quiet_NaN());
      }
    }
  }
}

// -- products ---------------------------------------------------------------------------------------------------------

// `weight` is packed by `pack`.
inline void multiply_widely(size_t inner, size_t width, const double* a, const float* weight, const float* bias,
                            double* out) {
  for (size_t c = 0; c < width; ++c) {
    const float* const column = weight + c / kPanel * kPanel * inner + c % kPanel;
    double sum = bias == nullptr ? 0.0 : bias[c];
    for (size_t k = 0; k < inner; ++k) sum += a[k] * column[k * kPanel];
    out[c] = sum;
  }
}

// Settings: the number of heads, and whether each head has its own matrix and its own bias; the matrices are packed one
// after the other.
template <class Real>
void linear_by_head(const RowBlock<Real>& block) {
  const auto heads = static_cast<size_t>(block.settings[0]);
  const size_t own = block.settings[1] != 0 ? 1 : 0;
  const size_t inner = block.widths[0] / heads, outputs = block.width / heads;
  constexpr size_t kRows = 32;
  const float* rows[kRows];
  for (size_t h = 0; h < heads; ++h) {
    const float* const weight = block.first + own * h * packed_size(inner, outputs);
    const float* const bias = block.second == nullptr ? nullptr : block.second + own * h * outputs;
    Real* const out = block.out + h * outputs;
    if constexpr (std::is_same_v<Real, float>) {
      for (size_t i = 0; i < block.rows; i += kRows) {
        const size_t count = std::min(kRows, block.rows - i);
        for (size_t r = 0; r < count; ++r) rows[r] = block.inputs[0][i + r] + h * inner;
        kernels().multiply(count, inner, outputs, rows, weight, bias, out + i * block.stride, block.stride);
      }
    } else {
      for (size_t i = 0; i < block.rows; ++i) {
        multiply_widely(inner, outputs, block.inputs[0][i] + h * inner, weight, bias, out + i * block.stride);
      }
    }
  }
}

// [batch, rows, inner] times [batch, inner, columns]; a single matrix is broadcast over the batch.
template <class Real>
void multiply_matrices(const RowBlock<Real>& block) {
  const auto batch = static_cast<size_t>(block.settings[0]), rows = static_cast<size_t>(block.settings[1]),
             inner = static_cast<size_t>(block.settings[2]), columns = static_cast<size_t>(block.settings[3]);
  const size_t next_a = block.widths[0] == rows * inner ? 0 : rows * inner;
  const size_t next_b = block.widths[1] == inner * columns ? 0 : inner * columns;
  for (size_t i = 0; i < block.rows; ++i) {
    for (size_t m = 0; m < batch * rows; ++m) {
      const Real* __restrict a = block.inputs[0][i] + m / rows * next_a + m % rows * inner;
      const Real* __restrict b = block.inputs[1][i] + m / rows * next_b;
      Real* __restrict out = block.out + i * block.stride + m * columns;
      if (columns == 1) {
        Real sum = 0;
        for (size_t k = 0; k < inner; ++k) sum += a[k] * b[k];
        *out = sum;
        continue;
      }
      std::fill_n(out, columns, Real(0));
      for (size_t k = 0; k < inner; ++k) {
        for (size_t c = 0; c < columns; ++c) out[c] += a[k] * b[k * columns + c];
      }
    }
  }
}

}  // namespace livegnn
