// The bounds of rounding: how many a row has, and all of them as numbers and back.
#include <vector>

#include "inference/engine_model.h"
#include "testing/testing.h"

namespace livegnn::error_bounds_test {

using namespace testing;

TEST(error_bounds_come_back_as_they_were) {
  for (const Setting& setting : kSettings) {
    Graph graph({kFeatures}, {{0, 0, setting.options, setting.edge_features}});
    EventStream stream(&graph);
    commit(stream.begin(60, 250), &graph, {});
    Engine engine(graph, setting.make(), 1);
    State other(graph, setting.make(), "", 0);
    engine.initialize();
    Preparation prepared;
    bool moved = false;
    for (int batch = 0; batch < 20; ++batch) {
      const Delta delta = stream.next(8);
      std::vector<std::vector<float>> before;
      for (size_t p = 0; p < engine.program().propagations.size(); ++p)
        before.push_back(saved_errors(engine.state().rows, engine.state().rounding, p));
      engine.prepare(delta, &prepared);
      commit(delta, &graph, {{&engine, &prepared}});
      other.rows.clear();
      for (size_t p = 0; p < engine.program().propagations.size(); ++p) {
        const std::vector<float> errors = saved_errors(engine.state().rows, engine.state().rounding, p);
        const PropagateStep& step = engine.program().propagations[p];
        const size_t rows = error_width(engine.program(), step) > 0 ? graph.nodes[0].ids.capacity() : 0;
        CHECK_EQ(errors.size(), saved_error_width(engine.program(), step) * rows);
        for (float bound : errors) CHECK(bound >= 0);
        load_errors(engine.program(), p, errors, &other.rounding);
        CHECK(saved_errors(other.rows, other.rounding, p) == errors);
        moved = moved || errors != before[p];
      }
    }
    CHECK(moved);
  }
}

}  // namespace livegnn::error_bounds_test
