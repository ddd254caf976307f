// Draws from the many neighbours of one node, as NeighborDraws makes them.
#include "sampling/hub_draws.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "sampling/neighbor_draws.h"
#include "sampling/neighbor_draws_model.h"

namespace livegnn::hub_draws_test {
namespace {

using namespace draws_model;

// One list in which rejection takes long: a few weights outweigh all others, each by as much again, and few edges are
// early. Some weights are smaller than a float's common ones.
template <class Id>
struct SteepList {
  SteepList(uint32_t neighbors, uint32_t capacity) : trees(kAllColumns, {capacity, capacity / 8, true}) {
    trees.resize(1);
    RandomStream random(13, neighbors, capacity);
    std::vector<typename Samtrees<Id>::Change> changes;
    for (uint32_t i = 0; i < neighbors; ++i) {
      const auto weight = static_cast<float>(0.5 + random.positive());
      const EdgeValue value{i % 7 == 0 ? 0.0f : weight, static_cast<double>(random.below(1'000)), 5 * i};
      changes.push_back({id_at<Id>(5 * i), true, value});
    }
    const uint32_t steep[] = {neighbors / 2, neighbors / 3, neighbors - 1, neighbors / 2 + 1};
    for (uint32_t i = 0; i < 4; ++i) {
      changes[steep[i]].value.weight = static_cast<float>(std::pow(1e6, i + 1) * neighbors);
      // Two of them are among the early ones, but not the first.
      changes[steep[i]].value.time = i % 2 == 0 ? 200 : 999;
    }
    typename Samtrees<Id>::Lane lane;
    trees.set_root(0, trees.rebuild({}, changes, &lane));
    trees.free_retired(&lane);
    for (const auto& change : changes) oracle[change.value.row] = change.value;
    // Times change, too.
    for (uint32_t i = 0; i < 200; ++i) {
      auto& [id, value] = *oracle.find(5 * static_cast<uint32_t>(random.below(neighbors)));
      if (value.weight > 2) continue;
      value.time = static_cast<double>(random.below(1'000));
      trees.upsert(0, id_at<Id>(id), value);
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

  Samtrees<Id> trees;
  Oracle oracle;
};

TEST_OF_LISTS(draws_from_hubs_have_their_law_where_rejection_would_take_long) {
  for (const Shape shape : {Shape{900, 16}, Shape{30'000, 64}}) {
    const SteepList<Id> list(shape.neighbors, shape.capacity);
    for (SampleBy by : {SampleBy::kUniform, SampleBy::kWeight}) {
      for (bool replace : {false, true}) {
        for (double until : {kForEver, 5.0, shape.neighbors > 1'000 ? 400.0 : 250.0}) {
          // The slow way looks at all candidates: few enough.
          if (until == kForEver && (by == SampleBy::kUniform || shape.neighbors > 1'000)) continue;
          const NeighborStrategy strategy{by, replace, 8};
          const bool by_time = until < kForEver;
          const Classes classes = list.classes(by == SampleBy::kWeight, until, by_time);
          if (strategy.replace && by == SampleBy::kUniform && until > 5) continue;  // no other way than above
          const size_t repeats = testing::draws(150, 1'500);
          const std::vector<uint32_t> nodes(repeats, 0);
          const auto out = draw(list.trees, strategy, nodes, std::vector<double>(until < kForEver ? 1 : 0, until), 77);
          if (classes.of.size() < 8 && !replace) continue;
          CHECK_EQ(out.ids.size(), repeats * 8);
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
          check_alike(seen, successive_draws(list.oracle, classes, strategy, until, repeats));
        }
      }
    }
  }
}

TEST_OF_LISTS(draws_from_hubs_take_all_there_is_where_too_many_are_asked_for) {
  const SteepList<Id> list(5'000, 16);
  for (SampleBy by : {SampleBy::kUniform, SampleBy::kWeight, SampleBy::kLatest}) {
    for (double until : {-1.0, 0.0, 1.0, 3.0}) {
      std::set<uint32_t> there;
      for (const auto& [id, value] : list.oracle) {
        if (value.time <= until && (by != SampleBy::kWeight || value.weight > 0)) there.insert(id);
      }
      for (int32_t count : {NeighborStrategy::kAll, 40, 900}) {
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
TEST_OF_LISTS(draws_from_a_hub_look_at_few_leaves) {
  const SteepList<Id> list(150'000, 256);
  const std::vector<uint32_t> nodes = {0};
  size_t all = 0;
  list.trees.scan(0, [&](const BasicNeighborSpan<Id>&) { ++all; });
  CHECK(all > 500);
  auto leaves = [&](NeighborStrategy strategy, std::span<const double> until) {
    NeighborDraws draws;
    NeighborColumns out;
    draws.draw(task_of(list.trees, strategy, 3), nodes, until, 0, &out);
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

}  // namespace
}  // namespace livegnn::hub_draws_test
