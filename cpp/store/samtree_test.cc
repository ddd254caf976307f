#include "store/samtree.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "testing/testing.h"

namespace livegnn {
namespace {

using testing::Random;
template <class Id>
using Model = std::map<Id, EdgeValue>;

constexpr EdgeColumns kAllColumns[] = {
    {false, false, false}, {true, false, false}, {false, true, false}, {false, false, true}, {true, true, true}};
constexpr SamtreeOptions kSmall{8, 2, true};

EdgeValue random_value(Random* random) {
  return {random->between(-1, 9), random->between(0, 1e6f), random->index(1000)};
}

// What is left of a value in a tree that lacks some columns.
EdgeValue kept(EdgeValue value, EdgeColumns columns) {
  return {columns.weighted ? value.weight : 1.0f, columns.timed ? value.time : 0.0,
          columns.featured ? value.row : kNoRow};
}

bool same(EdgeValue a, EdgeValue b) { return a.weight == b.weight && a.time == b.time && a.row == b.row; }

template <class Id>
void check_against(const Samtrees<Id>& trees, size_t node, const Model<Id>& model) {
  const EdgeColumns columns = trees.columns();
  CHECK_EQ(trees.degree(node), model.size());
  Model<Id> scanned;
  bool first = true;
  Id last = 0;
  trees.scan(node, [&](BasicNeighborSpan<Id> span) {
    CHECK(span.size > 0);
    CHECK_EQ(span.weights != nullptr, columns.weighted);
    CHECK_EQ(span.times != nullptr, columns.timed);
    CHECK_EQ(span.rows != nullptr, columns.featured);
    CHECK(first || *std::min_element(span.ids, span.ids + span.size) > last);
    first = false;
    last = *std::max_element(span.ids, span.ids + span.size);
    for (size_t i = 0; i < span.size; ++i) {
      EdgeValue value{span.weights ? span.weights[i] : 1.0f, span.times ? span.times[i] : 0.0,
                      span.rows ? span.rows[i] : kNoRow};
      CHECK(scanned.emplace(span.ids[i], value).second);
    }
  });
  CHECK_EQ(scanned.size(), model.size());
  double sum = 0;
  auto b = scanned.begin();
  for (auto a = model.begin(); a != model.end(); ++a, ++b) {
    CHECK_EQ(a->first, b->first);
    CHECK(same(kept(a->second, columns), b->second));
    sum += std::max(0.0f, b->second.weight);
  }
  CHECK(std::abs(trees.weight_sum(node) - sum) <= 1e-5 * sum);
}

template <class Id>
bool same_columns(const typename Samtrees<Id>::Saved& a, const typename Samtrees<Id>::Saved& b) {
  return a.shape == b.shape && a.keys == b.keys && a.ids == b.ids && a.weights == b.weights && a.times == b.times &&
         a.rows == b.rows && a.sums == b.sums && a.orders == b.orders;
}

// Moves blocks together, as a store does between batches; `look` sees the trees while readers would.
template <class Id, class Look>
void compact(Samtrees<Id>* trees, const Look& look) {
  typename Samtrees<Id>::Lane lane;
  if (!trees->begin_compaction()) return;
  std::vector<SamtreeRoot> moved;
  for (size_t node = 0; node < trees->size(); ++node) moved.push_back(trees->relocate(trees->root(node), &lane));
  look();
  for (size_t node = 0; node < trees->size(); ++node) trees->set_root(node, moved[node]);
  trees->free_retired(&lane);
  trees->end_compaction();
}

template <class Body>
void for_both_ids(const Body& body) {
  body(uint32_t{});
  body(uint64_t{});
}

// Ids as streams have them: near each other, far apart, and at the ends of what there is.
template <class Id>
Id random_id(Random* random, uint32_t spread) {
  if (random->chance(0.01)) return random->chance(0.5) ? std::numeric_limits<Id>::max() - random->index(3) : 0;
  const Id cluster = static_cast<Id>(random->index(3)) << (sizeof(Id) * 8 - 3);
  return static_cast<Id>(cluster + random->below(spread));
}

}  // namespace

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
        Model<Id> model;
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
        Model<Id> model;
        for (int turn = 0; turn < 30; ++turn) {
          Model<Id> changes;
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
          CHECK(same_columns<Id>(before, trees.save()));  // nothing shows
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
  Model<uint32_t> model;
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
  for (int i = 0; i < 1'000'000; ++i) {
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
    CHECK(same_columns<uint32_t>(a.save(), b.save()));
  }
}

TEST(samtree_comes_back_in_its_exact_shape) {
  Random random;
  for_both_ids([&](auto zero) {
    using Id = decltype(zero);
    for (EdgeColumns columns : kAllColumns) {
      Samtrees<Id> trees(columns, kSmall), restored(columns, kSmall);
      trees.resize(3), restored.resize(3);
      restored.upsert(1, 77, {});  // over what was there
      auto change = [&](Samtrees<Id>* to, Random* numbers) {
        for (int i = 0; i < 600; ++i) {
          const size_t node = numbers->index(2);
          const Id id = random_id<Id>(numbers, 300);
          if (numbers->chance(0.7)) {
            to->upsert(node, id, random_value(numbers));
          } else {
            to->remove(node, id);
          }
        }
      };
      change(&trees, &random);
      restored.load(trees.save());
      restored.check();
      Random again = random;
      change(&trees, &random);
      change(&restored, &again);
      CHECK(same_columns<Id>(trees.save(), restored.save()));
    }
  });
}

// Small capacities make high trees: a hub of 60,000 has up to 15 levels at capacity 4.
TEST(samtree_comes_back_from_any_height) {
  Random random;
  for (uint32_t capacity : {4u, 5u, 6u, 8u, 13u, 64u, 256u, 1024u}) {
    const SamtreeOptions options{capacity, random.index(capacity / 4 + 1), true};
    const EdgeColumns columns{random.chance(0.5), random.chance(0.5), random.chance(0.5)};
    Samtrees<uint32_t> trees(columns, options), restored(columns, options);
    trees.resize(2);
    restored.resize(2);
    const size_t size = capacity == 4 ? 60'000 : 20'000;
    const bool in_order = random.chance(0.5);
    for (uint32_t i = 0; i < size; ++i) {
      trees.upsert(0, in_order ? i : random.index(1 << 30), random_value(&random));
      if (i % 3 == 0) trees.remove(0, random.index(1 << 16));
    }
    restored.load(trees.save());
    restored.check();
    for (int i = 0; i < 2000; ++i) {
      const uint32_t id = random.index(in_order ? size : size_t{1} << 30);
      const EdgeValue value = random_value(&random);
      for (Samtrees<uint32_t>* some : {&trees, &restored}) {
        if (i % 2 == 0) some->upsert(0, id, value);
        if (i % 2 == 1) some->remove(0, id);
      }
    }
    restored.check();
    CHECK(same_columns<uint32_t>(trees.save(), restored.save()));
  }
}

// Weights of many orders of magnitude, so that sums round, and depend on the order in which they were added up; and
// times that come late, so that the order by time has a shape of its own.
TEST(samtree_draws_as_before_when_it_comes_back) {
  Random random;
  for_both_ids([&](auto zero) {
    using Id = decltype(zero);
    const EdgeColumns columns{true, true, false};
    for (const SamtreeOptions options : {kSmall, SamtreeOptions{}}) {
      Samtrees<Id> trees(columns, options), restored(columns, options);
      trees.resize(1);
      restored.resize(1);
      auto change = [&](Samtrees<Id>* some, Random from) {
        for (int i = 0; i < 3000; ++i) {
          const Id id = static_cast<Id>(from.below(6000)) << (sizeof(Id) * 4);
          const auto weight = std::ldexp(from.between(0.5f, 1), static_cast<int>(from.below(90)) - 45);
          const EdgeValue value{weight, std::floor(from.between(0, 500)), 0};
          if (from.chance(0.6))
            some->upsert(0, id, value);
          else
            some->remove(0, id);
        }
      };
      for (int turn = 0; turn < 4; ++turn) {
        const Random seed = random;
        random.below(2);
        change(&trees, seed);
        restored.load(trees.save());
        restored.check();
        CHECK(same_columns<Id>(trees.save(), restored.save()));
        CHECK_EQ(trees.weight_sum(0), restored.weight_sum(0));
        for (int draw = 0; draw < 300; ++draw) {
          const double at = trees.weight_sum(0) * random.between(0, 1);
          Id a{}, b{};
          size_t leaves = 0;
          CHECK(trees.find(trees.part_of(trees.root(0)), at, &a, &leaves));
          CHECK(restored.find(restored.part_of(restored.root(0)), at, &b, &leaves));
          CHECK_EQ(a, b);
        }
        change(&trees, seed);
        change(&restored, seed);
        CHECK(same_columns<Id>(trees.save(), restored.save()));
      }
    }
  });
}

TEST(samtree_refuses_columns_that_do_not_fit) {
  Random random;
  const EdgeColumns columns{true, true, true};
  Samtrees<uint32_t> trees(columns, kSmall);
  trees.resize(1);
  for (uint32_t i = 0; i < 100; ++i) trees.upsert(0, i, random_value(&random));
  const auto good = trees.save();
  auto refused = [&](auto&& spoil, const char* words) {
    auto bad = good;
    spoil(&bad);
    Samtrees<uint32_t> other(columns, kSmall);
    other.resize(1);
    other.upsert(0, 5, {});
    CHECK_THROWS(other.load(bad), std::runtime_error, words);
    check_against(other, 0, {{5, {}}});  // what was there stays
  };
  using Saved = Samtrees<uint32_t>::Saved;
  refused([](Saved* s) { s->shape.pop_back(); }, "column ends");
  refused([](Saved* s) { s->keys.pop_back(); }, "column ends");
  refused([](Saved* s) { s->ids.pop_back(); }, "column ends");
  refused([](Saved* s) { s->weights.pop_back(); }, "column ends");
  refused([](Saved* s) { s->times.pop_back(); }, "column ends");
  refused([](Saved* s) { s->rows.pop_back(); }, "column ends");
  refused([](Saved* s) { s->sums.pop_back(); }, "column ends");
  refused([](Saved* s) { s->orders[0] -= 1; }, "less than there is");
  refused([](Saved* s) { s->ids.push_back(1); }, "left over");
  refused([](Saved* s) { s->sums.push_back(1); }, "left over");
  refused([](Saved* s) { s->orders.push_back(1); }, "left over");
  refused([](Saved* s) { s->sums[0] = -1; }, "sums that are not");
  refused([](Saved* s) { s->sums[1] += 1; }, "sums that are not");
  refused([](Saved* s) { s->sums[1] = std::numeric_limits<double>::quiet_NaN(); }, "sums that are not");
  refused([](Saved* s) { s->orders[0] += 1; }, "order by time");
  refused([](Saved* s) { s->orders[0] += uint64_t{1} << 32; }, "order by time");
  refused([](Saved* s) { s->shape[0] = 3; }, "expected a leaf");
  refused([](Saved* s) { s->shape[1] = 1; }, "root");
  refused([](Saved* s) { s->shape[1] = 9; }, "expected a leaf");
  refused([](Saved* s) { s->shape[2] = 0; }, "expected a leaf");
  refused([](Saved* s) { s->shape[2] += 1; }, "two levels");
  // What would break an invariant: a list, its leaves, or its sums would be wrong without a word.
  refused([](Saved* s) { s->ids[1] = s->ids[0]; }, "twice");
  refused([](Saved* s) { std::swap(s->ids.front(), s->ids.back()); }, "outside its leaf's keys");
  refused([](Saved* s) { std::swap(s->keys[1], s->keys[2]); }, "out of order");
  refused([](Saved* s) { s->weights[3] = std::numeric_limits<float>::infinity(); }, "not finite");
  refused([](Saved* s) { s->weights[3] = std::numeric_limits<float>::quiet_NaN(); }, "not finite");
  refused([](Saved* s) { s->weights[0] = s->weights[1] = 2 * kMaxWeight; }, "above 2^96");
  refused(
      [](Saved* s) {
        const auto leaf = std::find(s->shape.begin(), s->shape.end(), 0u) - s->shape.begin();
        s->shape[static_cast<size_t>(leaf) + 1] = 1;
      },
      "at least");
  trees.resize(2);
  auto bad = trees.save();
  bad.shape.back() = 1;
  CHECK_THROWS(trees.load(bad), std::runtime_error, "empty list");
}

TEST(samtree_memory_follows_the_edges) {
  Random random;
  Samtrees<uint32_t> trees({true, false, false}, {});
  trees.resize(3000);
  std::vector<Model<uint32_t>> models(3000);
  for (uint32_t i = 0; i < 900'000; ++i) {
    const uint32_t node = random.index(3000), id = random.index(1 << 20);
    trees.upsert(node, id, {1.0f});
    models[node][id] = {1.0f};
  }
  size_t entries = 0;
  for (uint32_t node = 0; node < 3000; ++node) {
    if (node % 3 != 0) {
      while (trees.degree(node) > 0) {
        uint32_t some = 0;
        trees.scan(node, [&](NeighborSpan span) { some = span.ids[0]; });
        trees.remove(node, some);
      }
      models[node].clear();
    }
    entries += trees.degree(node);
  }
  const size_t before = trees.bytes();
  CHECK(trees.wants_compaction());
  compact(&trees, [&] {
    for (size_t node = 0; node < 3000; ++node) check_against(trees, node, models[node]);
  });
  trees.check();
  for (size_t node = 0; node < 3000; ++node) check_against(trees, node, models[node]);
  CHECK(trees.bytes() < before / 2);
  CHECK(!trees.wants_compaction());
  // What compaction cannot help: a slab that is not full, for each size of a block.
  CHECK(trees.bytes() < 8 * entries + 200 * BlockHeap::kSlabBytes);
}

TEST(samtree_pays_for_no_column_that_it_lacks) {
  auto bytes = [](EdgeColumns columns) {
    Samtrees<uint32_t> trees(columns, {});
    trees.resize(100);
    for (uint32_t i = 0; i < 200'000; ++i) trees.upsert(i % 100, i, {});
    compact(&trees, [] {});
    return static_cast<double>(trees.bytes()) / 200'000;
  };
  const double plain = bytes({});
  CHECK(plain < 3.5);
  CHECK(bytes({true, false, false}) > plain + 4);
  CHECK(bytes({false, true, false}) > plain + 8);
  CHECK(bytes({false, false, true}) > plain + 4);
}

}  // namespace livegnn
