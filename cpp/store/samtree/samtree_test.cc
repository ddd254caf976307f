#include "store/samtree/samtree.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <vector>

#include "store/samtree/samtree_model.h"
#include "testing/testing.h"

namespace livegnn::samtree_test {

using namespace testing;

TEST(samtree_is_empty_at_first) {
  for_both_ids([](auto id) {
    Samtrees<decltype(id)> trees({true, false, false}, {});
    CHECK(!trees.find(0, 5).has_value());
    trees.resize(2);
    check_against(trees, 0, {});
    CHECK(!trees.remove(0, 5));
    CHECK_EQ(trees.weight_sum(7), 0.0);
    trees.check();
  });
}

TEST(samtree_agrees_with_a_map_after_every_change) {
  Random random;
  for_both_ids([&](auto zero) {
    using Id = decltype(zero);
    for (EdgeColumns columns : kAllColumns) {
      for (SamtreeOptions options :
           {kSmall, SamtreeOptions{4, 0, true}, SamtreeOptions{16, 4, false}, SamtreeOptions{}}) {
        Samtrees<Id> trees(columns, options);
        trees.resize(1);
        NeighborModel<Id> model;
        for (int turn = 0; turn < 4; ++turn) {
          const double growth = turn % 2 == 0 ? 0.85 : 0.15;
          for (int i = 0; i < 250; ++i) {
            const Id id = random_id<Id>(&random, 400);
            if (random.chance(growth)) {
              const EdgeValue value = random_value(&random);
              CHECK_EQ(trees.upsert(0, id, value), !model.contains(id));
              model[id] = value;
            } else {
              auto found = model.lower_bound(id);
              const Id gone = found != model.end() && random.chance(0.8) ? found->first : id;
              CHECK_EQ(trees.remove(0, gone), model.erase(gone) == 1);
            }
            trees.check();
            if (i % 25 == 0) check_against(trees, 0, model);
          }
          check_against(trees, 0, model);
        }
        while (!model.empty()) {
          CHECK(trees.remove(0, model.begin()->first));
          model.erase(model.begin());
          trees.check();
        }
        CHECK_EQ(trees.save().ids.size(), 0u);
      }
    }
  });
}

TEST(samtree_takes_many_changes_at_once) {
  Random random;
  for_both_ids([&](auto zero) {
    using Id = decltype(zero);
    for (SamtreeOptions options : {kSmall, SamtreeOptions{4, 1, true}, SamtreeOptions{}}) {
      for (EdgeColumns columns : {kAllColumns[0], kAllColumns[4]}) {
        Samtrees<Id> trees(columns, options);
        trees.resize(1);
        typename Samtrees<Id>::Lane lane;
        NeighborModel<Id> model;
        for (int turn = 0; turn < 30; ++turn) {
          NeighborModel<Id> changes;
          std::vector<typename Samtrees<Id>::Change> list;
          const uint32_t count = 1 + random.index(turn % 3 == 0 ? 3000 : 20);
          const double growth = turn % 6 < 4 ? 0.8 : 0.05;
          for (uint32_t i = 0; i < count; ++i) changes[random_id<Id>(&random, 3000)] = random_value(&random);
          if (turn % 7 == 6) {
            for (const auto& [id, value] : model) changes[id] = value;  // all of it, to go
          }
          for (const auto& [id, value] : changes) {
            const bool has = turn % 7 != 6 && random.chance(growth);
            list.push_back({id, has, value});
            if (has) {
              model[id] = value;
            } else {
              model.erase(id);
            }
          }
          const auto before = trees.save();
          const SamtreeRoot from = trees.root(0);
          SamtreeRoot root;
          if (turn % 2 == 0 || from.degree <= options.capacity) {
            root = trees.rebuild(from, list, &lane);
          } else {
            auto work = trees.split(from, list);
            for (auto& piece : work) trees.run(&piece, &lane);
            root = trees.join(from, list, work, &lane);
          }
          CHECK(same_columns(before, trees.save()));  // nothing shows
          if (turn % 5 == 4) {
            // Dropped, and done again: it must come to the same.
            trees.free_made(&lane);
            root = trees.rebuild(from, list, &lane);
          }
          trees.set_root(0, root);
          trees.free_retired(&lane);
          trees.check();
          check_against(trees, 0, model);
        }
      }
    }
  });
}

TEST(samtree_grows_to_several_levels_and_shrinks_to_nothing) {
  Samtrees<uint32_t> trees({true, false, false}, kSmall);
  trees.resize(1);
  NeighborModel<uint32_t> model;
  for (uint32_t i = 0; i < 5000; ++i) {
    const uint32_t id = i * 2654435761u;
    trees.upsert(0, id, {1, 0});
    model[id] = {1, 0};
  }
  trees.check();
  check_against(trees, 0, model);
  CHECK(trees.save().shape[2] >= 3);  // the root's height
  CHECK_EQ(trees.weight_sum(0), 5000.0);
  for (uint32_t i = 0; i < 5000; ++i) {
    CHECK(trees.remove(0, i * 2654435761u));
    if (i % 100 == 0) trees.check();
  }
  CHECK_EQ(trees.degree(0), 0u);
}

TEST(samtree_finds_neighbours_by_place_and_by_weight) {
  Random random;
  Samtrees<uint32_t> trees({true, false, false}, kSmall);
  trees.resize(1);
  for (uint32_t i = 0; i < 700; ++i) trees.upsert(0, random.index(100000), {random.between(-0.5f, 1), 0});
  std::vector<uint32_t> ids;
  std::vector<float> weights;
  trees.scan(0, [&](NeighborSpan span) {
    ids.insert(ids.end(), span.ids, span.ids + span.size);
    weights.insert(weights.end(), span.weights, span.weights + span.size);
  });
  double before = 0;
  for (uint32_t i = 0; i < ids.size(); ++i) {
    uint32_t at = i;
    CHECK_EQ(trees.leaf_of(trees.root(0), &at).id(trees.columns(), at), ids[i]);
    if (weights[i] <= 0) continue;
    double middle = before + weights[i] / 2.0;
    before += weights[i];
    if (weights[i] < 1e-3f) continue;  // nearer to the next one than rounding tells apart
    const auto drawn = trees.leaf_at_weight(trees.root(0), &middle);
    CHECK_EQ(drawn.id(trees.columns(), drawn.at_weight(trees.columns(), middle)), ids[i]);
  }
}

TEST(samtree_sums_stay_right_after_a_million_updates) {
  Random random;
  Samtrees<uint32_t> trees({true, false, false}, {16, 4, true});
  trees.resize(1);
  std::vector<float> weights(300);
  for (uint32_t i = 0; i < 300; ++i) trees.upsert(0, i, {weights[i] = 1, 0});
  for (size_t i = 0; i < testing::draws(300'000, 1'000'000); ++i) {
    const uint32_t id = random.index(300);
    // Ten orders of magnitude apart, which a table that adds up differences would not survive.
    const float weight = random.chance(0.01) ? 1e7f : random.between(0, 1e-3f);
    trees.upsert(0, id, {weights[id] = weight, 0});
  }
  for (uint32_t id = 0; id < 300; ++id) {
    if (weights[id] > 1) trees.upsert(0, id, {weights[id] = 1e-3f, 0});
  }
  trees.check();
  double sum = 0;
  for (float weight : weights) sum += weight;
  CHECK(std::abs(trees.weight_sum(0) - sum) <= 1e-6 * sum);
}

// What is left alone keeps the rounding of the time when it was little beside the whole.
TEST(samtree_sums_stay_right_while_the_largest_falls_in_steps) {
  Random random;
  for (uint32_t largest : {0u, 30u, 63u}) {
    Samtrees<uint32_t> trees({true, false, false}, kSmall);
    trees.resize(1);
    std::vector<float> weights(64);
    for (uint32_t i = 0; i < 64; ++i) trees.upsert(0, i, {weights[i] = random.between(0, 1), 0});
    for (float weight = kMaxWeight; weight > 1e-3f; weight /= random.between(1, 3900)) {
      trees.upsert(0, largest, {weights[largest] = weight, 0});
      trees.check();
      double sum = 0;
      for (float each : weights) sum += each;
      CHECK(std::abs(trees.weight_sum(0) - sum) <= 1e-6 * sum);
    }
  }
}

TEST(samtree_sums_stay_right_where_a_node_parts_great_from_little) {
  Random random;
  Samtrees<uint32_t> trees({true, false, false}, {4, 1, true});
  trees.resize(1);
  for (int i = 0; i < 600; ++i) {
    const uint32_t id = random.index(1000);
    trees.upsert(0, id, {id < 500 ? 1e20f : random.between(0, 1), 0});
    trees.check();
  }
}

TEST(samtree_order_depends_on_the_history_alone) {
  for (int turn = 0; turn < 2; ++turn) {
    Samtrees<uint32_t> a({true, true, false}, kSmall), b({true, true, false}, kSmall);
    a.resize(1), b.resize(1);
    Random random, again = random;
    for (auto* trees : {&a, &b}) {
      Random& numbers = trees == &a ? random : again;
      for (int i = 0; i < 2000; ++i) {
        const uint32_t id = numbers.index(500);
        if (numbers.chance(0.6)) {
          trees->upsert(0, id, random_value(&numbers));
        } else {
          trees->remove(0, id);
        }
      }
    }
    CHECK(same_columns(a.save(), b.save()));
  }
}

}  // namespace livegnn::samtree_test
