// The quotient of sums over sums of coefficients, over several propagations and the node's own message: see program.h.
// Thread safety: pure functions.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "program/program.h"
#include "program/row_sum.h"

namespace livegnn {

// If the coefficients are exponentials, each part is first rescaled to the largest of the reference logits; in float64,
// parts that were summed widely are also rescaled to the scale of the others. `row(i)` is the row of input i. Without
// messages the quotient is 0; if there are some and all their logits are minus infinity, it is NaN, as in a framework.
template <class Real, class Row>
void combine(const Op& op, size_t width, const Row& row, Real* out) {
  const auto heads = static_cast<size_t>(op.number);
  const size_t parts = static_cast<size_t>(op.first), channels = width / heads;
  const bool softmax = op.second != 0, own = op.inputs.size() > 2 * parts;
  constexpr float kLowest = std::numeric_limits<float>::lowest();
  for (size_t h = 0; h < heads; ++h) {
    Real largest = own && softmax ? row(2 * parts + 1)[h] : kLowest;
    bool vanished = false;  // a sum of messages whose logits never exceeded the first reference
    for (size_t p = 0; softmax && p < parts; ++p) {
      vanished |= row(2 * p + 1)[h] == 0 && row(2 * p + 1)[heads + h] == kLowest;
      if (row(2 * p + 1)[h] > 0) largest = std::max<Real>(largest, row(2 * p + 1)[heads + h]);
    }
    Real* const to = out + h * channels;
    std::fill_n(to, channels, Real{0});
    Real total = 0;
    auto add = [&](const auto* from, Real coefficient, Real weight) {
      total += coefficient;
      for (size_t c = 0; c < channels; ++c) to[c] += weight * from[h * channels + c];
    };
    for (size_t p = 0; p < parts; ++p) {
      const Real sum = row(2 * p + 1)[h];
      if (softmax && sum <= 0) continue;
      Real factor = softmax ? std::exp(row(2 * p + 1)[heads + h] - largest) : Real{1};
      if (softmax && sizeof(Real) > sizeof(float) && is_wide(static_cast<float>(sum))) factor /= kWide;
      add(row(2 * p), factor * sum, factor);
    }
    if (own) {
      const Real coefficient = row(2 * parts + 1)[h], weight = softmax ? std::exp(coefficient - largest) : coefficient;
      add(row(2 * parts), weight, weight);
    }
    if (vanished && total <= 0) total = std::numeric_limits<Real>::quiet_NaN();
    const Real share = total <= 0 ? Real{0} : 1 / total;  // NaN stays NaN
    for (size_t c = 0; c < channels; ++c) to[c] *= share;
  }
}

// Whether a part was summed widely, so that the quotient must be computed in float64.
template <class Row>
bool combines_wide(const Op& op, const Row& row) {
  const auto heads = static_cast<size_t>(op.number);
  for (size_t p = 0; op.second != 0 && p < static_cast<size_t>(op.first); ++p) {
    for (size_t h = 0; h < heads; ++h) {
      const float sum = row(2 * p + 1)[h];
      if (sum > 0 && is_wide(sum)) return true;
    }
  }
  return false;
}

}  // namespace livegnn
