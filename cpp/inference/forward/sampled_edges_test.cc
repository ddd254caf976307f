// Edges of a sample, grouped by receiver, beside plain lists.
#include "inference/forward/sampled_edges.h"

#include <algorithm>
#include <vector>

#include "testing/testing.h"

namespace livegnn::sampled_edges_test {

using namespace testing;

namespace {

struct Lists {
  std::vector<int64_t> row, col;
  std::vector<float> weight;
  SampledGraph::Edges edges() const { return {row.size(), row.data(), col.data(), weight.data(), nullptr}; }
};

// The positions of the edges that a step uses at a node, one by one.
std::vector<uint32_t> plain(const Lists& lists, const PropagateStep& step, uint32_t node) {
  std::vector<uint32_t> found;
  for (uint32_t i = 0; i < lists.row.size(); ++i) {
    const int64_t from = step.reversed ? lists.col[i] : lists.row[i], to = step.reversed ? lists.row[i] : lists.col[i];
    if (to != node || (step.skip_loops && from == to)) continue;
    if (step.only_loops && from != to) continue;
    if (step.only_loops) found.clear();
    found.push_back(i);
  }
  return found;
}

}  // namespace

TEST(sampled_edges_are_those_of_plain_lists) {
  Random random;
  SampledEdges grouped;
  for (int round = 0; round < 300; ++round) {
    const size_t nodes = 1 + random.below(12), count = random.below(40);
    Lists lists;
    for (size_t i = 0; i < count; ++i) {
      lists.row.push_back(static_cast<int64_t>(random.below(nodes)));
      lists.col.push_back(static_cast<int64_t>(random.below(nodes)));
      lists.weight.push_back(random.between(0, 1));
    }
    PropagateStep step{};
    step.reversed = random.chance(0.5);
    // Mostly grouped already, as samplers list them.
    if (random.chance(0.5))
      std::sort((step.reversed ? lists.row : lists.col).begin(), (step.reversed ? lists.row : lists.col).end());
    grouped.group(lists.edges(), 0, step.reversed, nodes, nodes, true);
    size_t reach = 0;
    bool parallel = false;
    for (uint32_t node = 0; node < nodes; ++node) {
      for (int kind = 0; kind < 3; ++kind) {
        step.skip_loops = kind == 1;
        step.only_loops = kind == 2;
        const std::vector<uint32_t> expected = plain(lists, step, node);
        std::vector<uint32_t> found;
        grouped.scan(step, node, [&](uint32_t begin, uint32_t end) {
          for (uint32_t place = begin; place < end; ++place) {
            const uint32_t i = grouped.edge(place);
            found.push_back(i);
            CHECK_EQ(grouped.senders()[place], step.reversed ? lists.col[i] : lists.row[i]);
            CHECK_EQ(grouped.weight(place), lists.weight[i]);
          }
        });
        CHECK(found == expected);
      }
      step.skip_loops = step.only_loops = false;
      const std::vector<uint32_t> all = plain(lists, step, node);
      CHECK_EQ(grouped.degree(node), all.size());
      const auto is_loop = [&](uint32_t i) { return lists.row[i] == lists.col[i]; };
      const auto loops = static_cast<size_t>(std::count_if(all.begin(), all.end(), is_loop));
      CHECK_EQ(grouped.loops(node), loops);
      parallel |= loops > 1;
      for (uint32_t i : all) reach = std::max<size_t>(reach, (step.reversed ? lists.col[i] : lists.row[i]) + 1);
      CHECK_EQ(grouped.reach(node + 1), reach);
    }
    CHECK_EQ(grouped.has_parallel_loops(), parallel);
  }
}

TEST(ends_that_are_no_nodes_are_named) {
  SampledEdges grouped;
  const auto kind_of = [&](const Lists& lists, bool reversed, size_t senders, size_t receivers) {
    try {
      grouped.group(lists.edges(), 7, reversed, senders, receivers, false);
    } catch (const BadSampledGraph& error) {
      CHECK_EQ(error.type, 7u);
      CHECK_EQ(error.position, 1u);
      return error.kind;
    }
    return BadSampledGraph::kAsked;
  };
  CHECK_EQ(kind_of({{0, 4}, {1, 1}, {1, 1}}, false, 4, 2), BadSampledGraph::kSource);
  CHECK_EQ(kind_of({{0, 3}, {1, 2}, {1, 1}}, false, 4, 2), BadSampledGraph::kTarget);
  CHECK_EQ(kind_of({{0, 4}, {1, 1}, {1, 1}}, true, 2, 4), BadSampledGraph::kSource);
  CHECK_EQ(kind_of({{0, 3}, {1, -1}, {1, 1}}, true, 2, 4), BadSampledGraph::kTarget);
}

}  // namespace livegnn::sampled_edges_test
