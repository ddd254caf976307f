#include <map>
#include <utility>

#include "presampling/cache_assembly.h"
#include "presampling/worker_model.h"
#include "sampling/sampling_model.h"
#include "testing/testing.h"

namespace livegnn {
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
    const EvictedEntries evicted = cache_->evict(bytes);
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

}  // namespace
}  // namespace livegnn
