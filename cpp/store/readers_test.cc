// Readers beside a writer: that they see the edges before a batch or after it, and that the thread sanitizer sees
// nothing.
#include "testing/readers.h"

#include <atomic>
#include <mutex>
#include <shared_mutex>
#include <vector>

#include "store/graph.h"
#include "store/graph_store.h"
#include "store/stage.h"
#include "testing/testing.h"
#include "threads/fair_lock.h"
#include "threads/parallel.h"

namespace livegnn::readers_test {
namespace {

using testing::Random;
using testing::Readers;

// After batch b, node u < kNodes has the neighbours b, .. b + degree(u) - 1, each with the weight b; the hub is node 0.
// The nodes behind them come and go, so that there is something to compact.
constexpr uint32_t kNodes = 40, kBehind = 4000, kHubDegree = 1500;
uint32_t degree(uint32_t node) { return node == 0 ? kHubDegree : node * 3; }

std::vector<EdgeUpdate> batch_of(uint32_t batch) {
  std::vector<EdgeUpdate> updates;
  const EdgeValue value{static_cast<float>(batch), 0.5 * batch, batch};
  for (uint32_t u = 0; u < kNodes; ++u) {
    if (degree(u) == 0) continue;
    if (batch > 1) updates.push_back({u, batch - 1, false, {}});
    for (uint32_t i = 0; i < degree(u); ++i) updates.push_back({u, batch + i, true, value});
  }
  // Many at once that go again: churn, and then compaction.
  if (batch % 20 < 2) {
    for (uint32_t u = kNodes; u < kNodes + kBehind; ++u) {
      for (uint32_t i = 0; i < 40; ++i) updates.push_back({u, u ^ (i * 97), batch % 20 == 0, value});
    }
  }
  return updates;
}

// The batch that all lists show.
uint32_t read(const GraphStore& store, uint32_t node, Random* random) {
  float weight = -1;
  uint32_t count = 0, lowest = UINT32_MAX;
  uint64_t ids = 0;
  store.scan_out(node, [&](NeighborSpan span) {
    for (size_t i = 0; i < span.size; ++i) {
      if (weight < 0) weight = span.weights[i];
      CHECK_EQ(span.weights[i], weight);
      CHECK_EQ(span.times[i], 0.5 * weight);
      CHECK_EQ(span.rows[i], static_cast<uint32_t>(weight));
      ids += span.ids[i];
      lowest = std::min(lowest, span.ids[i]);
      ++count;
    }
  });
  const auto batch = static_cast<uint32_t>(weight);
  CHECK_EQ(count, degree(node));
  CHECK_EQ(lowest, batch);
  CHECK_EQ(ids, uint64_t{count} * batch + uint64_t{count} * (count - 1) / 2);

  const auto& trees = store.out();
  const EdgeColumns columns = trees.columns();
  CHECK_EQ(trees.weight_sum(node), static_cast<double>(count) * weight);
  const SamtreeRoot root = trees.root(node);
  CHECK_EQ(root.degree, count);
  for (int i = 0; i < 8; ++i) {
    const uint32_t id = batch + random->index(count);
    CHECK_EQ(store.find(node, id).value().weight, weight);
    CHECK(!store.find(node, batch - 1).has_value());
    uint32_t at = random->index(count);
    const auto by_place = trees.leaf_of(root, &at);
    CHECK(at < by_place.size);
    CHECK(by_place.id(columns, at) - batch < count);
    CHECK_EQ(by_place.value(columns, at).weight, weight);
    double sum = random->between(0, 0.999f) * trees.weight_sum(node);
    const auto by_weight = trees.leaf_at_weight(root, &sum);
    const uint32_t drawn = by_weight.at_weight(columns, sum);
    CHECK(drawn < by_weight.size);
    CHECK_EQ(by_weight.value(columns, drawn).weight, weight);
  }
  return batch;
}

void read_batches(const EdgeOptions& options) {
  const auto batches = static_cast<uint32_t>(testing::draws(30, 60));
  GraphStore store(options);
  FairLock lock;
  ThreadPool pool(2);
  store.resize(kNodes + kBehind, 8192);
  store.apply(batch_of(1), &pool);
  std::atomic<uint32_t> committed{1};
  Readers readers(3, [&](Random* random) {
    const uint32_t at_least = committed.load();
    std::shared_lock shared(lock);
    const uint32_t batch = read(store, 0, random);
    CHECK(batch >= at_least);
    for (int i = 0; i < 3; ++i) CHECK_EQ(read(store, 1 + random->index(kNodes - 1), random), batch);
  });
  size_t compactions = 0;
  auto commit = [&] {
    std::unique_lock alone(lock);
    store.commit();
  };
  for (uint32_t batch = 2; batch <= batches && !readers.failed(); ++batch) {
    const auto updates = batch_of(batch);
    if (batch % 9 == 0) {
      store.prepare(updates, &pool);
      readers.wait_for(3);
      store.abandon();
    }
    store.prepare(updates, &pool);
    commit();
    committed.store(batch);
    store.settle();
    readers.wait_for(3);
    if (!store.prepare_compaction()) continue;
    ++compactions;
    readers.wait_for(3);
    commit();
    store.settle();
  }
  readers.finish();
  CHECK(compactions > 0);
  store.check();
}

// A ring over all members but the one whose turn it is, with the batch as its weight and as each member's feature.
constexpr int64_t kMembers = 60;
void stage_ring(int64_t batch, Stage* stage) {
  const auto value = static_cast<float>(batch);
  const int64_t leaves = batch % kMembers, comes = (batch + kMembers - 1) % kMembers;
  if (batch > 0) stage->remove_nodes(0, &leaves, 1);
  if (batch > 1) stage->add_nodes(0, &comes, &value, 1, 1);
  std::vector<int64_t> members;
  for (int64_t id = 0; id < kMembers; ++id) {
    if (id != leaves || batch == 0) members.push_back(id);
  }
  for (size_t i = 0; i < members.size(); ++i) {
    if (batch == 0) stage->add_nodes(0, &members[i], &value, 1, 1);
    stage->set_features(0, &members[i], &value, 1, 1);
  }
  for (size_t i = 0; i < members.size(); ++i) {
    const double time = static_cast<double>(batch);
    const int64_t next = members[(i + 1) % members.size()];
    if (batch > 0) {
      const int64_t over = members[(i + 2) % members.size()];
      stage->remove_edges(0, &members[i], &over, 1);
    }
    stage->add_edges(0, &members[i], &next, &value, &time, nullptr, 0, 1);
  }
}

}  // namespace

TEST(readers_see_a_store_before_a_batch_or_after_it) {
  read_batches({{true, true, true}, false, false, false, {16, 4, true}});
  read_batches({{true, true, true}, false, false, true, {}});
}

// The whole way of an event: `Stage` reads beside readers, too.
TEST(readers_see_a_graph_before_a_batch_or_after_it) {
  constexpr int64_t kBatches = 60;
  EdgeOptions options;
  options.columns = {true, true, false};
  options.undirected = true;
  options.samtree = {8, 2, true};
  Graph graph({1}, {{0, 0, options}}, 2);
  auto apply = [&](const auto& add) {
    Stage stage(graph);
    add(&stage);
    const Delta delta = stage.finish();
    graph.prepare(delta);
    {
      std::unique_lock alone(graph.lock);
      graph.commit(delta);
    }
    graph.settle();
  };
  apply([&](Stage* stage) { stage_ring(0, stage); });
  Readers readers(3, [&](Random*) {
    std::shared_lock shared(graph.lock);
    const GraphStore& store = *graph.edges[0].store;
    float weight = -1;
    size_t entries = 0, named = 0;
    const IdMap& ids = graph.nodes[0].ids;
    for (uint32_t node = 0; node < store.num_sources(); ++node) {
      // Indices are given out again: in one read an index and its id belong together.
      if (ids.in_use(node)) {
        CHECK_EQ(ids.index_of(ids.id_of(node)), node);
        ++named;
      }
      store.scan_out(node, [&](NeighborSpan span) {
        CHECK_EQ(graph.nodes[0].features.row(node)[0], span.weights[0]);
        for (size_t i = 0; i < span.size; ++i) {
          if (weight < 0) weight = span.weights[i];
          CHECK_EQ(span.weights[i], weight);
          CHECK_EQ(span.times[i], static_cast<double>(weight));
          CHECK(store.find(span.ids[i], node).has_value());
          ++entries;
        }
      });
    }
    CHECK_EQ(named, ids.size());
    CHECK_EQ(entries, 2 * store.num_edges());
    CHECK_EQ(store.num_edges(), static_cast<size_t>(weight > 0 ? kMembers - 1 : kMembers));
  });
  for (int64_t batch = 1; batch <= kBatches && !readers.failed(); ++batch) {
    apply([&](Stage* stage) { stage_ring(batch, stage); });
    readers.wait_for(3);
  }
  readers.finish();
  graph.edges[0].store->check();
}

}  // namespace livegnn::readers_test
