// Workspaces that are taken and come back.
#include "inference/propagation/workspace.h"

#include <algorithm>
#include <set>
#include <thread>
#include <vector>

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

}  // namespace livegnn::workspace_test
