// Whether draws have the distribution that they should have, for tests.
//
// The level is 1e-4: a right sampler fails one seed in ten thousand, so tests draw with a fixed seed. The limit is
// Wilson's and Hilferty's approximation (The distribution of chi-square, 1931), which is good to a part in a thousand
// here.
//
// Thread safety: all of it.
#pragma once

#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>
#include <vector>

namespace livegnn::testing {

// What chi-square with so many degrees of freedom exceeds once in ten thousand.
inline double chi_square_limit(size_t degrees) {
  const double z = 3.719, part = 2.0 / (9.0 * static_cast<double>(degrees));
  return static_cast<double>(degrees) * std::pow(1 - part + z * std::sqrt(part), 3);
}

// Of counts that were seen, where each draw falls on i with probability i. Infinite if something impossible was seen.
inline double chi_square(const std::vector<size_t>& seen, const std::vector<double>& probabilities) {
  const auto total = static_cast<double>(std::accumulate(seen.begin(), seen.end(), size_t{0}));
  double sum = 0;
  for (size_t i = 0; i < seen.size(); ++i) {
    const double expected = total * probabilities[i], difference = static_cast<double>(seen[i]) - expected;
    if (expected == 0 && seen[i] > 0) return std::numeric_limits<double>::infinity();
    if (expected > 0) sum += difference * difference / expected;
  }
  return sum;
}

}  // namespace livegnn::testing
