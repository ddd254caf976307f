#include "presampling/sampling_shard.h"
#include "presampling/worker_model.h"
#include "testing/testing.h"

namespace livegnn {
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
    workers.collect(replaced);
    Arrays arrays;
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

}  // namespace
}  // namespace livegnn
