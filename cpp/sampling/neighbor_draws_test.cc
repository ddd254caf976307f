#include "sampling/neighbor_draws.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "sampling/neighbor_draws_model.h"

namespace livegnn::neighbor_draws_test {
namespace {

using namespace draws_model;
using testing::chi_square_limit;
using testing::Random;

// One long list, of a height that the capacity decides, and its oracle; changed ten thousand times at random.
template <class Id>
struct LongList {
  LongList(uint32_t neighbors, uint32_t capacity) : trees(kAllColumns, {capacity, capacity / 8, true}) {
    trees.resize(3);
    RandomStream random(11, neighbors, capacity);
    for (uint32_t i = 0; i < neighbors; ++i) set(static_cast<uint32_t>(random.below(1 << 20)), &random);
    for (uint32_t i = 0; i < 10'000; ++i) {
      const auto id = static_cast<uint32_t>(random.below(1 << 20));
      auto near = oracle.lower_bound(id);
      if (near == oracle.end() || random.below(2) == 0) {
        set(id, &random);
      } else if (oracle.size() > neighbors / 2) {
        CHECK(trees.remove(0, id_at<Id>(near->first)));
        oracle.erase(near);
      }
      // A list that is to be short stays short.
      while (oracle.size() > neighbors) {
        CHECK(trees.remove(0, id_at<Id>(oracle.begin()->first)));
        oracle.erase(oracle.begin());
      }
    }
    trees.check();
  }

  void set(uint32_t id, RandomStream* random) {
    // Every fifth weight is 0, some are large.
    const uint64_t kind = random->below(10);
    const float weight = kind < 2 ? 0.0f : static_cast<float>(random->positive() * (kind == 9 ? 20 : 1));
    const EdgeValue value{weight, static_cast<double>(random->below(50)), id};
    trees.upsert(0, id_at<Id>(id), value);
    oracle[id] = value;
  }

  Samtrees<Id> trees;
  Oracle oracle;
};

constexpr Shape kShapes[] = {{12, 256}, {40, 8}, {100, 256}, {300, 256}, {2'000, 16}, {71'000, 256}};

TEST_OF_LISTS(draws_have_their_law_on_lists_of_every_height) {
  for (const Shape shape : kShapes) {
    const LongList<Id> list(shape.neighbors, shape.capacity);
    for (bool by_weight : {false, true}) {
      for (bool replace : {false, true}) {
        for (double until : {kForEver, 25.0, 2.0}) {
          const Classes classes(list.oracle, by_weight, until);
          const NeighborStrategy strategy{by_weight ? SampleBy::kWeight : SampleBy::kUniform, replace, 4};
          // The first that is drawn has the distribution of a single draw, with replacement each of them.
          const size_t repeats = testing::draws(400, 4'000) * (shape.neighbors > 10'000 ? 1 : 5);
          const std::vector<uint32_t> nodes(repeats, 0);
          const std::vector<double> bounds(until == kForEver ? 0 : 1, until);
          const auto out = draw(list.trees, strategy, nodes, bounds, 23);
          std::vector<size_t> seen(classes.probabilities.size());
          const auto there = static_cast<uint32_t>(classes.of.size());
          const uint32_t expected = replace && there > 0 ? 4 : std::min(4u, there);
          for (size_t i = 0, at = 0; i < repeats; at += out.counts[i++]) {
            CHECK_EQ(out.counts[i], expected);
            std::set<uint32_t> distinct(out.ids.begin() + static_cast<std::ptrdiff_t>(at),
                                        out.ids.begin() + static_cast<std::ptrdiff_t>(at + expected));
            if (!replace) CHECK_EQ(distinct.size(), expected);
            for (uint32_t id : distinct) CHECK_EQ(classes.of.count(id), 1u);
            for (size_t j = 0; j < (replace ? expected : std::min(1u, expected)); ++j)
              ++seen[classes.of.at(out.ids[at + j])];
          }
          if (there > 4 && seen.size() > 1) {
            CHECK(testing::chi_square(seen, classes.probabilities) < chi_square_limit(seen.size() - 1));
          }
        }
      }
    }
  }
}

TEST_OF_LISTS(draws_without_replacement_take_each_of_a_list_equally_often) {
  // Of a long list by rejection, of a large share by looking at all of it.
  for (const Shape shape : {Shape{100, 256}, Shape{300, 256}}) {
    for (int32_t count : {20, 60}) {
      const LongList<Id> list(shape.neighbors, shape.capacity);
      const std::vector<uint32_t> nodes(4'000, 0);
      const auto out = draw(list.trees, {SampleBy::kUniform, false, count}, nodes, {}, 5);
      CHECK_EQ(out.ids.size(), nodes.size() * static_cast<size_t>(count));
      std::map<uint32_t, size_t> seen;
      for (uint32_t id : out.ids) ++seen[id];
      // Inclusions of a sample exclude each other: their chi-square is that of independent ones less what they share.
      const double n = static_cast<double>(list.oracle.size()), p = count / n;
      double sum = 0;
      for (const auto& [id, value] : list.oracle) {
        const double expected = static_cast<double>(nodes.size()) * p;
        const double difference = static_cast<double>(seen[id]) - expected;
        sum += difference * difference / (expected * (1 - p));
      }
      CHECK(sum * (n - 1) / n < chi_square_limit(list.oracle.size() - 1));
    }
  }
}

TEST_OF_LISTS(draws_by_weight_without_replacement_are_successive) {
  // Each place of the sequence is held against a slow sampler: two samples of one distribution.
  for (int32_t count : {6, 40}) {
    const LongList<Id> list(100, 32);
    const Classes classes(list.oracle, true, kForEver);
    constexpr size_t kRepeats = 4'000;
    const std::vector<uint32_t> nodes(kRepeats, 0);
    const auto out = draw(list.trees, {SampleBy::kWeight, false, count}, nodes, {}, 31);
    CHECK_EQ(out.ids.size(), kRepeats * static_cast<size_t>(count));
    std::vector<std::vector<size_t>> seen(static_cast<size_t>(count),
                                          std::vector<size_t>(classes.probabilities.size()));
    for (size_t i = 0; i < out.ids.size(); ++i) ++seen[i % seen.size()][classes.of.at(out.ids[i])];
    check_alike(seen, successive_draws(list.oracle, classes, {SampleBy::kWeight, false, count}, kForEver, kRepeats));
  }
}

TEST_OF_LISTS(draws_bring_the_columns_of_their_edges) {
  const LongList<Id> list(300, 64);
  for (SampleBy by : {SampleBy::kUniform, SampleBy::kWeight, SampleBy::kLatest}) {
    for (int32_t count : {NeighborStrategy::kAll, 0, 5, 200, 1'000}) {
      for (bool replace : {false, true}) {
        if (replace && by == SampleBy::kLatest) continue;
        const std::vector<uint32_t> nodes = {0, 1, 0, 7};
        const auto out = draw(list.trees, {by, replace, count}, nodes, std::vector<double>{20.0}, 3);
        CHECK_EQ(out.counts.size(), 4u);
        CHECK_EQ(out.counts[1] + out.counts[3], 0u);
        CHECK_EQ(out.counts[0], out.counts[2]);
        CHECK_EQ(out.ids.size(), size_t{out.counts[0]} * 2);
        for (size_t i = 0; i < out.ids.size(); ++i) {
          const EdgeValue& value = list.oracle.at(out.ids[i]);
          CHECK_EQ(out.weights[i], value.weight);
          CHECK_EQ(out.times[i], value.time);
          CHECK_EQ(out.rows[i], value.row);
          CHECK(value.time <= 20);
          CHECK(by != SampleBy::kWeight || value.weight > 0);
        }
        // All that may be drawn, and no more than was asked for.
        const auto there =
            static_cast<size_t>(std::count_if(list.oracle.begin(), list.oracle.end(), [&](const auto& e) {
              return e.second.time <= 20 && (by != SampleBy::kWeight || e.second.weight > 0);
            }));
        const size_t asked = count == NeighborStrategy::kAll ? there : static_cast<size_t>(count);
        CHECK_EQ(out.counts[0], replace && count >= 0 ? asked : std::min(asked, there));
      }
    }
  }
}

TEST_OF_LISTS(draws_of_the_latest_are_those_that_a_sort_puts_first) {
  for (const Shape shape : kShapes) {
    const LongList<Id> list(shape.neighbors, shape.capacity);
    for (double until : {kForEver, 30.0, 0.0, -1.0}) {
      std::vector<std::pair<double, uint32_t>> sorted;
      for (const auto& [id, value] : list.oracle) {
        if (value.time <= until) sorted.emplace_back(-value.time, id);
      }
      std::sort(sorted.begin(), sorted.end());
      const std::vector<uint32_t> nodes = {0};
      const auto out = draw(list.trees, {SampleBy::kLatest, false, 10}, nodes, std::vector<double>{until}, 1);
      sorted.resize(std::min<size_t>(10, sorted.size()));
      CHECK_EQ(out.ids.size(), sorted.size());
      for (size_t i = 0; i < sorted.size(); ++i) CHECK_EQ(out.ids[i], sorted[i].second);
    }
  }
}

TEST_OF_LISTS(draws_by_equal_weights_of_any_magnitude_are_equal) {
  // From the smallest float to the greatest weight, on a leaf and on a tree of leaves.
  for (const Shape shape : {Shape{10, 256}, Shape{10, 4}}) {
    for (float weight : {1e-45f, 1e-42f, 1e-40f, 1e-38f, 1.0f, 1e20f, kMaxWeight}) {
      Samtrees<Id> trees({true, false, true}, {shape.capacity, 1, true});
      trees.resize(1);
      for (uint32_t place = 0; place < 10; ++place) trees.upsert(0, id_at<Id>(place), {weight, 0, place});
      for (bool replace : {false, true}) {
        for (int32_t count : {1, 3, 4, 9}) {
          const std::vector<uint32_t> nodes(4'000, 0);
          const auto out = draw(trees, {SampleBy::kWeight, replace, count}, nodes, {}, 19);
          CHECK_EQ(out.ids.size(), nodes.size() * static_cast<size_t>(count));
          for (int32_t place = 0; place < count; ++place) {
            std::vector<size_t> seen(10);
            for (size_t i = static_cast<size_t>(place); i < out.ids.size(); i += static_cast<size_t>(count))
              ++seen[out.ids[i]];
            CHECK(testing::chi_square(seen, std::vector<double>(10, 0.1)) < chi_square_limit(9));
          }
        }
      }
    }
  }
}

TEST_OF_LISTS(draws_do_not_depend_on_the_group_they_are_in) {
  const LongList<Id> list(500, 32);
  Random random;
  std::vector<uint32_t> nodes(300);
  std::vector<double> until(nodes.size());
  for (auto& node : nodes) node = random.index(3);
  for (auto& bound : until) bound = static_cast<double>(random.below(60));
  for (SampleBy by : {SampleBy::kUniform, SampleBy::kWeight, SampleBy::kLatest}) {
    for (int32_t count : {1, 7, 100, 2'000}) {
      const auto task = task_of(list.trees, {by, false, count}, 9);
      NeighborDraws draws;
      NeighborColumns whole, part;
      draws.draw(task, nodes, until, 0, &whole);
      std::vector<uint32_t> rows;
      for (size_t begin = 0; begin < nodes.size();) {
        const size_t size = std::min<size_t>(1 + random.below(40), nodes.size() - begin);
        draws.draw(task, std::span(nodes).subspan(begin, size), std::span(until).subspan(begin, size), begin, &part);
        // One bound is one for all, so a part of one node is no part of many bounds: it is the same bound.
        rows.insert(rows.end(), part.rows.begin(), part.rows.end());
        begin += size;
      }
      CHECK(rows == whole.rows);
    }
  }
}

TEST_OF_LISTS(draws_by_weights_that_are_all_zero_are_empty) {
  Samtrees<Id> trees({true, false, true}, {8, 1, true});
  trees.resize(2);
  for (uint32_t place = 0; place < 100; ++place) trees.upsert(0, id_at<Id>(place), {0, 0, place});
  for (uint32_t place = 0; place < 100; ++place) {
    trees.upsert(1, id_at<Id>(place), {place == 50 ? 1.0f : 0.0f, 0, place});
  }
  const std::vector<uint32_t> nodes = {0, 1};
  for (bool replace : {false, true}) {
    for (int32_t count : {NeighborStrategy::kAll, 2, 60}) {
      const auto out = draw(trees, {SampleBy::kWeight, replace, count}, nodes, {}, 0);
      CHECK_EQ(out.counts[0], 0u);
      CHECK_EQ(out.counts[1], replace && count > 0 ? static_cast<uint32_t>(count) : 1u);
      for (uint32_t id : out.ids) CHECK_EQ(id, 50u);
    }
  }
}

}  // namespace
}  // namespace livegnn::neighbor_draws_test
