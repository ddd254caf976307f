// What the transforms of raw columns among row_operators.h compute: each formula once, for float32 and float64.
//
// Numbers are float32, and computed with in float64: a result is rounded once, as scikit-learn's is. `kMissing` stands
// for a number that is missing. It is handed on, and `fill_missing` puts another in its place.
//
// Thread safety: pure functions.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numbers>

#include "program/row_operators.h"

namespace livegnn {

inline constexpr float kMissing = std::numeric_limits<float>::lowest();

// A float64 is the sum of three floats, each `stride` after the one before: `split_in_three` of network/transforms.
inline double sum_of_parts(const float* parts, size_t stride) {
  return static_cast<double>(parts[0]) + static_cast<double>(parts[stride]) + static_cast<double>(parts[2 * stride]);
}

// (f(x) - mean) / scale. The setting: f is the identity, log or log1p.
template <class Real>
void standardize(const RowBlock<Real>& block) {
  constexpr size_t kColumns = 64;
  const auto function = static_cast<int>(block.settings[0]);
  double mean[kColumns], scale[kColumns];
  for (size_t first = 0; first < block.width; first += kColumns) {
    const size_t columns = std::min(kColumns, block.width - first);
    for (size_t c = 0; c < columns; ++c) {
      mean[c] = sum_of_parts(block.first + first + c, block.width);
      scale[c] = sum_of_parts(block.second + first + c, block.width);
    }
    for (size_t i = 0; i < block.rows; ++i) {
      const Real* __restrict a = block.inputs[0][i] + first;
      Real* __restrict out = block.out + i * block.stride + first;
      const auto map = [&](const auto& f) {
        for (size_t c = 0; c < columns; ++c) {
          const auto made = static_cast<Real>((f(static_cast<double>(a[c])) - mean[c]) / scale[c]);
          out[c] = a[c] == static_cast<Real>(kMissing) ? a[c] : made;
        }
      };
      if (function == 0) {
        map([](double x) { return x; });
      } else if (function == 1) {
        map([](double x) { return std::log(x); });
      } else {
        map([](double x) { return std::log1p(x); });
      }
    }
  }
}

template <class Real>
void fill_missing(const RowBlock<Real>& block) {
  const auto missing = static_cast<Real>(block.settings[0]);
  for (size_t i = 0; i < block.rows; ++i) {
    const Real* __restrict a = block.inputs[0][i];
    Real* __restrict out = block.out + i * block.stride;
    for (size_t c = 0; c < block.width; ++c) out[c] = a[c] == missing ? static_cast<Real>(block.first[c]) : a[c];
  }
}

// The place of x among ascending quantiles, from 0 to 1; of equal quantiles, the middle between the first and the last.
template <class Real>
double rank_among(Real x, const float* quantiles, size_t count, size_t stride) {
  const auto at = [&](size_t j) { return sum_of_parts(quantiles + j, stride); };
  const double value = static_cast<double>(x), steps = static_cast<double>(count - 1);
  if (value <= at(0)) return 0;
  if (value >= at(count - 1)) return 1;
  const auto count_while = [&](const auto& below) {
    size_t least = 0, most = count;
    while (least < most) {
      const size_t middle = least + (most - least) / 2;
      if (below(at(middle))) {
        least = middle + 1;
      } else {
        most = middle;
      }
    }
    return least;
  };
  const size_t above = count_while([&](double q) { return q <= value; });
  if (at(above - 1) == value) {
    const size_t equal = count_while([&](double q) { return q < value; });
    return static_cast<double>(equal + above - 1) / 2 / steps;
  }
  const double before = at(above - 1);
  return (static_cast<double>(above - 1) + (value - before) / (at(above) - before)) / steps;
}

// The setting is the number of quantiles of a channel. NaN stays NaN.
template <class Real>
void quantile(const RowBlock<Real>& block) {
  const auto count = static_cast<size_t>(block.settings[0]);
  for (size_t i = 0; i < block.rows; ++i) {
    const Real* const a = block.inputs[0][i];
    Real* const out = block.out + i * block.stride;
    for (size_t c = 0; c < block.width; ++c) {
      const bool kept = a[c] == static_cast<Real>(kMissing) || a[c] != a[c];
      out[c] = kept ? a[c] : static_cast<Real>(rank_among(a[c], block.first + c * count, count, block.width * count));
    }
  }
}

// The setting is the number of boundaries of a channel; the largest float stands for none.
template <class Real>
void bucketize(const RowBlock<Real>& block) {
  const auto count = static_cast<size_t>(block.settings[0]);
  for (size_t i = 0; i < block.rows; ++i) {
    const Real* const a = block.inputs[0][i];
    Real* const out = block.out + i * block.stride;
    for (size_t c = 0; c < block.width; ++c) {
      const float* const boundaries = block.first + c * count;
      size_t passed = 0;
      for (size_t b = 0; b < count; ++b) {
        const float boundary = boundaries[b];
        passed += (a[c] >= static_cast<Real>(boundary)) & (boundary != std::numeric_limits<float>::max()) ? 1 : 0;
      }
      out[c] = a[c] == static_cast<Real>(kMissing) ? a[c] : static_cast<Real>(passed);
    }
  }
}

template <class Real>
void one_hot(const RowBlock<Real>& block) {
  for (size_t i = 0; i < block.rows; ++i) {
    const Real* const from = block.inputs[0][i];
    Real* const out = block.out + i * block.stride;
    for (size_t c = 0; c < block.width; ++c) {
      out[c] = from[static_cast<size_t>(block.first[c])] == static_cast<Real>(block.second[c]) ? Real(1) : Real(0);
    }
  }
}

// Settings: the result for a number that is no category, and the number of categories of a channel.
template <class Real>
void ordinal(const RowBlock<Real>& block) {
  const auto count = static_cast<size_t>(block.settings[1]);
  for (size_t i = 0; i < block.rows; ++i) {
    const Real* const a = block.inputs[0][i];
    Real* const out = block.out + i * block.stride;
    for (size_t c = 0; c < block.width; ++c) {
      const float* const categories = block.first + c * count;
      size_t place = 0;
      while (place < count && static_cast<Real>(categories[place]) != a[c]) ++place;
      out[c] = static_cast<Real>(place < count ? static_cast<double>(place) : block.settings[0]);
    }
  }
}

// Sine and cosine of each channel's place in its period; both are 0 where the number is missing.
template <class Real>
void cyclic(const RowBlock<Real>& block) {
  const double period = block.settings[0];
  for (size_t i = 0; i < block.rows; ++i) {
    const Real* const a = block.inputs[0][i];
    Real* out = block.out + i * block.stride;
    for (size_t c = 0; c < block.widths[0]; ++c) {
      const double angle = std::fmod(static_cast<double>(a[c]), period) / period * (2 * std::numbers::pi);
      const bool missing = a[c] == static_cast<Real>(kMissing);
      *out++ = missing ? Real(0) : static_cast<Real>(std::sin(angle));
      *out++ = missing ? Real(0) : static_cast<Real>(std::cos(angle));
    }
  }
}

}  // namespace livegnn
