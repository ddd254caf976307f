// Reference for the tests of neighbour draws: plain lists of edges, and simple slow draws from them.
//
// Edges are identified by places, small numbers that are stored as their feature rows. What else distinguishes edges is
// the other end or, with parallel edges, other end and key. Both are in the order of the places.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include "hashing/random.h"
#include "sampling/neighbor_draws.h"
#include "store/graph_store.h"
#include "testing/chi_square.h"
#include "testing/testing.h"

// A test for lists of ends, and for lists of ends and keys.
#define TEST_OF_LISTS(test)   \
  template <class Id>         \
  static void lists_##test(); \
  TEST(test) {                \
    lists_##test<uint32_t>(); \
    lists_##test<uint64_t>(); \
  }                           \
  template <class Id>         \
  static void lists_##test()

namespace livegnn::draws_model {

using Oracle = std::map<uint32_t, EdgeValue>;  // of node 0, by place

inline constexpr EdgeColumns kAllColumns{true, true, true};
inline constexpr double kForEver = std::numeric_limits<double>::infinity();

// Up to 64 parallel edges to each other end, with keys of any size.
template <class Id>
Id id_at(uint32_t place) {
  if constexpr (sizeof(Id) == sizeof(uint32_t)) {
    return place;
  } else {
    return list_id<Id>(place / 64, place % 64 << 26);
  }
}

template <class Id>
NeighborDraws::Task task_of(const Samtrees<Id>& trees, NeighborStrategy strategy, uint64_t seed) {
  if constexpr (sizeof(Id) == sizeof(uint32_t)) {
    return {&trees, strategy, trees.columns(), seed, 0};
  } else {
    return {nullptr, strategy, trees.columns(), seed, 0, &trees};
  }
}

// The `ids` of the result are places.
template <class Id>
NeighborColumns draw(const Samtrees<Id>& trees, NeighborStrategy strategy, std::span<const uint32_t> nodes,
                     std::span<const double> until, uint64_t seed) {
  NeighborColumns out;
  NeighborDraws().draw(task_of(trees, strategy, seed), nodes, until, 0, &out);
  CHECK_EQ(out.ids.size(), out.rows.size());
  for (size_t i = 0; i < out.ids.size(); ++i) CHECK_EQ(out.ids[i], end_of(id_at<Id>(out.rows[i])));
  out.ids = out.rows;
  return out;
}

// Sixteen classes of neighbours with about the same probability, so that few draws suffice to test long lists.
struct Classes {
  Classes(const Oracle& oracle, bool by_weight, double until) {
    double total = 0;
    for (const auto& [id, value] : oracle) total += chance(value, by_weight, until);
    double sum = 0;
    probabilities.resize(kCount);
    for (const auto& [id, value] : oracle) {
      if (chance(value, by_weight, until) == 0) continue;
      const double part = chance(value, by_weight, until) / total;
      const auto index = std::min<size_t>(kCount - 1, static_cast<size_t>(sum * kCount));
      of[id] = index;
      probabilities[index] += part;
      sum += part;
    }
    std::erase(probabilities, 0.0);  // a heavy neighbour may leave no room for a class
    std::map<size_t, size_t> dense;
    for (auto& [id, index] : of) index = dense.try_emplace(index, dense.size()).first->second;
  }
  static double chance(const EdgeValue& value, bool by_weight, double until) {
    return !(value.time <= until) ? 0 : by_weight ? std::max(0.0f, value.weight) : 1.0;
  }

  static constexpr size_t kCount = 16;
  std::map<uint32_t, size_t> of;
  std::vector<double> probabilities;
};

// Short and long lists, small trees with few leaves and tall ones.
struct Shape {
  uint32_t neighbors, capacity;
};
// Successive draws from a list of candidates, computed the slow way.
inline std::vector<std::vector<size_t>> successive_draws(const Oracle& oracle, const Classes& classes,
                                                         NeighborStrategy strategy, double until, size_t repeats) {
  std::vector<std::vector<size_t>> seen(static_cast<size_t>(strategy.count),
                                        std::vector<size_t>(classes.probabilities.size()));
  std::vector<std::pair<uint32_t, double>> all;
  for (const auto& [id, value] : oracle) {
    const double chance = Classes::chance(value, strategy.by == SampleBy::kWeight, until);
    if (chance > 0) all.emplace_back(id, chance);
  }
  for (size_t repeat = 0; repeat < repeats; ++repeat) {
    RandomStream random(1, 2, repeat);
    auto left = all;
    for (auto& place : seen) {
      double total = 0;
      for (const auto& [id, chance] : left) total += chance;
      double at = random.uniform() * total;
      size_t i = 0;
      while (i + 1 < left.size() && at >= left[i].second) at -= left[i++].second;
      ++place[classes.of.at(left[i].first)];
      if (!strategy.replace) left.erase(left.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
  return seen;
}

// Checks that two samples have the same distribution at each place of a sequence.
inline void check_alike(const std::vector<std::vector<size_t>>& seen, const std::vector<std::vector<size_t>>& oracle) {
  for (size_t place = 0; place < seen.size(); ++place) {
    double sum = 0;
    size_t degrees = 0;
    for (size_t c = 0; c < seen[place].size(); ++c) {
      const double a = static_cast<double>(seen[place][c]), b = static_cast<double>(oracle[place][c]);
      if (a + b < 10) continue;
      sum += (a - b) * (a - b) / (a + b);
      ++degrees;
    }
    // The limit is one in ten thousand for a single place; it is raised by a tenth because there are many places.
    if (degrees > 1) CHECK(sum < 1.1 * testing::chi_square_limit(degrees - 1));
  }
}

}  // namespace livegnn::draws_model
