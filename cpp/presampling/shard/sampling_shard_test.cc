#include "presampling/shard/sampling_shard.h"

#include <cmath>
#include <limits>

#include "presampling/worker_model.h"
#include "testing/testing.h"

namespace livegnn::sampling_shard_test {
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
  CHECK_THROWS(SamplingShard(plan, {0, 1, 0, 0, true, {1, 2, 3}}), std::invalid_argument, "workers, not 0");
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
}  // namespace livegnn::sampling_shard_test
