#include <algorithm>
#include <numeric>

#include "presampling/shard/sampling_shard.h"
#include "presampling/worker_model.h"
#include "testing/testing.h"

namespace livegnn::sampling_shard_owners_test {
namespace {

using testing::PlainGraph;
using testing::Random;
using testing::WorkerNetwork;

Owners random_owners(Random* random, uint64_t ids) {
  const uint32_t workers = 1 + random->index(5);
  Owners::Moved moved;
  for (uint64_t id = 0; id < ids; ++id) {
    if (random->chance(0.1)) moved.emplace_back(id, random->index(workers));
  }
  return Owners(OwnerRule::kJump, workers, std::move(moved));
}

// Sampling workers are told in any order, between events and blocks that are under way.
template <class Tell>
void tell_all(WorkerNetwork* workers, testing::NetworkStream* stream, Random* random, const Tell& tell) {
  std::vector<uint32_t> order(workers->shards.size());
  std::iota(order.begin(), order.end(), 0);
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random->below(i)]);
  for (uint32_t worker : order) {
    tell(workers->shards[worker].get());
    if (random->chance(0.5)) workers->collect(worker);
    if (random->chance(0.5)) stream->one(0.3);
  }
}

void check_all(WorkerNetwork* workers, PlainGraph* graph, testing::NetworkStream* stream, uint64_t ids) {
  testing::collect_all(workers);
  stream->deliver_all();
  if (workers->options.keep_edges) testing::check_against_lists(*workers, graph, ids);
  check_caches(*workers, graph, ids, [&](uint32_t q, uint64_t node) { return cell_in(*workers, q, node); });
}

TEST(seeds_change_hands_while_events_go_on) {
  Random random;
  for (int round = 0; round < 40; ++round) {
    WorkerNetwork workers(testing::random_market_plan(&random),
                          testing::random_shard_options(&random, random.chance(0.7)));
    PlainGraph graph;
    const uint64_t ids = 5 + random.below(40);
    testing::NetworkStream stream(&workers, &graph, &random, ids);
    for (int move = 0; move < 4; ++move) {
      for (int step = 0; step < 15; ++step) stream.one(0.3);
      const Owners before = workers.shards[0]->owners(), next = random_owners(&random, ids);
      while (workers.caches.size() < next.workers()) {
        workers.caches.push_back(std::make_unique<SampleCache>(workers.plan, workers.options.feature_widths,
                                                               static_cast<uint32_t>(workers.caches.size()),
                                                               workers.options.sampling_workers));
      }
      tell_all(&workers, &stream, &random, [&](SamplingShard* shard) { shard->begin_move(next); });
      workers.owners = {before, next};
      for (int step = 0; step < 10; ++step) stream.one(0.3);
      check_all(&workers, &graph, &stream, ids);
      const bool taken = random.chance(0.7);
      tell_all(&workers, &stream, &random, [&](SamplingShard* shard) { shard->end_move(taken); });
      workers.owners = {taken ? next : before};
      for (int step = 0; step < 10; ++step) stream.one(0.3);
      check_all(&workers, &graph, &stream, ids);
    }
  }
}

TEST(one_move_at_a_time) {
  Random random;
  SamplingShard shard(testing::random_market_plan(&random), {0, 1, 2, 0, true, testing::kMarketWidths});
  CHECK_THROWS(shard.end_move(true), std::invalid_argument, "no seeds are being moved");
  shard.begin_move(Owners(OwnerRule::kJump, 3));
  CHECK_THROWS(shard.begin_move(Owners(OwnerRule::kJump, 2)), std::invalid_argument, "end that first");
  shard.end_move(false);
  CHECK_EQ(shard.owners().workers(), 2u);
  shard.begin_move(Owners(OwnerRule::kJump, 4, {{7, 1}}));
  shard.end_move(true);
  CHECK(shard.owners() == Owners(OwnerRule::kJump, 4, {{7, 1}}));
}

}  // namespace
}  // namespace livegnn::sampling_shard_owners_test
