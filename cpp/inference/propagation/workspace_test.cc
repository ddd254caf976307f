// Workspaces that are taken and come back.
#include "inference/propagation/workspace.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "store/stage.h"
#include "testing/testing.h"

namespace livegnn::workspace_test {

using namespace testing;

namespace {

Delta delta_of(const std::vector<size_t>& capacities, const std::vector<uint32_t>& removed) {
  Delta delta;
  for (size_t capacity : capacities) {
    delta.nodes.emplace_back();
    delta.nodes.back().capacity = capacity;
  }
  delta.nodes[0].removed = removed;
  return delta;
}

bool is_clean(const Workspace& workspace) {
  for (const auto& sides : workspace.slots) {
    for (const auto& nodes : sides) {
      if (std::any_of(nodes.begin(), nodes.end(), [](uint32_t slot) { return slot != kNoIndex; })) return false;
    }
  }
  for (const auto& nodes : workspace.removed) {
    if (std::any_of(nodes.begin(), nodes.end(), [](uint8_t removed) { return removed != 0; })) return false;
  }
  return true;
}

}  // namespace

TEST(workspace_is_clean_for_whoever_takes_it_next) {
  Random random;
  Workspaces all;
  std::vector<size_t> capacities{1, 1};
  for (int round = 0; round < 100; ++round) {
    for (size_t& capacity : capacities) capacity += random.below(5);
    std::vector<uint32_t> removed;
    for (uint32_t node = 0; node < capacities[0]; ++node) {
      if (random.chance(0.2)) removed.push_back(node);
    }
    const Delta delta = delta_of(capacities, removed);
    Workspaces::Lease workspace = all.take();
    CHECK(is_clean(*workspace));
    workspace->open(delta);
    for (size_t type = 0; type < capacities.size(); ++type) {
      CHECK(workspace->slots[0][type].size() >= capacities[type]);
      CHECK(workspace->slots[1][type].size() >= capacities[type]);
    }
    for (uint32_t node = 0; node < capacities[0]; ++node) {
      const bool is_removed = std::find(removed.begin(), removed.end(), node) != removed.end();
      CHECK_EQ(workspace->removed[0][node] != 0, is_removed);
    }
    if (random.chance(0.5)) {
      workspace->close(delta, random.below(100));
    } else {
      // Given up half-way.
      workspace->slots[random.below(2)][random.below(2)][0] = random.index(7);
    }
  }
}

TEST(workspaces_that_are_taken_at_once_are_different_ones) {
  Workspaces all;
  {
    std::vector<Workspaces::Lease> taken;
    std::set<const Workspace*> seen;
    for (int i = 0; i < 5; ++i) {
      taken.push_back(all.take());
      CHECK(seen.insert(taken.back().get()).second);
    }
    CHECK_EQ(all.bytes(), 0u);
  }
  const Delta delta = delta_of({1000}, {});
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 1000; ++i) {
        const Workspaces::Lease workspace = all.take();
        workspace->open(delta);
        workspace->slots[0][0][7] = 1;
        workspace->slots[0][0][7] = kNoIndex;
        workspace->close(delta, 1);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(all.bytes() >= 1000 * sizeof(uint32_t));
}

// A batch that stands alone leaves what small ones need.
TEST(workspace_gives_back_what_a_large_batch_needed) {
  Workspaces all;
  const Delta delta = delta_of({10}, {});
  const auto run = [&](size_t messages) {
    const Workspaces::Lease workspace = all.take();
    workspace->open(delta);
    workspace->row_frontier.found_row.resize(messages);
    workspace->message_frontier.found.resize(messages);
    workspace->reach.nodes.resize(messages);
    workspace->close(delta, messages);
  };
  run(1 << 20);
  CHECK(all.bytes() < (1 << 16));
  for (int i = 0; i < 3; ++i) run(1 << 20);
  CHECK(all.bytes() >= (1 << 20) * sizeof(uint32_t));
}

// Whichever of several workspaces prepares a batch, and whatever it has missed.
TEST(a_workspace_marks_the_nodes_of_other_parts) {
  testing::Random random;
  Graph graph({1}, {});
  graph.divide(std::make_unique<GraphPart>(Owners(OwnerRule::kModulo, 2), 0, 1));
  Workspace workspaces[3];
  std::vector<int64_t> ids;
  int64_t next = 0;
  for (size_t batch = 0; batch < 300; ++batch) {
    Stage stage(graph);
    for (size_t i = 0; i < random.below(3); ++i) {
      stage.add_nodes(0, &next, nullptr, 0, 1);
      ids.push_back(next++);
    }
    if (ids.size() > 8 && random.chance(0.7)) {
      std::swap(ids.back(), ids[random.below(ids.size() - 2)]);
      stage.remove_nodes(0, &ids.back(), 1);
      ids.pop_back();
    }
    const Delta delta = stage.finish();
    const NodeDelta& nodes = delta.nodes[0];
    Workspace& workspace = workspaces[random.below(3)];
    workspace.open(delta, graph.part.get());
    const auto mark_of = [&](uint32_t owner) { return owner == 0 ? 0 : Workspace::kForeign; };
    for (uint32_t node = 0; node < graph.nodes[0].ids.capacity(); ++node) {
      if (!graph.nodes[0].ids.in_use(node)) continue;
      const bool is_removed = std::find(nodes.removed.begin(), nodes.removed.end(), node) != nodes.removed.end();
      CHECK_EQ(int{workspace.removed[0][node]}, mark_of(graph.part->owner(0, node)) | (is_removed ? 1 : 0));
    }
    for (size_t i = 0; i < nodes.added.size(); ++i) {
      CHECK_EQ(int{workspace.removed[0][nodes.added[i]]}, mark_of(nodes.owners[i]));
    }
    if (random.chance(0.2)) {
      workspace.restore();
    } else {
      workspace.close(delta, 1);
    }
    if (random.chance(0.2)) {  // given up
      for (int64_t id : nodes.added_ids) std::erase(ids, id);
      ids.insert(ids.end(), nodes.removed_ids.begin(), nodes.removed_ids.end());
      continue;
    }
    graph.prepare(delta);
    {
      std::unique_lock lock(graph.lock);
      graph.commit(delta);
    }
    graph.settle();
  }
}

}  // namespace livegnn::workspace_test
