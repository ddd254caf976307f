#include "livegnn/samtree.h"

#include <algorithm>
#include <map>

#include "testing.h"

namespace livegnn {
namespace {

using testing::Random;
using Model = std::map<uint32_t, EdgeValue>;

constexpr EdgeColumns kAllColumns[] = {{false, false}, {true, false}, {false, true}, {true, true}};

// A tree that frees what it holds.
struct Tree {
  explicit Tree(EdgeColumns columns) : columns(columns) {}
  Tree(const Tree&) = delete;
  ~Tree() { root.clear(); }

  SamtreeRoot root;
  EdgeColumns columns;
};

struct Saved {
  std::vector<uint32_t> shape, ids;
  std::vector<float> weights;
  std::vector<double> times;

  bool operator==(const Saved&) const = default;
};

Saved save(const Tree& tree) {
  Saved to;
  tree.root.save(tree.columns, &to.shape, &to.ids, &to.weights, &to.times);
  return to;
}

void load(const Saved& from, Tree* tree) {
  std::span<const uint32_t> shape(from.shape), ids(from.ids);
  std::span<const float> weights(from.weights);
  std::span<const double> times(from.times);
  tree->root.load(tree->columns, &shape, &ids, &weights, &times);
  CHECK(shape.empty() && ids.empty() && weights.empty() && times.empty());
}

EdgeValue random_value(Random* random) { return {random->between(-9, 9), random->between(0, 1e6f)}; }

// What is left of a value in a tree that lacks some columns.
EdgeValue kept(EdgeValue value, EdgeColumns columns) {
  return {columns.weighted ? value.weight : 1.0f, columns.timed ? value.time : 0.0};
}

bool same(EdgeValue a, EdgeValue b) { return a.weight == b.weight && a.time == b.time; }

void check_against(const Tree& tree, const Model& model) {
  tree.root.check(tree.columns);
  CHECK_EQ(tree.root.degree(), model.size());
  Model scanned;
  uint32_t last = 0;
  tree.root.scan(tree.columns, [&](NeighborSpan span) {
    CHECK(span.size > 0);
    CHECK_EQ(span.weights != nullptr, tree.columns.weighted);
    CHECK_EQ(span.times != nullptr, tree.columns.timed);
    CHECK(scanned.empty() || *std::min_element(span.ids, span.ids + span.size) > last);
    last = *std::max_element(span.ids, span.ids + span.size);
    for (size_t i = 0; i < span.size; ++i) {
      EdgeValue value{span.weights ? span.weights[i] : 1.0f, span.times ? span.times[i] : 0.0};
      CHECK(scanned.emplace(span.ids[i], value).second);
    }
  });
  CHECK_EQ(scanned.size(), model.size());
  auto b = scanned.begin();
  for (auto a = model.begin(); a != model.end(); ++a, ++b) {
    CHECK_EQ(a->first, b->first);
    CHECK(same(kept(a->second, tree.columns), b->second));
  }
}

void upsert(uint32_t id, EdgeValue value, Tree* tree, Model* model) {
  CHECK_EQ(tree->root.upsert(id, value, tree->columns), !model->contains(id));
  (*model)[id] = value;
}

void remove(uint32_t id, Tree* tree, Model* model) {
  CHECK_EQ(tree->root.remove(id, tree->columns), model->erase(id) == 1);
}

void check_find(uint32_t id, const Tree& tree, const Model& model) {
  EdgeValue value;
  auto found = model.find(id);
  CHECK_EQ(tree.root.find(id, tree.columns, &value), found != model.end());
  CHECK_EQ(tree.root.find(id, tree.columns, nullptr), found != model.end());
  if (found != model.end()) CHECK(same(value, kept(found->second, tree.columns)));
}

// Ids in the orders in which graphs bring them.
enum class Pattern { kDense, kSparse, kAscending, kDescending, kClustered };
constexpr Pattern kPatterns[] = {Pattern::kDense, Pattern::kSparse, Pattern::kAscending, Pattern::kDescending,
                                 Pattern::kClustered};

std::vector<uint32_t> distinct_ids(Pattern pattern, size_t count, Random* random) {
  std::vector<uint32_t> ids(count);
  for (size_t i = 0; i < count; ++i) {
    auto n = static_cast<uint32_t>(i);
    switch (pattern) {
      case Pattern::kDense:
      case Pattern::kAscending:
        ids[i] = n;
        break;
      case Pattern::kSparse:
        ids[i] = n * 2654435761u;  // odd, so no two are the same; spread over all 32 bits
        break;
      case Pattern::kDescending:
        ids[i] = UINT32_MAX - 1 - n;
        break;
      case Pattern::kClustered:
        ids[i] = (n % 61) * 70'000'000u + n / 61;
        break;
    }
  }
  if (pattern == Pattern::kDense) {
    for (size_t i = count; i > 1; --i) std::swap(ids[i - 1], ids[random->below(i)]);
  }
  return ids;
}

void change_at_random(const std::vector<uint32_t>& ids, double growth, Random* random, Tree* tree, Model* model) {
  uint32_t id = ids[random->below(ids.size())];
  if (random->chance(growth)) {
    upsert(id, random_value(random), tree, model);
  } else {
    remove(id, tree, model);
  }
}

}  // namespace

TEST(samtree_is_empty_at_first) {
  for (EdgeColumns columns : kAllColumns) {
    Tree tree(columns);
    check_against(tree, {});
    CHECK(!tree.root.find(0, columns, nullptr));
    CHECK(!tree.root.remove(0, columns));
    CHECK_EQ(tree.root.bytes(columns), 0u);
    tree.root.clear();
  }
}

TEST(samtree_agrees_with_a_map_after_every_change) {
  Random random;
  for (EdgeColumns columns : kAllColumns) {
    for (Pattern pattern : kPatterns) {
      // Below, at and above what one leaf holds.
      for (size_t size : {3u, 20u, kLeafCapacity, 3 * kLeafCapacity}) {
        Tree tree(columns);
        Model model;
        auto ids = distinct_ids(pattern, size, &random);
        for (uint32_t id : ids) {
          upsert(id, random_value(&random), &tree, &model);
          tree.root.check(columns);
        }
        check_against(tree, model);
        for (size_t i = 0; i < 2 * size; ++i) {
          // Grows and shrinks by turns, so that leaves split and join again.
          change_at_random(ids, i / size % 2 == 0 ? 0.2 : 0.8, &random, &tree, &model);
          tree.root.check(columns);
          check_find(ids[random.below(size)], tree, model);
          if (i % 64 == 0) check_against(tree, model);
        }
        check_against(tree, model);
        while (!model.empty()) {
          remove(
              model.lower_bound(ids[random.below(size)]) == model.end() ? model.begin()->first : model.rbegin()->first,
              &tree, &model);
          tree.root.check(columns);
        }
        CHECK_EQ(tree.root.bytes(columns), 0u);
      }
    }
  }
}

TEST(samtree_grows_to_several_levels_and_shrinks_to_nothing) {
  Random random;
  size_t turn = 0;
  for (Pattern pattern : kPatterns) {
    // More than 256 leaves of 256, so that there are at least two levels of inner nodes.
    constexpr size_t kCount = 66'000;
    Tree tree(kAllColumns[turn % 4]);
    Model model;
    auto ids = distinct_ids(pattern, kCount, &random);
    for (size_t i = 0; i < kCount; ++i) {
      upsert(ids[i], random_value(&random), &tree, &model);
      if (i % 8192 == 0) tree.root.check(tree.columns);
    }
    check_against(tree, model);
    CHECK(save(tree).shape[2] >= 2);
    for (size_t i = 0; i < 2000; ++i) {
      change_at_random(ids, 0.5, &random, &tree, &model);
      check_find(ids[random.below(kCount)], tree, model);
    }
    check_against(tree, model);
    // In the order of insertion, against it, or at random: each empties other leaves first.
    if (turn % 3 == 1) std::reverse(ids.begin(), ids.end());
    if (turn % 3 == 2) {
      for (size_t i = kCount; i > 1; --i) std::swap(ids[i - 1], ids[random.below(i)]);
    }
    for (size_t i = 0; i < kCount; ++i) {
      remove(ids[i], &tree, &model);
      if (i % 8192 == 0 || (i + 1000 > kCount && i % 16 == 0)) check_against(tree, model);
    }
    check_against(tree, {});
    CHECK_EQ(tree.root.bytes(tree.columns), 0u);
    ++turn;
  }
}

TEST(samtree_holds_the_extreme_ids) {
  for (EdgeColumns columns : kAllColumns) {
    Tree tree(columns);
    Model model;
    for (uint32_t i = 0; i < 600; ++i) {
      upsert(i, {1, 1}, &tree, &model);
      upsert(UINT32_MAX - i, {2, 2}, &tree, &model);
    }
    check_against(tree, model);
    for (uint32_t i = 0; i < 600; ++i) {
      remove(UINT32_MAX - i, &tree, &model);
      remove(i, &tree, &model);
    }
    check_against(tree, {});
  }
}

TEST(samtree_scans_in_the_same_order_until_it_changes) {
  Random random;
  const EdgeColumns columns{true, false};
  Tree tree(columns);
  Model model;
  auto ids = distinct_ids(Pattern::kSparse, 2000, &random);
  for (uint32_t id : ids) upsert(id, random_value(&random), &tree, &model);
  Saved before = save(tree);
  // A new weight moves nobody, and neither does a look-up or the removal of what is not there.
  for (uint32_t id : ids) {
    upsert(id, random_value(&random), &tree, &model);
    check_find(id, tree, model);
    CHECK(!tree.root.remove(id + 1, columns) || model.erase(id + 1) == 1);
  }
  Saved after = save(tree);
  CHECK(before.shape == after.shape);
  CHECK(before.ids == after.ids);
  CHECK(before.weights != after.weights);
}

TEST(samtree_order_depends_on_the_history_alone) {
  Random random;
  const EdgeColumns columns{true, true};
  Tree first(columns), second(columns);
  Model first_model, second_model;
  auto ids = distinct_ids(Pattern::kClustered, 1500, &random);
  for (size_t i = 0; i < 6000; ++i) {
    Random same_numbers = random;
    change_at_random(ids, 0.7, &random, &first, &first_model);
    change_at_random(ids, 0.7, &same_numbers, &second, &second_model);
  }
  CHECK(save(first) == save(second));
}

TEST(samtree_comes_back_in_its_exact_shape) {
  Random random;
  for (EdgeColumns columns : kAllColumns) {
    for (size_t size : {0u, 1u, 5u, 200u, 257u, 5000u, 70'000u}) {
      if (size == 70'000 && columns.weighted != columns.timed) continue;
      Tree tree(columns), restored(columns);
      Model model;
      auto ids = distinct_ids(Pattern::kSparse, size + 1, &random);
      for (size_t i = 0; i < size; ++i) upsert(ids[i], random_value(&random), &tree, &model);
      for (size_t i = 0; i < size / 4; ++i) remove(ids[i], &tree, &model);
      Saved saved = save(tree);
      load(saved, &restored);
      check_against(restored, model);
      CHECK(save(restored) == saved);
      CHECK_EQ(restored.root.bytes(columns) == 0, model.empty());
      // What is done to both later has the same outcome, down to the last place in a leaf.
      Model same_model = model;
      for (size_t i = 0; i < std::min<size_t>(3000, 4 * size); ++i) {
        Random same_numbers = random;
        change_at_random(ids, 0.5, &random, &tree, &model);
        change_at_random(ids, 0.5, &same_numbers, &restored, &same_model);
      }
      CHECK(save(tree) == save(restored));
      check_against(restored, model);
    }
  }
}

TEST(samtree_loads_over_what_was_there) {
  Random random;
  const EdgeColumns columns{true, false};
  Tree tree(columns), other(columns);
  Model model, other_model;
  for (uint32_t id : distinct_ids(Pattern::kDense, 700, &random)) upsert(id, {2, 0}, &tree, &model);
  for (uint32_t id : distinct_ids(Pattern::kDescending, 900, &random)) upsert(id, {3, 0}, &other, &other_model);
  load(save(tree), &other);
  check_against(other, model);
}

TEST(samtree_refuses_columns_that_do_not_fit) {
  Random random;
  for (EdgeColumns columns : kAllColumns) {
    for (size_t size : {1u, 100u, 1000u, 40'000u}) {
      Tree tree(columns), other(columns);
      Model model;
      for (uint32_t id : distinct_ids(Pattern::kDense, size, &random)) upsert(id, {2, 3}, &tree, &model);
      const Saved good = save(tree);
      auto refused = [&](auto&& spoil, const char* words) {
        Saved bad = good;
        spoil(&bad);
        CHECK_THROWS(load(bad, &other), std::runtime_error, words);
        check_against(other, {});
      };
      refused([](Saved* s) { s->shape.clear(); }, "column ends");
      refused([](Saved* s) { s->shape.pop_back(); }, "column ends");
      refused([](Saved* s) { s->ids.pop_back(); }, "column ends");
      if (columns.weighted) refused([](Saved* s) { s->weights.pop_back(); }, "column ends");
      if (columns.timed) refused([](Saved* s) { s->times.clear(); }, "column ends");
      refused([](Saved* s) { s->shape[0] = 3; }, "expected a leaf");
      const bool is_tree = good.shape[0] == 1;
      const char* words = is_tree ? "inner node" : "leaf";
      refused([](Saved* s) { s->shape[1] = 0; }, words);
      if (is_tree) refused([](Saved* s) { s->shape[1] = 1; }, words);
      refused([](Saved* s) { s->shape[1] = 257; }, words);
      refused([](Saved* s) { s->shape[2] = 0; }, words);
      if (!is_tree) {
        refused([](Saved* s) { s->shape[2] = 2 * kLeafCapacity; }, "leaf");
        refused([](Saved* s) { s->shape[2] = s->shape[1] - 1; }, "leaf");
        refused([](Saved* s) { s->shape[2] = s->shape[1] + 3 - s->shape[1] % 2; }, "leaf");
      } else {
        refused([](Saved* s) { s->shape[2] += 1; }, "two levels");
        refused([](Saved* s) { s->shape[2] += 5; }, "two levels");
        // The last leaf, then one in a place that is no leaf's.
        refused([](Saved* s) { s->shape.back() = 128; }, "leaf");
        refused([](Saved* s) { s->shape.end()[-3] = 1; }, "two levels");
      }
    }
  }
}

// Whatever the shape says, loading ends in an exception or in a tree that can be read, changed and freed.
TEST(samtree_survives_any_shape) {
  Random random;
  const EdgeColumns columns{true, false};
  Tree tree(columns);
  Model model;
  for (uint32_t id : distinct_ids(Pattern::kDense, 3000, &random)) upsert(id, {2, 3}, &tree, &model);
  const Saved good = save(tree);
  for (int i = 0; i < 3000; ++i) {
    Saved bad = good;
    for (uint64_t n = random.below(3) + 1; n > 0; --n) {
      const uint32_t values[] = {0, 1, 2, random.index(300), random.index(UINT32_MAX)};
      bad.shape[random.below(bad.shape.size())] = values[random.below(5)];
    }
    Tree other(columns);
    std::span<const uint32_t> shape(bad.shape), ids(bad.ids);
    std::span<const float> weights(bad.weights);
    std::span<const double> times;
    try {
      other.root.load(columns, &shape, &ids, &weights, &times);
    } catch (const std::runtime_error&) {
      CHECK_EQ(other.root.degree(), 0u);
      continue;
    }
    for (uint32_t id = 0; id < 400; ++id) {
      other.root.upsert(id * 7, {1, 0}, columns);
      other.root.remove(id * 11, columns);
    }
  }
}

TEST(samtree_check_finds_what_is_wrong) {
  Random random;
  const EdgeColumns columns{false, false};
  Tree tree(columns), other(columns);
  Model model;
  for (uint32_t id : distinct_ids(Pattern::kDense, 1000, &random)) upsert(id, {}, &tree, &model);
  const Saved good = save(tree);
  auto found = [&](auto&& spoil, const char* words) {
    Saved bad = good;
    spoil(&bad);
    load(bad, &other);
    CHECK_THROWS(other.root.check(columns), std::logic_error, words);
  };
  found([](Saved* s) { s->ids[1] = s->ids[0]; }, "occurs twice");
  found([](Saved* s) { std::swap(s->ids.front(), s->ids.back()); }, "outside its leaf's keys");
  found([](Saved* s) { s->shape[4] = 0; }, "keys out of order");
}

TEST(samtree_pays_for_no_column_that_it_lacks) {
  for (EdgeColumns columns : kAllColumns) {
    Tree tree(columns);
    tree.root.upsert(7, {}, columns);
    size_t entry = 4 + (columns.weighted ? 4 : 0) + (columns.timed ? 8 : 0);
    CHECK_EQ(tree.root.bytes(columns), sizeof(Leaf) + 4 * entry);
  }
}

}  // namespace livegnn
