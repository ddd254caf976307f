#include "placement/adjacency.h"

#include <map>

#include "testing/testing.h"

namespace livegnn::adjacency_test {
namespace {

using testing::Random;

TEST(lists_have_each_edge_from_both_ends) {
  Random random;
  for (int round = 0; round < 200; ++round) {
    const size_t users = 1 + random.below(8), items = 1 + random.below(8);
    std::vector<uint32_t> from, to, bought_by, bought;
    std::map<std::pair<int64_t, int64_t>, int64_t> expected;
    const auto expect = [&](int64_t a, int64_t b) {
      if (a == b) return;
      ++expected[{a, b}];
      ++expected[{b, a}];
    };
    for (size_t i = random.below(30); i > 0; --i) {
      from.push_back(random.index(users));
      to.push_back(random.index(users));
      expect(from.back(), to.back());
    }
    for (size_t i = random.below(30); i > 0; --i) {
      bought_by.push_back(random.index(users));
      bought.push_back(random.index(items));
      expect(bought_by.back(), static_cast<int64_t>(users) + bought.back());
    }
    const ListedEdges edges[] = {{from, to}, {bought_by, bought, 0, users}};
    const Adjacency lists = join_edges(users + items, edges);
    check_adjacency(lists, users + items);
    std::map<std::pair<int64_t, int64_t>, int64_t> found;
    for (size_t node = 0; node < users + items; ++node) {
      int64_t last = -1;
      AdjacencyView(lists).for_each(node, [&](size_t neighbor, int64_t weight) {
        CHECK(static_cast<int64_t>(neighbor) > last);
        last = static_cast<int64_t>(neighbor);
        found[{node, neighbor}] = weight;
      });
    }
    CHECK(found == expected);
    std::vector<uint16_t> owners(users + items);
    for (uint16_t& owner : owners) owner = static_cast<uint16_t>(random.below(3));
    int64_t between = 0, all = 0;
    for (const auto& [ends, weight] : expected) {
      all += weight;
      if (owners[ends.first] != owners[ends.second]) between += weight;
    }
    const Cut cut = cut_of(lists, owners);
    CHECK_EQ(cut.between, between / 2);
    CHECK_EQ(cut.all, all / 2);
  }
}

TEST(lists_that_do_not_fit_are_refused) {
  const std::vector<uint32_t> one{1}, two{0, 1};
  const auto join = [](const std::vector<uint32_t>& sources, const std::vector<uint32_t>& targets, size_t offset) {
    const ListedEdges edges[] = {{sources, targets, 0, offset}};
    return join_edges(3, edges);
  };
  CHECK_THROWS(join(one, two, 0), std::invalid_argument, "as many sources as targets");
  CHECK_THROWS(join(two, two, 2), std::invalid_argument, "edge 1 has an end that is none of 3 nodes");
  const Adjacency lists = join(one, one, 1);
  check_adjacency(lists, 3);
  CHECK_THROWS(check_adjacency(lists, 2), std::invalid_argument, "the lists of 2 nodes");
  Adjacency wrong = lists;
  wrong.neighbors[0] = 3;
  CHECK_THROWS(check_adjacency(wrong, 3), std::invalid_argument, "neighbor 3 is none of 3");
  wrong = lists;
  wrong.starts[1] = 5;
  CHECK_THROWS(check_adjacency(wrong, 3), std::invalid_argument, "the lists of 3 nodes");
  wrong = lists;
  wrong.weights.pop_back();
  CHECK_THROWS(check_adjacency(wrong, 3), std::invalid_argument, "the lists of 3 nodes");
}

}  // namespace
}  // namespace livegnn::adjacency_test
