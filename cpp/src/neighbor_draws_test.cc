#include "livegnn/neighbor_draws.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "chi_square.h"
#include "random.h"
#include "testing.h"

namespace livegnn {
namespace {

using testing::chi_square_limit;
using testing::Random;
using Trees = Samtrees<uint32_t>;
using Oracle = std::map<uint32_t, EdgeValue>;  // of node 0

constexpr EdgeColumns kAllColumns{true, true, true};
constexpr double kForEver = std::numeric_limits<double>::infinity();

// One long list, of a height that the capacity decides, and its oracle; changed ten thousand times at random.
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
        CHECK(trees.remove(0, near->first));
        oracle.erase(near);
      }
      // A list that is to be short stays short.
      while (oracle.size() > neighbors) {
        CHECK(trees.remove(0, oracle.begin()->first));
        oracle.erase(oracle.begin());
      }
    }
    trees.check();
  }

  void set(uint32_t id, RandomStream* random) {
    // Every fifth weight is 0, some are large.
    const uint64_t kind = random->below(10);
    const float weight = kind < 2 ? 0.0f : static_cast<float>(random->positive() * (kind == 9 ? 20 : 1));
    const EdgeValue value{weight, static_cast<double>(random->below(50)), id / 2};
    trees.upsert(0, id, value);
    oracle[id] = value;
  }

  Trees trees;
  Oracle oracle;
};

// Sixteen classes of neighbours with about equal probability, so that long lists are tested on few draws.
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

NeighborColumns draw(const Trees& trees, NeighborLaw law, std::span<const uint32_t> nodes,
                     std::span<const double> until, uint64_t seed) {
  NeighborColumns out;
  NeighborDraws().draw({&trees, law, kAllColumns, seed, 0}, nodes, until, 0, &out);
  return out;
}

// Short and long lists, small trees of a few leaves and tall ones.
struct Shape {
  uint32_t neighbors, capacity;
};
constexpr Shape kShapes[] = {{12, 256}, {40, 8}, {100, 256}, {300, 256}, {2'000, 16}, {71'000, 256}};

TEST(draws_have_their_law_on_lists_of_every_height) {
  for (const Shape shape : kShapes) {
    const LongList list(shape.neighbors, shape.capacity);
    for (bool by_weight : {false, true}) {
      for (bool replace : {false, true}) {
        for (double until : {kForEver, 25.0, 2.0}) {
          const Classes classes(list.oracle, by_weight, until);
          const NeighborLaw law{by_weight ? SampleBy::kWeight : SampleBy::kUniform, replace, 4};
          // The first that is drawn has the law of a single draw, with replacement each of them.
          const size_t repeats = shape.neighbors > 10'000 ? 4'000 : 20'000;
          const std::vector<uint32_t> nodes(repeats, 0);
          const std::vector<double> bounds(until == kForEver ? 0 : 1, until);
          const auto out = draw(list.trees, law, nodes, bounds, 23);
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

TEST(draws_without_replacement_take_each_of_a_list_equally_often) {
  // Of a long list by rejection, of a large share by looking at all of it.
  for (const Shape shape : {Shape{100, 256}, Shape{300, 256}}) {
    for (int32_t count : {20, 60}) {
      const LongList list(shape.neighbors, shape.capacity);
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

TEST(draws_by_weight_without_replacement_are_successive) {
  // Each place of the sequence is held against a slow sampler: two samples of one law.
  for (int32_t count : {6, 40}) {
    const LongList list(100, 32);
    const Classes classes(list.oracle, true, kForEver);
    constexpr size_t kRepeats = 4'000;
    const std::vector<uint32_t> nodes(kRepeats, 0);
    const auto out = draw(list.trees, {SampleBy::kWeight, false, count}, nodes, {}, 31);
    CHECK_EQ(out.ids.size(), kRepeats * static_cast<size_t>(count));
    std::vector<std::vector<size_t>> seen(static_cast<size_t>(count)), oracle(seen.size());
    for (auto& place : seen) place.resize(classes.probabilities.size());
    for (auto& place : oracle) place.resize(classes.probabilities.size());
    for (size_t i = 0; i < out.ids.size(); ++i) ++seen[i % seen.size()][classes.of.at(out.ids[i])];
    for (size_t repeat = 0; repeat < kRepeats; ++repeat) {
      RandomStream random(1, 2, repeat);
      std::vector<std::pair<uint32_t, double>> left;
      for (const auto& [id, value] : list.oracle) left.emplace_back(id, value.weight);
      for (auto& place : oracle) {
        double total = 0;
        for (const auto& [id, weight] : left) total += weight;
        double at = random.uniform() * total;
        size_t i = 0;
        while (at >= left[i].second) at -= left[i++].second;
        ++place[classes.of.at(left[i].first)];
        left.erase(left.begin() + static_cast<std::ptrdiff_t>(i));
      }
    }
    for (size_t place = 0; place < seen.size(); ++place) {
      double sum = 0;
      size_t degrees = 0;
      for (size_t c = 0; c < seen[place].size(); ++c) {
        const double a = static_cast<double>(seen[place][c]), b = static_cast<double>(oracle[place][c]);
        if (a + b < 10) continue;
        sum += (a - b) * (a - b) / (a + b);
        ++degrees;
      }
      // One in ten thousand of each of many places: one more in ten is granted for their number.
      CHECK(sum < 1.1 * chi_square_limit(degrees));
    }
  }
}

TEST(draws_bring_the_columns_of_their_edges) {
  const LongList list(300, 64);
  for (SampleBy by : {SampleBy::kUniform, SampleBy::kWeight, SampleBy::kLatest}) {
    for (int32_t count : {NeighborLaw::kAll, 0, 5, 200, 1'000}) {
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
        const size_t asked = count == NeighborLaw::kAll ? there : static_cast<size_t>(count);
        CHECK_EQ(out.counts[0], replace && count >= 0 ? asked : std::min(asked, there));
      }
    }
  }
}

TEST(draws_of_the_latest_are_those_that_a_sort_puts_first) {
  for (const Shape shape : kShapes) {
    const LongList list(shape.neighbors, shape.capacity);
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

// One list in which rejection takes long: a few weights outweigh all others, each by as much again, and few edges are
// early. Some weights are smaller than a float's common ones.
struct SteepList {
  SteepList(uint32_t neighbors, uint32_t capacity) : trees(kAllColumns, {capacity, capacity / 8, true}) {
    trees.resize(1);
    RandomStream random(13, neighbors, capacity);
    std::vector<Trees::Change> changes;
    for (uint32_t i = 0; i < neighbors; ++i) {
      const auto weight = static_cast<float>(0.5 + random.positive());
      const EdgeValue value{i % 7 == 0 ? 0.0f : weight, static_cast<double>(random.below(1'000)), i};
      changes.push_back({i * 5, true, value});
    }
    const uint32_t steep[] = {neighbors / 2, neighbors / 3, neighbors - 1, neighbors / 2 + 1};
    for (uint32_t i = 0; i < 4; ++i) {
      changes[steep[i]].value.weight = static_cast<float>(std::pow(1e6, i + 1) * neighbors);
      // Two of them are among the early ones, but not the first.
      changes[steep[i]].value.time = i % 2 == 0 ? 200 : 999;
    }
    Trees::Lane lane;
    trees.set_root(0, trees.rebuild({}, changes, &lane));
    trees.free_retired(&lane);
    for (const auto& change : changes) oracle[change.id] = change.value;
    // Times change, too.
    for (uint32_t i = 0; i < 200; ++i) {
      auto& [id, value] = *oracle.find(5 * static_cast<uint32_t>(random.below(neighbors)));
      if (value.weight > 2) continue;
      value.time = static_cast<double>(random.below(1'000));
      trees.upsert(0, id, value);
    }
    trees.check();
  }

  // Classes of neighbours near each other in the tree of ids, or in the order of times; the weights that outweigh all
  // others each have a class of their own.
  Classes classes(bool by_weight, double until, bool by_time) const {
    std::vector<std::pair<double, uint32_t>> places;
    for (const auto& [id, value] : oracle) places.emplace_back(by_time ? value.time : 0, id);
    std::sort(places.begin(), places.end());
    Oracle light;
    for (uint32_t i = 0; i < places.size(); ++i) {
      const EdgeValue& value = oracle.at(places[i].second);
      if (!(value.weight > 2)) light[i] = value;
    }
    Classes classes(light, by_weight, until);
    const auto of = std::exchange(classes.of, {});
    for (const auto& [place, index] : of) classes.of[places[place].second] = index;
    for (const auto& [id, value] : oracle) {
      if (value.weight > 2 && value.time <= until) {
        classes.of[id] = classes.probabilities.size();
        classes.probabilities.push_back(0);
      }
    }
    return classes;
  }

  Trees trees;
  Oracle oracle;
};

// Draws one after another from a list of candidates, the slow way.
std::vector<std::vector<size_t>> successive_draws(const Oracle& oracle, const Classes& classes, NeighborLaw law,
                                                  double until, size_t repeats) {
  std::vector<std::vector<size_t>> seen(static_cast<size_t>(law.count),
                                        std::vector<size_t>(classes.probabilities.size()));
  std::vector<std::pair<uint32_t, double>> all;
  for (const auto& [id, value] : oracle) {
    const double chance = Classes::chance(value, law.by == SampleBy::kWeight, until);
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
      if (!law.replace) left.erase(left.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
  return seen;
}

// Whether two samples of each place of a sequence can be of one law.
void check_alike(const std::vector<std::vector<size_t>>& seen, const std::vector<std::vector<size_t>>& oracle) {
  for (size_t place = 0; place < seen.size(); ++place) {
    double sum = 0;
    size_t degrees = 0;
    for (size_t c = 0; c < seen[place].size(); ++c) {
      const double a = static_cast<double>(seen[place][c]), b = static_cast<double>(oracle[place][c]);
      if (a + b < 10) continue;
      sum += (a - b) * (a - b) / (a + b);
      ++degrees;
    }
    // One in ten thousand of each of many places: one more in ten is granted for their number.
    if (degrees > 1) CHECK(sum < 1.1 * chi_square_limit(degrees - 1));
  }
}

TEST(draws_from_hubs_have_their_law_where_rejection_would_take_long) {
  for (const Shape shape : {Shape{900, 16}, Shape{30'000, 64}}) {
    const SteepList list(shape.neighbors, shape.capacity);
    for (SampleBy by : {SampleBy::kUniform, SampleBy::kWeight}) {
      for (bool replace : {false, true}) {
        for (double until : {kForEver, 5.0, shape.neighbors > 1'000 ? 400.0 : 250.0}) {
          // The slow way looks at all candidates: few enough.
          if (until == kForEver && (by == SampleBy::kUniform || shape.neighbors > 1'000)) continue;
          const NeighborLaw law{by, replace, 8};
          const bool by_time = until < kForEver;
          const Classes classes = list.classes(by == SampleBy::kWeight, until, by_time);
          if (law.replace && by == SampleBy::kUniform && until > 5) continue;  // no other way than above
          constexpr size_t kRepeats = 1'500;
          const std::vector<uint32_t> nodes(kRepeats, 0);
          const auto out = draw(list.trees, law, nodes, std::vector<double>(until < kForEver ? 1 : 0, until), 77);
          if (classes.of.size() < 8 && !replace) continue;
          CHECK_EQ(out.ids.size(), kRepeats * 8);
          std::vector<std::vector<size_t>> seen(8, std::vector<size_t>(classes.probabilities.size()));
          for (size_t i = 0; i < out.ids.size(); ++i) {
            ++seen[i % 8][classes.of.at(out.ids[i])];
            CHECK(out.times[i] <= until);
            CHECK_EQ(out.rows[i], list.oracle.at(out.ids[i]).row);
            CHECK_EQ(out.weights[i], list.oracle.at(out.ids[i]).weight);
          }
          for (size_t i = 0; i < out.ids.size() && !replace; i += 8) {
            CHECK_EQ(std::set<uint32_t>(out.ids.begin() + static_cast<std::ptrdiff_t>(i),
                                        out.ids.begin() + static_cast<std::ptrdiff_t>(i) + 8)
                         .size(),
                     8u);
          }
          check_alike(seen, successive_draws(list.oracle, classes, law, until, kRepeats));
        }
      }
    }
  }
}

TEST(draws_from_hubs_take_all_there_is_where_too_many_are_asked_for) {
  const SteepList list(5'000, 16);
  for (SampleBy by : {SampleBy::kUniform, SampleBy::kWeight, SampleBy::kLatest}) {
    for (double until : {-1.0, 0.0, 1.0, 3.0}) {
      std::set<uint32_t> there;
      for (const auto& [id, value] : list.oracle) {
        if (value.time <= until && (by != SampleBy::kWeight || value.weight > 0)) there.insert(id);
      }
      for (int32_t count : {NeighborLaw::kAll, 40, 900}) {
        const auto out = draw(list.trees, {by, false, count}, std::vector<uint32_t>{0}, std::vector<double>{until}, 5);
        const std::set<uint32_t> drawn(out.ids.begin(), out.ids.end());
        CHECK_EQ(drawn.size(), out.ids.size());
        CHECK_EQ(drawn.size(), count < 0 ? there.size() : std::min(there.size(), static_cast<size_t>(count)));
        CHECK(std::includes(there.begin(), there.end(), drawn.begin(), drawn.end()));
      }
    }
  }
}

// By leaves, since time depends on the machine: 150,000 neighbours stand in more than 600 of them.
TEST(draws_from_a_hub_look_at_few_leaves) {
  const SteepList list(150'000, 256);
  const std::vector<uint32_t> nodes = {0};
  size_t all = 0;
  list.trees.scan(0, [&](const NeighborSpan&) { ++all; });
  CHECK(all > 500);
  auto leaves = [&](NeighborLaw law, std::span<const double> until) {
    NeighborDraws draws;
    NeighborColumns out;
    draws.draw({&list.trees, law, kAllColumns, 3, 0}, nodes, until, 0, &out);
    CHECK_EQ(out.ids.size(), size_t{10});
    return draws.leaves_looked_at();
  };
  const std::vector<double> rare = {0.0}, middle = {500.0};
  CHECK(leaves({SampleBy::kLatest, false, 10}, {}) <= 12);
  CHECK(leaves({SampleBy::kLatest, false, 10}, middle) <= 13);
  CHECK(leaves({SampleBy::kLatest, false, 10}, rare) <= 13);
  for (bool replace : {false, true}) {
    CHECK(leaves({SampleBy::kUniform, replace, 10}, rare) <= 80);
    CHECK(leaves({SampleBy::kUniform, replace, 10}, middle) <= 60);
    CHECK(leaves({SampleBy::kWeight, replace, 10}, rare) <= 80);
    CHECK(leaves({SampleBy::kWeight, replace, 10}, middle) <= 80);
  }
  // Four weights stand out: the way to each of them is taken apart, in which the leaves beside it are asked for sums.
  CHECK(leaves({SampleBy::kWeight, false, 10}, {}) <= 4 * 256);
}

TEST(draws_by_equal_weights_of_any_magnitude_are_equal) {
  // From the smallest float to the greatest weight, on a leaf and on a tree of leaves.
  for (const Shape shape : {Shape{10, 256}, Shape{10, 4}}) {
    for (float weight : {1e-45f, 1e-42f, 1e-40f, 1e-38f, 1.0f, 1e20f, kMaxWeight}) {
      Trees trees({true, false, false}, {shape.capacity, 1, true});
      trees.resize(1);
      for (uint32_t id = 0; id < 10; ++id) trees.upsert(0, id, {weight});
      for (bool replace : {false, true}) {
        for (int32_t count : {1, 3, 4, 9}) {
          const std::vector<uint32_t> nodes(4'000, 0);
          NeighborColumns out;
          NeighborDraws().draw({&trees, {SampleBy::kWeight, replace, count}, {}, 19, 0}, nodes, {}, 0, &out);
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

TEST(draws_do_not_depend_on_the_group_they_are_in) {
  const LongList list(500, 32);
  Random random;
  std::vector<uint32_t> nodes(300);
  std::vector<double> until(nodes.size());
  for (auto& node : nodes) node = random.index(3);
  for (auto& bound : until) bound = static_cast<double>(random.below(60));
  for (SampleBy by : {SampleBy::kUniform, SampleBy::kWeight, SampleBy::kLatest}) {
    for (int32_t count : {1, 7, 100, 2'000}) {
      const NeighborDraws::Task task{&list.trees, {by, false, count}, kAllColumns, 9, 4};
      NeighborDraws draws;
      NeighborColumns whole, part;
      draws.draw(task, nodes, until, 0, &whole);
      std::vector<uint32_t> ids;
      for (size_t begin = 0; begin < nodes.size();) {
        const size_t size = std::min<size_t>(1 + random.below(40), nodes.size() - begin);
        draws.draw(task, std::span(nodes).subspan(begin, size), std::span(until).subspan(begin, size), begin, &part);
        // One bound is one for all, so a part of one node is no part of many bounds: it is the same bound.
        ids.insert(ids.end(), part.ids.begin(), part.ids.end());
        begin += size;
      }
      CHECK(ids == whole.ids);
    }
  }
}

TEST(draws_by_weights_that_are_all_zero_are_empty) {
  Trees trees({true, false, false}, {8, 1, true});
  trees.resize(2);
  for (uint32_t id = 0; id < 100; ++id) trees.upsert(0, id, {0});
  for (uint32_t id = 0; id < 100; ++id) trees.upsert(1, id, {id == 50 ? 1.0f : 0.0f});
  const std::vector<uint32_t> nodes = {0, 1};
  for (bool replace : {false, true}) {
    for (int32_t count : {NeighborLaw::kAll, 2, 60}) {
      NeighborColumns out;
      NeighborDraws().draw({&trees, {SampleBy::kWeight, replace, count}, {}, 0, 0}, nodes, {}, 0, &out);
      CHECK_EQ(out.counts[0], 0u);
      CHECK_EQ(out.counts[1], replace && count > 0 ? static_cast<uint32_t>(count) : 1u);
      for (uint32_t id : out.ids) CHECK_EQ(id, 50u);
    }
  }
}

}  // namespace
}  // namespace livegnn
