// Rows that are kept in memory, in a file, or computed when they are read.
#include "inference/rows/stored_rows.h"

#include <filesystem>
#include <vector>

#include "inference/engine_model.h"
#include "testing/testing.h"

namespace livegnn::stored_rows_test {

using namespace testing;

namespace {

// Of every value, whether it lies there or is computed.
void check_stored_rows(const Engine& plain, const Engine& saver) {
  const std::vector<uint32_t> nodes = nodes_in_use(plain);
  std::vector<const float*> expected(nodes.size()), rows(nodes.size());
  RowArena arena, other;
  for (uint32_t value = 0; value < plain.program().values.size(); ++value) {
    stored_rows(plain.state().rows, value, nodes, &arena, expected.data());
    stored_rows(saver.state().rows, value, nodes, &other, rows.data());
    const size_t width = plain.program().values[value].width;
    for (size_t i = 0; i < nodes.size(); ++i) {
      CHECK(std::memcmp(rows[i], expected[i], width * sizeof(float)) == 0);
      for (size_t pad = width; pad < row_stride(width); ++pad) CHECK_EQ(rows[i][pad], 0.0f);
    }
    arena.clear();
    other.clear();
  }
}

}  // namespace

TEST(stored_rows_are_the_same_whatever_is_kept) {
  for (const Setting& setting : kSettings) {
    for (size_t threads : {1, 2}) {
      Graph graph({kFeatures}, {{0, 0, setting.options, setting.edge_features}});
      EventStream stream(&graph);
      commit(stream.begin(60, 250), &graph, {});
      Engine plain(graph, setting.make(), threads);
      Engine saver(graph, keeping_aggregates(setting.make()), threads);
      Engine mapped(graph, setting.make(), threads, std::filesystem::temp_directory_path().string());
      for (Engine* engine : {&plain, &saver, &mapped}) engine->initialize();
      CHECK(mapped.state().mapped_bytes() > 0);
      Preparation prepared[3];
      for (size_t batch = 0; batch < testing::draws(10, 20); ++batch) {
        const Delta delta = stream.next(batch % 10 == 9 ? 150 : 8);
        plain.prepare(delta, &prepared[0]);
        saver.prepare(delta, &prepared[1]);
        mapped.prepare(delta, &prepared[2]);
        CHECK(prepared[0].changed == prepared[1].changed);
        CHECK(prepared[0].changed == prepared[2].changed);
        commit(delta, &graph, {{&plain, &prepared[0]}, {&saver, &prepared[1]}, {&mapped, &prepared[2]}});
        const Floats expected = all_predictions(plain);
        CHECK(same_bits({all_predictions(saver)}, {expected}));
        CHECK(same_bits({all_predictions(mapped)}, {expected}));
        check_stored_rows(plain, saver);
      }
    }
  }
}

}  // namespace livegnn::stored_rows_test
