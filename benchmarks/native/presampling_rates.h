// How fast one core samples ahead: edges into reservoirs with subscriptions and publication, and what is published into
// a cache. The edges are random and new; making them is not timed. Times are those of the thread on its core, so that
// other processes on the machine disturb only through the memory that they use.
#pragma once

#include <time.h>

#include <cstdint>
#include <vector>

#include "hashing/random.h"
#include "presampling/cache/sample_cache.h"
#include "presampling/shard/sampling_shard.h"

namespace livegnn::bench {

struct PresamplingRates {
  uint64_t edges = 0, records = 0, bytes = 0;        // bytes of blocks
  double sampling_seconds = 0, caching_seconds = 0;  // of the worker, and of the cache if there is one
  size_t worker_bytes = 0, cache_bytes = 0;
};

inline double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// One type of nodes and of edges, a hop for each fan-out, `degree` edges a node, one sampling and one serving worker.
inline PresamplingRates presampling_rates(uint64_t nodes, uint64_t degree, const std::vector<uint32_t>& fan_outs,
                                          bool keep_edges, bool into_cache, uint64_t batch, uint64_t seed) {
  std::vector<OneHopRequest> requests;
  for (size_t hop = 0; hop < fan_outs.size(); ++hop) {
    requests.push_back({0, false, fan_outs[hop], SampleBy::kUniform, {static_cast<int32_t>(hop) - 1}});
  }
  const std::vector<PlannedEdgeType> types{{0, 0}};
  const QueryPlan plan(0, 1, types, requests);
  SamplingShard worker(plan, {0, 1, 1, seed, keep_edges, {0}});
  SampleCache cache(plan, {0}, 0, 1);
  RandomStream random(seed, 1, 0);
  PresamplingRates rates;
  std::vector<uint64_t> sources(batch), targets(batch);
  for (uint64_t left = nodes * degree; left > 0;) {
    const uint64_t size = left < batch ? left : batch;
    left -= size;
    for (uint64_t i = 0; i < size; ++i) {
      sources[i] = random.below(nodes);
      targets[i] = random.below(nodes);
    }
    double start = thread_seconds();
    worker.add_edges(0, {{sources.data(), size}, {targets.data(), size}});
    worker.finish();
    rates.sampling_seconds += thread_seconds() - start;
    rates.bytes += worker.for_serving(0).size();
    if (into_cache) {
      start = thread_seconds();
      cache.apply(worker.for_serving(0));
      rates.caching_seconds += thread_seconds() - start;
    }
    worker.clear_outbox();
    rates.edges += size;
  }
  rates.records = worker.records_written();
  rates.worker_bytes = worker.bytes();
  rates.cache_bytes = cache.bytes();
  return rates;
}

}  // namespace livegnn::bench
