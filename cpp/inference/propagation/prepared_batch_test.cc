// The first node that a batch loses.
#include "inference/propagation/prepared_batch.h"

#include <thread>
#include <utility>
#include <vector>

#include "inference/engine_model.h"
#include "testing/testing.h"

namespace livegnn::prepared_batch_test {

using namespace testing;

TEST(the_first_lost_node_is_told_whoever_finds_it) {
  Random random;
  for (int round = 0; round < 20; ++round) {
    Effects effects;
    PreparedBatch prepared(&effects);
    CHECK(!prepared.has_lost());
    uint64_t first = ~uint64_t{0};
    std::vector<std::vector<std::pair<uint32_t, uint32_t>>> lost(4);
    for (auto& nodes : lost) {
      for (int i = 0; i < 100; ++i) {
        nodes.emplace_back(random.index(3), random.index(1000));
        first = std::min(first, uint64_t{nodes.back().first} << 32 | nodes.back().second);
      }
    }
    std::vector<std::thread> threads;
    for (const auto& nodes : lost) {
      threads.emplace_back([&] {
        for (const auto& [type, node] : nodes) prepared.lose(type, node);
      });
    }
    for (std::thread& thread : threads) thread.join();
    CHECK(prepared.has_lost());
    CHECK_EQ(uint64_t{effects.lost_type} << 32 | effects.lost, first);
    CHECK(prepared.has_lost());  // until the next batch
  }
}

TEST(a_row_is_lost_if_it_was_finite) {
  Graph graph({kFeatures}, {{0, 0, {}}});
  EventStream stream(&graph);
  commit(stream.begin(20, 0), &graph, {});
  Engine engine(graph, gcn(false, Random()), 1);
  engine.initialize();
  Effects effects;
  PreparedBatch prepared(&effects);
  prepared.lose_row(engine.state().rows, 0, 3);
  CHECK(!prepared.has_lost());  // nobody guards
  prepared.guarded = true;
  prepared.lose_row(engine.state().rows, 0, 3);
  prepared.step = 2;
  CHECK(prepared.has_lost());
  CHECK_EQ(effects.lost, 3u);
  CHECK_EQ(effects.lost_step, size_t{2});
}

}  // namespace livegnn::prepared_batch_test
