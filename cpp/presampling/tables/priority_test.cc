#include "presampling/tables/priority.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "testing/chi_square.h"
#include "testing/testing.h"

namespace livegnn::priority_test {
namespace {

using testing::Random;

TEST(the_logarithm_is_that_of_the_library) {
  Random random;
  CHECK_EQ(minus_log(1.0), 0.0);
  for (int i = 0; i < 200'000; ++i) {
    // Of every magnitude that occurs, and close to 1.
    const uint64_t bits = (uint64_t{1} << random.below(54));
    const uint64_t number = 1 + random.below(bits);
    const double u =
        i % 2 == 0 ? static_cast<double>(number) * 0x1p-53 : 1 - static_cast<double>(random.below(bits)) * 0x1p-53;
    if (!(u > 0 && u <= 1)) continue;
    const double expected = -std::log(u);
    CHECK_NEAR(minus_log(u), expected, 1e-15 * expected);
  }
}

TEST(ordered_bits_keep_the_order) {
  Random random;
  std::vector<double> numbers{0.0, -0.0, 1e-320, -1e-320, 1e308, -1e308, 1, -1};
  numbers.push_back(std::numeric_limits<double>::infinity());
  for (int i = 0; i < 300; ++i)
    numbers.push_back(std::ldexp(random.between(-1, 1), static_cast<int>(random.below(2000)) - 1000));
  for (double a : numbers) {
    CHECK_EQ(from_ordered_bits(ordered_bits(a)), a);
    CHECK_EQ(time_of_priority(latest_priority(a)), a);
    for (double b : numbers) {
      CHECK_EQ(a < b, ordered_bits(a) < ordered_bits(b));
      CHECK_EQ(a<b, latest_priority(a)> latest_priority(b));
    }
  }
}

// Each neighbour comes first as often, whatever the ids have in common.
TEST(uniform_priorities_are_even) {
  for (uint64_t step : {uint64_t{1}, uint64_t{1} << 32, uint64_t{0x9e3779b97f4a7c15ULL}}) {
    for (bool by_node : {false, true}) {
      std::vector<size_t> first(7);
      for (uint64_t i = 0; i < 70'000; ++i) {
        const uint64_t salt = node_salt(query_salt(by_node ? 1 : i, 2), by_node ? i * step : 5);
        uint64_t best = 0;
        for (uint64_t n = 1; n < 7; ++n) {
          if (uniform_priority(salt, n * step) < uniform_priority(salt, best * step)) best = n;
        }
        ++first[best];
      }
      CHECK(testing::chi_square(first, std::vector<double>(7, 1.0 / 7)) < testing::chi_square_limit(6));
    }
  }
}

TEST(queries_and_seeds_have_priorities_of_their_own) {
  std::vector<size_t> both(4);
  for (uint64_t node = 0; node < 40'000; ++node) {
    const auto low = [&](uint64_t seed, uint64_t query) {
      const uint64_t salt = node_salt(query_salt(seed, query), node);
      return uniform_priority(salt, 1) < uniform_priority(salt, 2);
    };
    ++both[static_cast<size_t>(low(0, 0)) * 2 + static_cast<size_t>(node % 2 == 0 ? low(0, 1) : low(1, 0))];
  }
  CHECK(testing::chi_square(both, std::vector<double>(4, 0.25)) < testing::chi_square_limit(3));
}

TEST(heavier_neighbours_come_first) {
  const std::vector<double> weights{1, 2, 0.5, 6.5};
  std::vector<size_t> first(4);
  for (uint64_t node = 0; node < 100'000; ++node) {
    const uint64_t salt = node_salt(query_salt(3, 1), node);
    size_t best = 0;
    const auto priority = [&](size_t n) {
      return weight_priority(uniform_priority(salt, n), static_cast<float>(weights[n]));
    };
    for (size_t n = 1; n < 4; ++n) {
      if (priority(n) < priority(best)) best = n;
    }
    ++first[best];
  }
  CHECK(testing::chi_square(first, {0.1, 0.2, 0.05, 0.65}) < testing::chi_square_limit(3));
}

}  // namespace
}  // namespace livegnn::priority_test
