// What an engine takes.
#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "inference/engine_model.h"
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

}  // namespace livegnn::state_memory_test
