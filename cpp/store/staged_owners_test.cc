// Owners of nodes while a batch is staged: given ones, those of ids, and those that Fennel chooses from the batch.
#include "store/staged_owners.h"

#include <array>
#include <memory>
#include <mutex>
#include <vector>

#include "store/stage.h"
#include "testing/testing.h"

namespace livegnn::staged_owners_test {

using namespace testing;

namespace {

std::unique_ptr<Graph> make(uint32_t self) {
  auto graph = std::make_unique<Graph>(std::vector<size_t>{0}, std::vector<EdgeTypeSpec>{{0, 0, {}}});
  graph->divide(std::make_unique<GraphPart>(Owners(OwnerRule::kTable, 2), self, 1));
  return graph;
}

Delta stage(const Graph& graph, std::vector<int64_t> added, std::vector<std::pair<int64_t, int64_t>> edges,
            std::vector<int64_t> removed) {
  Stage staged(graph);
  staged.add_nodes(0, added.data(), nullptr, 0, added.size());
  for (const auto& [source, target] : edges) {
    staged.add_edges(0, &source, &target, nullptr, nullptr, nullptr, 0, 1);
  }
  staged.remove_nodes(0, removed.data(), removed.size());
  return staged.finish();
}

void commit(const Delta& delta, Graph* graph) {
  graph->prepare(delta);
  {
    std::unique_lock lock(graph->lock);
    graph->commit(delta);
  }
  graph->settle();
}

using Placed = std::vector<uint16_t>;

}  // namespace

TEST(nodes_are_placed_beside_their_neighbors) {
  const auto names = make(GraphPart::kNone);
  CHECK(StagedOwners(names->part.get()).placing());
  commit(stage(*names, {1, 2, 3, 4}, {}, {}), names.get());  // 0, 1, 0, 1
  // Five to 2, six to 1, seven to five, which is new; eight is removed again.
  const Delta delta = stage(*names, {5, 6, 7, 8}, {{5, 2}, {2, 5}, {1, 6}, {7, 5}, {7, 7}, {8, 1}, {8, 3}}, {8});
  CHECK(delta.nodes[0].placed == (Placed{1, 0, 1, 0}));
  CHECK(delta.nodes[0].owners == (Placed{1, 0, 1, Owners::kNoOwner}));
  names->prepare(delta);
  names->abandon();
  CHECK_EQ(names->part->fennel()->load(0)[0], 2u);
  commit(delta, names.get());
  CHECK_EQ(names->part->fennel()->load(0)[0], 3u);
  CHECK_EQ(names->part->fennel()->load(0)[1], 4u);
  commit(stage(*names, {}, {}, {2}), names.get());
  CHECK_EQ(names->part->fennel()->load(0)[1], 3u);
}

TEST(a_part_is_told_the_owners) {
  const auto part = make(1);
  CHECK(!StagedOwners(part->part.get()).placing());
  const std::array<uint16_t, 3> owners{1, 0, 1};
  part->part->give(0, owners);
  const Delta delta = stage(*part, {1, 2, 3}, {{1, 2}, {2, 2}, {3, 1}}, {3});
  CHECK(delta.nodes[0].owners == (Placed{1, 0, Owners::kNoOwner}));
  CHECK_EQ(delta.edges[0].size(), 1u);
  commit(delta, part.get());
  CHECK_EQ(part->part->counts()[0].edges, 1);
  CHECK_EQ(part->part->counts()[0].cut, 1);
  CHECK_EQ(part->part->ends()[0], 1);
  CHECK_THROWS(stage(*part, {9}, {}, {}), std::invalid_argument, "a node needs an owner");
}

}  // namespace livegnn::staged_owners_test
