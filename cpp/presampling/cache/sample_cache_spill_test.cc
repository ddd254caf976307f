#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <thread>
#include <utility>

#include "presampling/cache/cache_assembly.h"
#include "presampling/worker_model.h"
#include "sampling/sampling_model.h"
#include "testing/testing.h"
#include "threads/fair_lock.h"

namespace livegnn::sample_cache_spill_test {
namespace {

using testing::PlainGraph;
using testing::Random;
using testing::vector_of;
using testing::WorkerNetwork;

// What the owner of a cache keeps of it.
class Owner {
 public:
  explicit Owner(SampleCache* cache) : cache_(cache) { cache->spill(1 << 12); }

  void apply(std::span<const uint8_t> blocks) {
    while (!blocks.empty()) {
      cache_->apply_block(&blocks);
      for (const EntryKey& key : cache_->take_gone()) kept_.erase(tuple_of(key));
    }
  }
  size_t evict(size_t bytes) {
    Eviction eviction{bytes};
    while (cache_->evict(&eviction)) {
    }
    const EvictedEntries& evicted = eviction.entries;
    for (size_t i = 0; i < evicted.keys.size(); ++i) {
      const auto record = evicted.record(i);
      kept_[tuple_of(evicted.keys[i])] = {reinterpret_cast<const uint64_t*>(record.data()),
                                          reinterpret_cast<const uint64_t*>(record.data() + record.size())};
    }
    return evicted.keys.size();
  }
  // The whole sample, and how often it was begun.
  std::pair<Subgraph, size_t> sample(std::span<const int64_t> ids, bool attributes) {
    CacheAssembly assembly(*cache_);
    for (size_t times = 1;; ++times) {
      Subgraph sample = assembly.sample(ids, attributes);
      bool found = false;
      for (const EntryKey& key : assembly.missing()) {
        const auto record = kept_.find(tuple_of(key));
        if (record == kept_.end()) continue;  // the filter errs
        found = true;
        const auto* bytes = reinterpret_cast<const uint8_t*>(record->second.data());
        cache_->restore(key, {bytes, record->second.size() * sizeof(uint64_t)}, true);
      }
      if (!found) return {std::move(sample), times};
    }
  }

 private:
  static std::tuple<RecordKind, uint32_t, uint64_t> tuple_of(const EntryKey& key) {
    return {key.kind, key.what, key.node};
  }

  SampleCache* cache_;
  std::map<std::tuple<RecordKind, uint32_t, uint64_t>, std::vector<uint64_t>> kept_;
};

void check_same(const Subgraph& a, const Subgraph& b) {
  for (size_t t = 0; t < a.nodes.size(); ++t) {
    CHECK(vector_of(a.nodes[t].ids) == vector_of(b.nodes[t].ids));
    CHECK(vector_of(a.nodes[t].features) == vector_of(b.nodes[t].features));
    CHECK(a.nodes[t].num_sampled == b.nodes[t].num_sampled);
  }
  for (size_t e = 0; e < a.edges.size(); ++e) {
    CHECK(vector_of(a.edges[e].row) == vector_of(b.edges[e].row));
    CHECK(vector_of(a.edges[e].col) == vector_of(b.edges[e].col));
    CHECK(vector_of(a.edges[e].weight) == vector_of(b.edges[e].weight));
    CHECK(vector_of(a.edges[e].time) == vector_of(b.edges[e].time));
  }
}

// Whatever leaves and comes back between changes, samples are those of a cache that keeps everything.
TEST(a_cache_that_spills_answers_as_one_that_does_not) {
  Random random;
  size_t evicted = 0, begun_again = 0;
  for (int round = 0; round < 40; ++round) {
    ShardOptions options = testing::random_shard_options(&random, true);
    options.serving_workers = 1;
    WorkerNetwork workers(testing::random_market_plan(&random), options);
    PlainGraph graph;
    const uint64_t ids = 5 + random.below(60);
    testing::NetworkStream stream(&workers, &graph, &random, ids);
    SampleCache spilled(workers.plan, testing::kMarketWidths, 0, workers.options.sampling_workers);
    Owner owner(&spilled);
    workers.delivered = [&](std::span<const uint8_t> blocks) { owner.apply(blocks); };
    for (int step = 0; step < 60; ++step) {
      stream.one(0.3);
      if (random.chance(0.5)) testing::collect_all(&workers);
      if (random.chance(0.5)) stream.deliver_all();
      while (random.chance(0.6)) evicted += owner.evict(random.below(4000));
      std::vector<int64_t> seeds;
      for (uint64_t i = random.below(4); i > 0; --i) seeds.push_back(static_cast<int64_t>(random.below(ids)));
      const bool attributes = random.chance(0.7);
      auto [sample, times] = owner.sample(seeds, attributes);
      check_same(sample, CacheAssembly(*workers.caches[0]).sample(seeds, attributes));
      CHECK(times <= workers.plan.num_hops() + 2);
      begun_again += times > 1;
    }
  }
  CHECK(evicted > 1000 && begun_again > 100);
}

// What is looked up between two evictions stays; what comes back and does not change is not given to the owner again.
TEST(what_was_looked_up_stays) {
  const QueryPlan plan(0, 3, testing::kMarketTypes, std::vector<OneHopRequest>{{0, false, 3}});
  SampleCache cache(plan, testing::kMarketWidths, 0, 1);
  cache.spill(1 << 14);
  PublicationWriter writer(0, 0);
  constexpr uint64_t kNodes = 1000;
  for (uint64_t node = 0; node < kNodes; ++node)
    writer.features(0, node, std::vector<float>(3, static_cast<float>(node)));
  writer.finish();
  cache.apply(writer.bytes());
  Lookups lookups;
  const auto evict = [&](size_t bytes) {
    Eviction eviction{bytes};
    while (cache.evict(&eviction)) {
    }
    return std::move(eviction.entries);
  };
  for (uint64_t node = 0; node < kNodes; node += 10) CHECK(cache.features(0, node, &lookups) != nullptr);
  const EvictedEntries evicted = evict(kNodes * 9 / 10 * (3 * 4 + 32));
  CHECK_EQ(evicted.keys.size(), kNodes * 9 / 10);
  for (uint64_t node = 0; node < kNodes; ++node) {
    CHECK_EQ(cache.features(0, node, &lookups) != nullptr, node % 10 == 0);
    CHECK(node % 10 == 0 || cache.may_be_evicted({RecordKind::kFeatures, 0, node}));
  }
  cache.restore(evicted.keys[0], evicted.record(0), true);
  cache.restore(evicted.keys[1], evicted.record(1), false);
  CHECK_EQ(cache.num_features(0), kNodes / 10 + 2);
  const EvictedEntries all = evict(SIZE_MAX);
  CHECK_EQ(cache.num_features(0), 0u);
  CHECK_EQ(all.keys.size(), kNodes / 10 + 1);
  CHECK(std::count(all.keys.begin(), all.keys.end(), evicted.keys[0]) == 0);
  CHECK(evict(SIZE_MAX).keys.empty());
  CHECK_THROWS(cache.restore(evicted.keys[0], evicted.record(1), true), std::runtime_error, "another one");
  CHECK_THROWS(cache.restore(evicted.keys[0], evicted.record(0).first(16), true), std::runtime_error, "cut off");
}

// Readers mark entries while others do, and one thread changes the cache between them.
TEST(readers_share_a_cache_that_spills) {
  ShardOptions options{0, 1, 1, 3, true, testing::kMarketWidths};
  const QueryPlan plan(0, 3, testing::kMarketTypes,
                       std::vector<OneHopRequest>{{2, false, 4}, {0, false, 3, SampleBy::kUniform, {0}}});
  SamplingShard shard(plan, options);
  SampleCache cache(plan, testing::kMarketWidths, 0, 1);
  Owner owner(&cache);
  FairLock lock;
  std::atomic<bool> done{false};
  std::vector<std::thread> readers;
  for (int i = 0; i < 3; ++i) {
    readers.emplace_back([&] {
      CacheAssembly assembly(cache);
      while (!done) {
        std::shared_lock shared(lock);
        for (int64_t user = 0; user < 40; ++user) assembly.sample({&user, 1}, true);
      }
    });
  }
  Random random;
  for (int step = 0; step < 200; ++step) {
    testing::PlainEdges edges;
    for (int i = 0; i < 40; ++i) edges.add(random.below(40), random.below(40));
    const auto type = static_cast<uint32_t>(random.chance(0.5) ? 2 : 0);
    random.chance(0.7) ? shard.add_edges(type, edges.batch()) : shard.remove_edges(type, edges.batch());
    shard.finish();
    std::lock_guard alone(lock);
    owner.apply(shard.for_serving(0));
    owner.evict(random.below(3000));
    shard.clear_outbox();
  }
  done = true;
  for (std::thread& reader : readers) reader.join();
  SampleCache whole(plan, testing::kMarketWidths, 0, 1);
  shard.publish_all(0);
  shard.finish();
  whole.apply(shard.for_serving(0));
  for (int64_t user = 0; user < 40; ++user) {
    check_same(owner.sample({&user, 1}, true).first, CacheAssembly(whole).sample({&user, 1}, true));
  }
}

}  // namespace
}  // namespace livegnn::sample_cache_spill_test
