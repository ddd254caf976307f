#include "presampling/shard/sampling_shard.h"
#include "presampling/worker_model.h"
#include "testing/testing.h"

namespace livegnn::sampling_shard_state_test {
namespace {

using testing::PlainGraph;
using testing::Random;
using testing::WorkerNetwork;

ArrayViews views_of(Arrays* arrays) {
  ArrayViews views;
  for (const SavedArray& array : arrays->all()) {
    std::visit([&](const auto& values) { views.put(array.name, std::span(values), array.width); }, array.values);
  }
  return views;
}

TEST(a_worker_that_is_loaded_goes_on) {
  Random random;
  for (int round = 0; round < 30; ++round) {
    WorkerNetwork workers(testing::random_market_plan(&random),
                          testing::random_shard_options(&random, random.chance(0.7)));
    PlainGraph graph;
    const uint64_t ids = 5 + random.below(40);
    testing::NetworkStream stream(&workers, &graph, &random, ids);
    for (int step = 0; step < 30; ++step) stream.one(0.3);
    const uint32_t replaced = random.index(workers.shards.size());
    if (random.chance(0.5)) {  // while seeds change hands
      const Owners next(OwnerRule::kJump, workers.options.serving_workers, {{random.below(ids), 0}, {ids, 0}});
      for (const auto& shard : workers.shards) shard->begin_move(next);
      workers.owners.push_back(next);
    }
    Arrays arrays, early;
    workers.shards[replaced]->finish();
    for (uint32_t w = 0; w < workers.options.serving_workers; ++w) {
      if (workers.shards[replaced]->for_serving(w).empty()) continue;
      CHECK_THROWS(workers.shards[replaced]->save(&early), std::invalid_argument, "take the outbox before saving");
    }
    workers.collect(replaced);
    workers.shards[replaced]->save(&arrays);
    ShardOptions options = workers.shards[replaced]->options();
    auto loaded = std::make_unique<SamplingShard>(workers.plan, options);
    loaded->load(views_of(&arrays));
    ++options.seed;
    SamplingShard other(workers.plan, options);
    CHECK_THROWS(other.load(views_of(&arrays)), std::runtime_error, "another seed");
    workers.shards[replaced] = std::move(loaded);
    for (int step = 0; step < 30; ++step) stream.one(0.4);
    testing::collect_all(&workers);
    stream.deliver_all();
    if (workers.options.keep_edges) testing::check_against_lists(workers, &graph, ids);
    check_caches(workers, &graph, ids, [&](uint32_t q, uint64_t node) { return cell_in(workers, q, node); });
  }
}

std::vector<uint8_t> take_for_serving(SamplingShard* shard) {
  shard->finish();
  std::vector<uint8_t> all;
  for (uint32_t w = 0; w < shard->options().serving_workers; ++w) {
    const auto bytes = shard->for_serving(w);
    all.insert(all.end(), bytes.begin(), bytes.end());
  }
  shard->clear_outbox();
  return all;
}

// Its tables have another order; whoever knows blocks of the worker before must not notice.
TEST(a_worker_that_is_loaded_makes_the_same_blocks) {
  Random random;
  const QueryPlan plan(0, 3, testing::kMarketTypes,
                       std::vector<OneHopRequest>{{2, false, 4, SampleBy::kLatest, {kSeeds}, false, true},
                                                  {0, false, 3, SampleBy::kLatest, {0}, true, true}});
  for (int round = 0; round < 10; ++round) {
    SamplingShard first(plan, {0, 1, 2, 5, round % 2 == 0, testing::kMarketWidths});
    for (uint32_t type : {0, 2}) {
      testing::PlainEdges edges, gone;
      for (int i = 0; i < 4000; ++i) {
        const uint64_t source = random.below(600), target = random.below(600);
        edges.add(source, target, {1, static_cast<double>(random.below(100))});
        if (random.chance(0.5)) gone.add(source, target);
      }
      first.add_edges(type, edges.batch());
      first.remove_edges(type, {gone.sources, gone.targets});
    }
    take_for_serving(&first);
    Arrays arrays;
    first.save(&arrays);
    SamplingShard second(plan, first.options());
    second.load(views_of(&arrays));
    std::vector<uint64_t> removed;
    for (int i = 0; i < 60; ++i) removed.push_back(random.below(600));
    const auto check_same = [&](const auto& change) {
      change(&first);
      change(&second);
      const auto bytes = take_for_serving(&first);
      CHECK(!bytes.empty());
      CHECK(bytes == take_for_serving(&second));
    };
    check_same([&](SamplingShard* shard) { shard->remove_nodes(0, removed); });
    check_same([&](SamplingShard* shard) { shard->expire(0, 50.0); });
    check_same([&](SamplingShard* shard) { shard->publish_all(1); });
  }
}

}  // namespace
}  // namespace livegnn::sampling_shard_state_test
