#include <cmath>
#include <limits>

#include "presampling/shard/sampling_shard.h"
#include "presampling/worker_model.h"
#include "testing/testing.h"

namespace livegnn::sampling_shard_sweeps_test {
namespace {

using testing::PlainGraph;
using testing::Random;
using testing::WorkerNetwork;

void check_empty(const WorkerNetwork& workers) {
  for (const auto& shard : workers.shards) {
    for (size_t q = 0; q < workers.plan.size(); ++q) {
      CHECK_EQ(shard->cells(q).size(), 0u);
      CHECK_EQ(shard->subscriptions(q).size(), 0u);
    }
    for (size_t type = 0; type < testing::kMarketWidths.size(); ++type) {
      CHECK_EQ(shard->features(type).size(), 0u);
      CHECK_EQ(shard->feature_subscriptions(type).size(), 0u);
    }
    CHECK(shard->bytes() < 400'000);
  }
  for (const auto& cache : workers.caches) {
    for (uint32_t q = 0; q < workers.plan.size(); ++q) CHECK_EQ(cache->num_samples(q), 0u);
    for (uint32_t type = 0; type < testing::kMarketWidths.size(); ++type) CHECK_EQ(cache->num_features(type), 0u);
    CHECK(cache->bytes() < 400'000);
  }
}

TEST(nothing_is_left_of_a_graph_that_is_removed) {
  Random random;
  for (int round = 0; round < 30; ++round) {
    const bool keep_edges = round % 2 == 0, by_node = random.chance(0.5);
    WorkerNetwork workers(testing::random_market_plan(&random), testing::random_shard_options(&random, keep_edges));
    PlainGraph graph;
    const uint64_t ids = 5 + random.below(60);
    testing::NetworkStream stream(&workers, &graph, &random, ids);
    for (int step = 0; step < 30; ++step) stream.one(0.2);
    std::vector<uint64_t> all;
    for (uint64_t id = 0; id < ids; ++id) all.push_back(id);
    for (uint32_t i = 0; i < workers.shards.size(); ++i) {
      for (uint32_t type = 0; type < testing::kMarketTypes.size() && !by_node; ++type) {
        testing::PlainEdges edges;
        for (const auto& [source, list] : graph.out[type]) {
          for (const auto& [target, edge] : list) edges.add(source, target);
        }
        workers.shards[i]->remove_edges(type, {edges.sources, edges.targets});
      }
      for (uint32_t type = 0; type < 3; ++type) workers.shards[i]->remove_nodes(type, all);
    }
    testing::collect_all(&workers);
    stream.deliver_all();
    check_empty(workers);
  }
}

// An edge goes if it is older. Lists have times where one query needs them, and others over them lose edges as well.
TEST(edges_expire_from_lists_and_cells) {
  const std::vector<OneHopRequest> requests{{0, false, 2, SampleBy::kWeight}, {0, false, 2, SampleBy::kLatest}};
  const QueryPlan plan(0, 3, testing::kMarketTypes, requests);
  SamplingShard shard(plan, {0, 1, 1, 7, true, testing::kMarketWidths});
  testing::PlainEdges edges;
  for (uint64_t i = 0; i < 10; ++i) edges.add(1, 100 + i, {1.0f, static_cast<double>(i)});
  shard.add_edges(0, edges.batch());
  shard.expire(0, 9.0);  // an edge of just this time stays
  for (size_t q = 0; q < 2; ++q) {
    CHECK_EQ(shard.cells(q).find(1).size, 1u);
    CHECK_EQ(shard.cells(q).find(1).ids[0], 109u);
  }
  shard.expire(0, -std::numeric_limits<double>::infinity());
  CHECK_EQ(shard.cells(0).size(), 1u);
  shard.expire(0, std::numeric_limits<double>::infinity());
  CHECK_EQ(shard.cells(0).size() + shard.cells(1).size(), 0u);
  shard.expire(3, 1.0);  // no query reads it
  CHECK_THROWS(shard.expire(0, NAN), std::invalid_argument, "not before a NaN");
  SamplingShard without(plan, {0, 1, 1, 7, false, testing::kMarketWidths});
  CHECK_THROWS(without.expire(0, 1.0), std::invalid_argument, "type 0 cannot expire");
}

}  // namespace
}  // namespace livegnn::sampling_shard_sweeps_test
