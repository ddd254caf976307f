// What a batch makes of rows, and the first node that it loses.
#include "inference/preparation.h"

#include <thread>
#include <vector>

#include "inference/engine_model.h"
#include "testing/testing.h"

namespace livegnn::preparation_test {

using namespace testing;

TEST(changes_keep_the_rows_that_are_marked) {
  Random random;
  Changes changes;
  for (int round = 0; round < 50; ++round) {
    const size_t width = random.below(20), count = random.below(40);
    changes.begin(width);
    CHECK_EQ(changes.stride(), row_stride(width));
    float* const rows = changes.open(count);
    std::vector<uint32_t> nodes, kept, positions;
    std::vector<uint8_t> marks;
    for (uint32_t i = 0; i < count; ++i) {
      for (size_t c = 0; c < changes.stride(); ++c) rows[i * changes.stride() + c] = static_cast<float>(i);
      nodes.push_back(1000 - 3 * i);
      marks.push_back(random.chance(0.5));
      if (!marks.back()) continue;
      kept.push_back(nodes.back());
      positions.push_back(i);
    }
    changes.keep(nodes, marks);
    CHECK(changes.nodes() == kept);
    for (size_t i = 0; i < kept.size(); ++i) {
      CHECK_EQ(changes.position(i), positions[i]);
      CHECK(width == 0 || changes.row(i)[width - 1] == static_cast<float>(positions[i]));
      CHECK(changes.row(i) == changes.at(positions[i]));
      CHECK(changes.row(i) == changes.row_to_write(positions[i]));
    }
    const Floats elsewhere(3 * changes.stride() + 1);
    changes.lie_at(elsewhere.data());
    CHECK(changes.at(2) == elsewhere.data() + 2 * changes.stride());
  }
}

TEST(the_first_lost_node_is_told_whoever_finds_it) {
  Random random;
  for (int round = 0; round < 20; ++round) {
    Preparation prepared;
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
    CHECK_EQ(uint64_t{prepared.lost_type} << 32 | prepared.lost, first);
    CHECK(prepared.has_lost());  // until the next batch
  }
}

TEST(a_row_is_lost_if_it_was_finite) {
  Graph graph({kFeatures}, {{0, 0, {}}});
  EventStream stream(&graph);
  commit(stream.begin(20, 0), &graph, {});
  Engine engine(graph, gcn(false, Random()), 1);
  engine.initialize();
  Preparation prepared;
  prepared.lose_row(engine.state(), 0, 3);
  CHECK(!prepared.has_lost());  // nobody guards
  prepared.guarded = true;
  prepared.lose_row(engine.state(), 0, 3);
  prepared.step = 2;
  CHECK(prepared.has_lost());
  CHECK_EQ(prepared.lost, 3u);
  CHECK_EQ(prepared.lost_step, size_t{2});
}

}  // namespace livegnn::preparation_test
