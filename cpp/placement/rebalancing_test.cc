#include "placement/rebalancing.h"

#include <algorithm>
#include <numeric>

#include "placement/fennel.h"
#include "testing/testing.h"

namespace livegnn::rebalancing_test {
namespace {

using testing::Random;

// Two types, `parts` communities of each; an edge stays in its community by a chance of 0.9.
struct Drawn {
  Adjacency lists;
  std::vector<int64_t> type_starts, all;
  std::vector<uint16_t> owners;
  uint32_t parts;

  explicit Drawn(Random* random) : parts(static_cast<uint32_t>(1 + random->below(5))) {
    const size_t users = random->below(80), items = random->below(80), nodes = users + items;
    std::vector<uint32_t> from, to;
    for (size_t i = nodes == 0 ? 0 : random->below(400); i > 0; --i) {
      from.push_back(random->index(nodes));
      uint32_t other;
      do {
        other = random->index(nodes);
      } while (other % parts != from.back() % parts && random->chance(0.9));
      to.push_back(other);
    }
    const ListedEdges edges[] = {{from, to}};
    lists = join_edges(nodes, edges);
    type_starts = {0, static_cast<int64_t>(users), static_cast<int64_t>(nodes)};
    for (size_t node = 0; node < nodes; ++node) {
      all.push_back(static_cast<int64_t>(node));
      owners.push_back(static_cast<uint16_t>(random->below(1 + random->below(parts))));
    }
  }
  Division division() const { return {lists, type_starts, parts}; }
  std::vector<size_t> loads(size_t type) const {
    std::vector<size_t> loads(parts);
    for (int64_t node = type_starts[type]; node < type_starts[type + 1]; ++node) ++loads[owners[node]];
    return loads;
  }
  uint64_t most(size_t type) const {
    return FennelRule(parts, static_cast<uint64_t>(type_starts[type + 1] - type_starts[type]), 0).most();
  }
};

TEST(parts_are_evened_out_and_stay_even) {
  Random random;
  for (int round = 0; round < 300; ++round) {
    Drawn drawn(&random);
    size_t surplus = 0;
    for (size_t type : {0, 1}) {
      for (size_t load : drawn.loads(type)) surplus += load - std::min<size_t>(load, drawn.most(type));
    }
    CHECK_EQ(even_out(drawn.division(), drawn.owners), surplus);
    CHECK_EQ(even_out(drawn.division(), drawn.owners), 0u);
    refine(drawn.division(), drawn.all, 3, SIZE_MAX, drawn.owners);
    for (size_t type : {0, 1}) CHECK(std::ranges::max(drawn.loads(type)) <= drawn.most(type));
  }
}

TEST(nodes_that_lose_least_leave_a_part_that_is_too_full) {
  // Node 0 has its three neighbours in part 0, node 4 one there and one in part 1, node 5 none.
  const std::vector<uint32_t> from{0, 0, 0, 4, 4}, to{1, 2, 3, 1, 6};
  const ListedEdges edges[] = {{from, to}};
  const Adjacency lists = join_edges(8, edges);
  const std::vector<int64_t> type_starts{0, 8};
  std::vector<uint16_t> owners{0, 0, 0, 0, 0, 0, 1, 1};
  CHECK_EQ(even_out({lists, type_starts, 2}, owners), 2u);
  CHECK(owners == std::vector<uint16_t>({0, 0, 0, 0, 1, 1, 1, 1}));
}

TEST(nodes_move_to_their_neighbours_within_the_budget) {
  Random random;
  size_t moved = 0;
  for (int round = 0; round < 300; ++round) {
    Drawn drawn(&random);
    even_out(drawn.division(), drawn.owners);
    const std::vector<uint16_t> before = drawn.owners;
    const size_t budget = random.below(20);
    std::vector<int64_t> nodes;
    for (int64_t node : drawn.all) {
      if (random.chance(0.5)) nodes.push_back(node);
    }
    const size_t count = refine(drawn.division(), nodes, 2, budget, drawn.owners);
    moved += count;
    size_t differ = 0;
    for (int64_t node : drawn.all) {
      if (drawn.owners[node] == before[node]) continue;
      ++differ;
      CHECK(std::ranges::find(nodes, node) != nodes.end());
    }
    CHECK(differ <= count && count <= budget);
  }
  CHECK(moved > 100);
}

// Each move gains by the rule, one after the other: two halves that were dealt out by turns find each other again.
TEST(mixed_communities_are_found_again) {
  std::vector<uint32_t> from, to;
  for (uint32_t a = 0; a < 40; ++a) {
    for (uint32_t b = a + 2; b < 40; b += 2) {
      from.push_back(a);
      to.push_back(b);
    }
  }
  const ListedEdges edges[] = {{from, to}};
  const Adjacency lists = join_edges(40, edges);
  const std::vector<int64_t> type_starts{0, 40};
  std::vector<int64_t> all(40);
  std::iota(all.begin(), all.end(), 0);
  std::vector<uint16_t> owners(40);
  for (uint32_t node = 0; node < 40; ++node) owners[node] = node % 2 ^ (node % 10 == 0);
  const int64_t before = cut_of(lists, owners).between;
  CHECK(refine({lists, type_starts, 2}, all, 4, SIZE_MAX, owners) > 0);
  CHECK(cut_of(lists, owners).between * 2 < before);
}

TEST(divisions_that_do_not_fit_are_refused) {
  const Adjacency lists = join_edges(2, {});
  const std::vector<int64_t> starts{0, 2}, wrong{0, 1};
  std::vector<uint16_t> owners{0, 1};
  CHECK_THROWS(even_out({lists, starts, 1}, owners), std::invalid_argument, "none of 1 parts");
  CHECK_THROWS(even_out({lists, starts, 0}, owners), std::invalid_argument, "parts, not 0");
  CHECK_THROWS(even_out({lists, wrong, 2}, owners), std::invalid_argument, "other nodes");
  const std::vector<int64_t> nodes{2};
  CHECK_THROWS(refine({lists, starts, 2}, nodes, 1, 1, owners), std::invalid_argument, "no such node");
}

}  // namespace
}  // namespace livegnn::rebalancing_test
