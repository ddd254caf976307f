// The exact shape of samtrees: saved, restored, and refused where it would break an invariant.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "store/samtree/samtree_model.h"
#include "testing/testing.h"

namespace livegnn::samtree_state_test {

using namespace testing;

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
      CHECK(same_columns(trees.save(), restored.save()));
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
    const size_t size = testing::draws(1, 2) * (capacity == 4 ? 30'000 : 10'000);
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
    CHECK(same_columns(trees.save(), restored.save()));
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
        CHECK(same_columns(trees.save(), restored.save()));
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
        CHECK(same_columns(trees.save(), restored.save()));
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
  refused([](Saved* s) { s->shape.pop_back(); }, "ends before its shape");
  refused([](Saved* s) { s->keys.pop_back(); }, "ends before its shape");
  refused([](Saved* s) { s->ids.pop_back(); }, "ends before its shape");
  refused([](Saved* s) { s->weights.pop_back(); }, "ends before its shape");
  refused([](Saved* s) { s->times.pop_back(); }, "ends before its shape");
  refused([](Saved* s) { s->rows.pop_back(); }, "ends before its shape");
  refused([](Saved* s) { s->sums.pop_back(); }, "ends before its shape");
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
  refused([](Saved* s) { ++s->keys[0]; }, "out of order");
  refused([](Saved* s) { s->sums.clear(); }, "ends before its shape");
  refused([](Saved* s) { s->orders.clear(); }, "order by time");
  refused([](Saved* s) { s->times[3] = std::numeric_limits<double>::infinity(); }, "finite");
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

}  // namespace livegnn::samtree_state_test
