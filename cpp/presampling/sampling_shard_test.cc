#include "presampling/sampling_shard.h"

#include <cmath>
#include <limits>

#include "presampling/worker_model.h"
#include "testing/testing.h"

namespace livegnn {
namespace {

using testing::CellEdge;
using testing::PlainGraph;
using testing::Random;
using testing::WorkerNetwork;

TEST(caches_have_what_a_full_walk_fetches_and_nothing_more) {
  Random random;
  for (int round = 0; round < 60; ++round) {
    WorkerNetwork workers(testing::random_market_plan(&random), testing::random_shard_options(&random, true));
    PlainGraph graph;
    const uint64_t ids = 5 + random.below(40);
    testing::NetworkStream stream(&workers, &graph, &random, ids);
    for (int step = 0; step < 60; ++step) {
      stream.one(step < 40 ? 0.3 : 0.6);
      if (step % 10 != 9) continue;
      testing::collect_all(&workers);
      stream.deliver_all();
      testing::check_against_lists(workers, &graph, ids);
    }
    // A serving worker that has lost everything.
    const uint32_t lost = random.index(workers.caches.size());
    workers.caches[lost]->clear();
    for (const auto& shard : workers.shards) shard->publish_all(lost);
    testing::collect_all(&workers);
    stream.deliver_all();
    testing::check_against_lists(workers, &graph, ids);
  }
}

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

// Without lists, caches have what the cells lead to, whatever these are.
TEST(without_lists_caches_follow_the_cells) {
  Random random;
  for (int round = 0; round < 40; ++round) {
    WorkerNetwork workers(testing::random_market_plan(&random), testing::random_shard_options(&random, false));
    PlainGraph graph;
    const uint64_t ids = 5 + random.below(40);
    testing::NetworkStream stream(&workers, &graph, &random, ids);
    for (int step = 0; step < 40; ++step) {
      stream.one(0.3);
      if (step % 10 != 9) continue;
      testing::collect_all(&workers);
      stream.deliver_all();
      check_caches(workers, &graph, ids, [&](uint32_t q, uint64_t node) {
        const std::vector<CellEntry> cell = cell_in(workers, q, node);
        const auto& list = graph.list(workers.plan[q], node);
        for (const CellEntry& entry : cell) CHECK_EQ(list.count(entry.neighbor.id), 1u);  // none that was removed
        return cell;
      });
    }
  }
}

// While edges are only added, and no edge again with other values, a cell is that of the list, kept or not.
TEST(appended_edges_need_no_lists) {
  Random random;
  for (int round = 0; round < 20; ++round) {
    WorkerNetwork workers(testing::random_market_plan(&random), testing::random_shard_options(&random, false));
    PlainGraph graph;
    constexpr uint64_t kIds = 40;
    for (int step = 0; step < 20; ++step) {
      const uint32_t type = random.index(testing::kMarketTypes.size());
      testing::PlainEdges edges;
      for (int i = 0; i < 30; ++i) {
        const uint64_t source = random.below(kIds), target = random.below(kIds);
        if (graph.out[type][source].count(target) > 0) continue;
        const CellEdge edge{random.between(0, 5), static_cast<double>(random.below(50))};
        edges.add(source, target, edge);
        graph.add(type, source, target, edge);
      }
      for (uint32_t i = 0; i < workers.shards.size(); ++i) workers.shards[i]->add_edges(type, edges.batch());
    }
    testing::collect_all(&workers);
    while (workers.deliver(&random)) {
    }
    testing::check_against_lists(workers, &graph, kIds);
  }
}

TEST(the_same_events_make_the_same_blocks) {
  Random random;
  const QueryPlan plan = testing::random_market_plan(&random);
  const ShardOptions options{0, 1, 3, 5, true, testing::kMarketWidths};
  SamplingShard first(plan, options), second(plan, options);
  for (int step = 0; step < 50; ++step) {
    testing::PlainEdges edges;
    for (int i = 0; i < 40; ++i) {
      edges.add(random.below(30), random.below(30), {random.between(0.1f, 3), random.between(0, 9)});
    }
    const uint32_t type = random.index(4);
    for (SamplingShard* shard : {&first, &second}) {
      step % 3 == 2 ? shard->remove_edges(type, edges.batch()) : shard->add_edges(type, edges.batch());
      shard->finish();
    }
    for (uint32_t w = 0; w < 3; ++w) {
      const auto a = first.for_serving(w), b = second.for_serving(w);
      CHECK(std::equal(a.begin(), a.end(), b.begin(), b.end()));
    }
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

TEST(bad_events_change_nothing) {
  SamplingShard shard(
      QueryPlan(0, 3, testing::kMarketTypes, std::vector<OneHopRequest>{{0, false, 3, SampleBy::kWeight}}),
      {0, 1, 1, 0, true, testing::kMarketWidths});
  const std::vector<uint64_t> two{1, 2}, one{1};
  const std::vector<float> weights{1, 2}, infinite{1, std::numeric_limits<float>::infinity()}, row(3, NAN);
  const std::vector<double> times{1, NAN};
  CHECK_THROWS(shard.add_edges(0, {two, one, weights}), std::invalid_argument, "as many targets");
  CHECK_THROWS(shard.add_edges(0, {two, two}), std::invalid_argument, "each needs a weight");
  CHECK_THROWS(shard.add_edges(0, {two, two, infinite}), std::invalid_argument, "at most 2^96");
  CHECK_THROWS(shard.add_edges(0, {two, two, weights, times}), std::invalid_argument, "must be finite");
  CHECK_THROWS(shard.set_features(0, one, {}), std::invalid_argument, "expected 1 rows of 3 features, got 0");
  CHECK_THROWS(shard.set_features(0, one, row), std::invalid_argument, "a feature must be finite");
  CHECK_THROWS(shard.set_features(3, one, {}), std::invalid_argument, "no node type 3");
  CHECK_THROWS(shard.add_missing(3, one, {}), std::invalid_argument, "no node type 3");
  CHECK_THROWS(shard.add_missing(0, one, row), std::invalid_argument, "a feature must be finite");
  CHECK_THROWS(shard.add_missing(1, one, row), std::invalid_argument, "expected 1 rows of 5");
  CHECK_THROWS(shard.remove_nodes(3, one), std::invalid_argument, "no node type 3");
  CHECK_THROWS(shard.publish_all(1), std::invalid_argument, "no serving worker 1");
  CHECK_EQ(shard.cells(0).size(), 0u);
  shard.finish();
  CHECK(shard.for_serving(0).empty());
  const QueryPlan& plan = shard.plan();
  CHECK_THROWS(SamplingShard(plan, {1, 1, 1, 0, true, {1, 2, 3}}), std::invalid_argument, "is none of 1");
  CHECK_THROWS(SamplingShard(plan, {0, 1, 0, 0, true, {1, 2, 3}}), std::invalid_argument, "serving workers, not 0");
  CHECK_THROWS(SamplingShard(plan, {0, 1, 1, 0, true, {1}}), std::invalid_argument, "3 node types, and widths of 1");
}

TEST(blocks_for_others_are_refused) {
  PublicationWriter writer(1, 0);
  writer.reference(0, 5, 0, 1);
  writer.finish();
  const QueryPlan plan(0, 3, testing::kMarketTypes, std::vector<OneHopRequest>{{0, false, 3}});
  SamplingShard second(plan, {1, 2, 1, 0, true, testing::kMarketWidths});
  CHECK_THROWS(second.receive(writer.bytes()), std::runtime_error, "for sampling worker 0");
  PublicationWriter wrong(1, 0);
  wrong.reference(7, 5, 0, 1);
  wrong.finish();
  SamplingShard first(plan, {0, 2, 1, 0, true, testing::kMarketWidths});
  CHECK_THROWS(first.receive(wrong.bytes()), std::runtime_error, "not for this sampling worker");
}

}  // namespace
}  // namespace livegnn
