// The exact shape of orders by time: saved, restored, and refused where it does not fit.
#include <cstdint>
#include <span>
#include <stdexcept>
#include <vector>

#include "store/samtree/time_order.h"
#include "store/samtree/time_order_model.h"
#include "testing/testing.h"

namespace livegnn::time_order_state_test {

using namespace testing;

namespace {

template <class Id>
void restore_at_random(bool weighted, uint32_t spread, Random* random) {
  OrderedModel<Id> ordered(weighted);
  double now = 0;
  for (int turn = 0; turn < 60; ++turn) {
    change_at_random(&ordered, turn, spread, &now, random);
    if (ordered.tree.root == 0) continue;
    std::vector<uint64_t> words;
    ordered.order.save(ordered.tree, &words);
    words.push_back(7);  // what follows is left
    OrderedModel<Id> restored(weighted);
    restored.model = ordered.model;
    std::span<const uint64_t> left = words;
    restored.tree = {restored.order.load(ordered.sorted(), &left, &restored.lane), ordered.tree.count};
    restored.order.check(restored.tree);
    restored.check(random);
    CHECK_EQ(left.size(), 1u);
    std::vector<uint64_t> again;
    restored.order.save(restored.tree, &again);
    again.push_back(7);
    CHECK(again == words);
    // Another word is refused, or makes a tree that holds what it says.
    words[random->index(words.size() - 1)] += random->chance(0.5) ? 1 : uint64_t{1} << random->index(64);
    OrderedModel<Id> other(weighted);
    left = words;
    try {
      const BlockRef root = other.order.load(ordered.sorted(), &left, &other.lane);
      other.order.check({root, ordered.tree.count});
    } catch (const std::runtime_error&) {
    }
  }
}

}  // namespace

TEST(time_order_comes_back_in_its_exact_shape) {
  Random random;
  for (uint32_t spread : {50u, 1'000u, 30'000u}) {
    for (bool weighted : {false, true}) {
      restore_at_random<uint32_t>(weighted, spread, &random);
      restore_at_random<uint64_t>(weighted, spread, &random);
    }
  }
}

TEST(time_order_refuses_words_that_do_not_fit) {
  Random random;
  OrderedModel<uint32_t> ordered(true);
  double now = 0;
  for (int turn = 0; turn < 6; ++turn) change_at_random(&ordered, turn, 30'000, &now, &random);
  std::vector<uint64_t> good;
  ordered.order.save(ordered.tree, &good);
  CHECK(good[0] >> 32 > 0);
  auto refused = [&](auto&& spoil, const char* words) {
    auto bad = good;
    auto entries = ordered.sorted();
    spoil(&bad, &entries);
    OrderedModel<uint32_t> other(true);
    std::span<const uint64_t> left = bad;
    CHECK_THROWS(other.order.load(entries, &left, &other.lane), std::runtime_error, words);
  };
  refused([](auto* words, auto*) { words->clear(); }, "ends before its shape does");
  refused([](auto* words, auto*) { words->pop_back(); }, "ends before its shape does");
  refused([](auto*, auto* entries) { entries->pop_back(); }, "more than there is");
  refused([](auto*, auto* entries) { entries->push_back(entries->back()); }, "less than there is");
  refused([](auto* words, auto*) { (*words)[0] = (uint64_t{1} << 32) + 1; }, "a root that is none");
  refused([](auto* words, auto*) { (*words)[0] = uint64_t{99} << 32; }, "a root that is none");
  refused([](auto* words, auto*) { words->back() = 1000; }, "a node of 1000");
  refused([](auto* words, auto*) { words->back() = 0; }, "a node of 0");
  refused([](auto* words, auto*) { (*words)[1] = ~uint64_t{0}; }, "keys out of order");
}

}  // namespace livegnn::time_order_state_test
