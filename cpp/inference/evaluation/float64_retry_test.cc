// Operations whose parts do not fit into float32, and whose results do.
#include <cmath>
#include <limits>
#include <vector>

#include "inference/engine_model.h"
#include "inference/plain_steps_model.h"
#include "testing/testing.h"

namespace livegnn::float64_retry_test {

using namespace testing;

namespace {

Program one_layer(Random random) {
  enum : uint32_t { kX, kOut };
  Program program;
  program.values = {{0, kFeatures, true, 0}, {0, kClasses, false, 0}};
  program.output = kOut;
  RowsBuilder rows(&program, {kX});
  rows.finish({{rows.linear(0, kClasses, &random), kOut}});
  return program;
}

}  // namespace

TEST(rows_are_finite_where_they_can_be) {
  Random random;
  Graph graph({kFeatures}, {{0, 0, {}}});
  EventStream stream(&graph);
  commit(stream.begin(200, 0), &graph, {});
  Engine engine(graph, one_layer(random), 1);
  engine.initialize();
  Preparation prepared;
  constexpr double kLargest = std::numeric_limits<float>::max();
  size_t overflowing = 0;
  for (int batch = 0; batch < 10; ++batch) {
    Stage stage(graph);
    for (uint32_t node : nodes_in_use(engine)) {
      if (random.chance(0.5)) continue;
      const int64_t id = graph.nodes[0].ids.id_of(node);
      Floats x = random.floats(kFeatures);
      for (float& value : x) value = random.chance(0.5) ? value : std::copysign(static_cast<float>(kLargest), value);
      stage.set_features(0, &id, x.data(), kFeatures, 1);
    }
    const Delta delta = stage.finish();
    engine.prepare(delta, &prepared);
    commit(delta, &graph, {{&engine, &prepared}});
    const RowsStep& step = engine.program().rows[0];
    for (uint32_t node : nodes_in_use(engine)) {
      const PlainRow x = plain_row(engine, 0, node), row = plain_row(engine, 1, node);
      const PlainRow expected = plain_registers(engine.program(), step, {x})[step.sinks[0].reg];
      double reach = 0;
      for (double value : x) reach += std::fabs(value);
      for (size_t c = 0; c < kClasses; ++c) {
        if (!(std::fabs(expected[c]) < 0.999 * kLargest)) continue;
        CHECK_NEAR(row[c], expected[c], 1e-5 * reach + 1e-5);
        overflowing += reach > kLargest;
      }
    }
  }
  CHECK(overflowing > 1000);
}

}  // namespace livegnn::float64_retry_test
