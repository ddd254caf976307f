// What an engine takes, and what it gives back of it.
#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "inference/engine_model.h"
#include "memory/recent_needs.h"
#include "testing/testing.h"

namespace livegnn::state_memory_test {

using namespace testing;

TEST(engine_says_what_its_rows_take) {
  for (const Setting& setting : kSettings) {
    for (const std::string& directory : {std::string{}, std::filesystem::temp_directory_path().string()}) {
      Graph graph({kFeatures}, {{0, 0, setting.options, setting.edge_features}});
      EventStream stream(&graph);
      commit(stream.begin(3000, 100), &graph, {});
      Engine engine(graph, setting.make(), 1, directory);
      engine.initialize();
      size_t total = 0, least = 0;
      for (uint32_t v = 0; v < engine.program().values.size(); ++v) {
        if (engine.program().values[v].features) continue;
        CHECK(engine.state().bytes(v) > 0 || engine.rows(v).count == 0);
        total += engine.state().bytes(v);
        least += engine.rows(v).count * engine.rows(v).width * sizeof(float);
      }
      CHECK(total >= least);
      CHECK(total < 3 * least + (size_t{1} << 20));
      CHECK_EQ(engine.state().mapped_bytes() > 0, !directory.empty());
      CHECK(engine.state().program_bytes() > 0 || engine.program().tensors.empty());
    }
  }
}

// A batch that stands alone leaves what small ones need.
TEST(engine_gives_back_what_a_large_batch_needed) {
  for (size_t place = 0; place < std::size(kSettings); place += testing::draws(3, 1)) {
    const Setting& setting = kSettings[place];
    Graph graph({kFeatures}, {{0, 0, setting.options, setting.edge_features}});
    EventStream stream(&graph);
    commit(stream.begin(3000, 9000), &graph, {});
    Engine engine(graph, setting.make(), 1);
    engine.initialize();
    Preparation prepared;
    auto apply = [&](size_t events) {
      const Delta delta = stream.next(events);
      engine.prepare(delta, &prepared);
      commit(delta, &graph, {{&engine, &prepared}});
      prepared.settle();
      return engine.batch_bytes() + prepared.held();
    };
    size_t small = 0;  // what small batches need, some of which reach a hub
    for (size_t i = 0; i < RecentNeeds::kLate; ++i) small = std::max(small, apply(5));
    CHECK(apply(9000) > 0);
    for (size_t i = 0; i < RecentNeeds::kLate; ++i) apply(5);
    CHECK(apply(5) <= 2 * small + (size_t{1} << 20));
  }
}

}  // namespace livegnn::state_memory_test
