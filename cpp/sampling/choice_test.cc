#include "sampling/choice.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "testing/chi_square.h"
#include "testing/testing.h"

namespace livegnn::choice_test {
namespace {

using testing::chi_square_limit;
using testing::Random;
using Sequence = std::vector<uint32_t>;

// Every sequence that can be drawn without replacement, with its probability: each draw takes one of those that are
// left, in proportion to the weights.
void enumerate(const std::vector<double>& weights, size_t count, Sequence drawn, double probability,
               std::map<Sequence, double>* to) {
  double left = 0;
  for (uint32_t i = 0; i < weights.size(); ++i) {
    if (std::find(drawn.begin(), drawn.end(), i) == drawn.end()) left += weights[i];
  }
  if (drawn.size() == count || left == 0) {
    (*to)[drawn] += probability;
    return;
  }
  for (uint32_t i = 0; i < weights.size(); ++i) {
    if (weights[i] == 0 || std::find(drawn.begin(), drawn.end(), i) != drawn.end()) continue;
    Sequence longer = drawn;
    longer.push_back(i);
    enumerate(weights, count, longer, probability * weights[i] / left, to);
  }
}

template <class Draw>
void check_sequences(const std::vector<double>& weights, size_t count, const Draw& draw) {
  std::map<Sequence, double> expected;
  enumerate(weights, count, {}, 1, &expected);
  std::map<Sequence, size_t> place;
  std::vector<double> probabilities;
  for (const auto& [sequence, probability] : expected) {
    place[sequence] = probabilities.size();
    probabilities.push_back(probability);
  }
  std::vector<size_t> seen(probabilities.size());
  for (uint64_t repeat = 0; repeat < 40'000; ++repeat) {
    RandomStream random(17, 1, repeat);
    Sequence drawn;
    draw(&random, &drawn);
    CHECK_EQ(place.count(drawn), 1u);
    ++seen[place[drawn]];
  }
  CHECK(testing::chi_square(seen, probabilities) < chi_square_limit(probabilities.size() - 1));
}

TEST(random_numbers_are_alike_and_stay_below) {
  RandomStream random(5, 6, 7), again(5, 6, 7), other(5, 7, 6);
  std::vector<size_t> seen(50);
  for (int i = 0; i < 100'000; ++i) {
    const uint64_t drawn = random.below(50);
    CHECK_EQ(drawn, again.below(50));
    ++seen[drawn];
  }
  CHECK(testing::chi_square(seen, std::vector<double>(50, 1.0 / 50)) < chi_square_limit(49));
  CHECK(other.bits() != RandomStream(5, 6, 7).bits());
  CHECK_EQ(random.below(1), 0u);
}

TEST(random_streams_of_neighbouring_places_are_independent) {
  // Pairs of the first numbers of two streams side by side, on a grid.
  std::vector<size_t> seen(100);
  for (uint64_t place = 0; place < 100'000; ++place) {
    ++seen[RandomStream(0, 0, place).below(10) * 10 + RandomStream(0, 0, place + 1).below(10)];
  }
  CHECK(testing::chi_square(seen, std::vector<double>(100, 0.01)) < chi_square_limit(99));
}

TEST(a_number_set_holds_what_was_inserted) {
  Random random;
  NumberSet<uint32_t> set;
  for (int round = 0; round < 20; ++round) {
    std::set<uint32_t> oracle;
    set.clear(random.below(40));
    CHECK(!set.contains(0));
    const uint64_t range = 1 + random.below(round % 2 == 0 ? 300 : uint64_t{UINT32_MAX});
    for (int i = 0; i < 300; ++i) {
      const auto number = static_cast<uint32_t>(random.below(range));
      CHECK_EQ(set.insert(number), oracle.insert(number).second);
      const auto asked = static_cast<uint32_t>(random.below(range));
      CHECK_EQ(set.contains(asked), oracle.count(asked) == 1);
    }
  }
}

TEST(choice_without_replacement_has_the_law_of_successive_draws) {
  Choice choice;
  // Few of many, by draws that reject; many of few, by looking at everything; and a weight so great that draws pile up
  // rejections until everything is looked at after all.
  for (const std::vector<double>& weights :
       {std::vector<double>{1, 2, 3, 4, 5, 0, 1, 8}, {5, 0, 1, 3}, {1, 2, 1, 2, 1, 2, 1, 2, 20}}) {
    check_sequences(weights, 2, [&](RandomStream* random, Sequence* to) {
      choice.by_weight(std::span<const double>(weights), 2, false, random, to);
    });
  }
  check_sequences({5, 0, 1, 3}, 4, [&](RandomStream* random, Sequence* to) {
    const std::vector<float> weights = {5, -2, 1, 3};  // below 0 is as 0
    choice.by_weight(std::span<const float>(weights), 4, false, random, to);
  });
  for (size_t candidates : {4, 12}) {
    check_sequences(std::vector<double>(candidates, 1), 3,
                    [&](RandomStream* random, Sequence* to) { choice.uniform(candidates, 3, false, random, to); });
  }
}

TEST(choice_with_replacement_has_the_law_of_each_draw) {
  Choice choice;
  const std::vector<double> weights = {3, 0, 1, 2, 0.5};
  std::vector<size_t> by_weight(5), uniform(5);
  for (uint64_t repeat = 0; repeat < 10'000; ++repeat) {
    RandomStream random(3, 2, repeat);
    Sequence drawn;
    choice.by_weight(std::span<const double>(weights), 3, true, &random, &drawn);
    for (uint32_t i : drawn) ++by_weight[i];
    drawn.clear();
    choice.uniform(5, 3, true, &random, &drawn);
    for (uint32_t i : drawn) ++uniform[i];
  }
  CHECK_EQ(std::accumulate(uniform.begin(), uniform.end(), size_t{0}), 30'000u);
  CHECK(testing::chi_square(by_weight, {3 / 6.5, 0, 1 / 6.5, 2 / 6.5, 0.5 / 6.5}) < chi_square_limit(3));
  CHECK(testing::chi_square(uniform, std::vector<double>(5, 0.2)) < chi_square_limit(4));
}

TEST(choice_of_what_is_not_there_is_empty) {
  Choice choice;
  RandomStream random(1, 1, 1);
  Sequence drawn;
  for (bool replace : {false, true}) {
    choice.uniform(0, 3, replace, &random, &drawn);
    choice.by_weight(std::span<const double>(), 3, replace, &random, &drawn);
    choice.by_weight(std::span<const double>(std::vector<double>{0, -1, 0}), 3, replace, &random, &drawn);
  }
  CHECK(drawn.empty());
}

TEST(choice_of_the_latest_sorts) {
  Random random;
  Choice choice;
  for (int round = 0; round < 200; ++round) {
    std::vector<double> times(random.below(30));
    for (double& time : times) time = static_cast<double>(random.below(8));
    Sequence ids(times.size());
    for (uint32_t i = 0; i < ids.size(); ++i) ids[i] = i * 7919 % 1009;
    Sequence oracle(times.size());
    std::iota(oracle.begin(), oracle.end(), 0);
    std::sort(oracle.begin(), oracle.end(),
              [&](uint32_t a, uint32_t b) { return std::pair(-times[a], ids[a]) < std::pair(-times[b], ids[b]); });
    const size_t count = random.below(times.size() + 3);
    oracle.resize(std::min(count, oracle.size()));
    Sequence drawn;
    choice.latest(times, std::span<const uint32_t>(ids), count, &drawn);
    CHECK(drawn == oracle);
  }
}

}  // namespace
TEST(draws_of_lists_are_those_of_each_list_alone) {
  Random random;
  std::vector<int64_t> offsets = {0}, nodes, neighbors;
  std::vector<float> weights;
  std::vector<double> times;
  for (int i = 0; i < 50; ++i) {
    nodes.push_back(static_cast<int64_t>(random.below(1000)));
    for (size_t j = random.index(12); j > 0; --j) {
      neighbors.push_back(static_cast<int64_t>(random.below(5)));
      weights.push_back(random.between(-1, 3));
      times.push_back(static_cast<double>(random.below(4)));
    }
    offsets.push_back(static_cast<int64_t>(neighbors.size()));
  }
  for (int by = 0; by < 3; ++by) {
    const auto some = [&](auto& values, bool wanted) { return std::span(values).first(wanted ? values.size() : 0); };
    const auto by_weight = some(weights, by == 1);
    const auto latest = some(times, by == 2);
    const auto drawn = draw_of_lists(offsets, nodes, neighbors, by_weight, latest, 3, 7);
    CHECK(drawn == draw_of_lists(offsets, nodes, neighbors, by_weight, latest, 3, 7));
    CHECK(std::is_sorted(drawn.begin(), drawn.end()));
    for (size_t i = 0; i < nodes.size(); ++i) {
      const std::vector<int64_t> bounds = {offsets[i], offsets[i + 1]};
      const auto alone = draw_of_lists(bounds, std::span(nodes).subspan(i, 1), neighbors, by_weight, latest, 3, 7);
      CHECK(std::ranges::includes(drawn, alone));
      size_t can_be = 0;
      for (int64_t at = bounds[0]; at < bounds[1]; ++at) can_be += by != 1 || weights[static_cast<size_t>(at)] > 0;
      CHECK_EQ(alone.size(), std::min<size_t>(3, can_be));
      for (int64_t at = bounds[0]; by == 2 && at < bounds[1]; ++at) {
        if (std::ranges::count(alone, at) > 0) continue;
        for (int64_t one : alone) CHECK(times[static_cast<size_t>(one)] >= times[static_cast<size_t>(at)]);
      }
    }
  }
}

}  // namespace livegnn::choice_test
