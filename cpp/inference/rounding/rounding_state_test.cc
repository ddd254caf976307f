// What bounds the rounding of sums, as batches move it on.
#include "inference/rounding/rounding_state.h"

#include <vector>

#include "inference/engine_model.h"
#include "inference/rounding/error_bounds.h"
#include "inference/rounding/rounding.h"
#include "testing/testing.h"

namespace livegnn::rounding_state_test {

using namespace testing;

TEST(every_row_of_a_sum_has_bounds) {
  for (const Setting& setting : kSettings) {
    Graph graph({kFeatures}, {{0, 0, setting.options, setting.edge_features}});
    EventStream stream(&graph);
    commit(stream.begin(60, 250), &graph, {});
    Engine engine(graph, setting.make(), 1);
    engine.initialize();
    Preparation prepared;
    for (int batch = 0; batch < 10; ++batch) {
      const Delta delta = stream.next(10);
      engine.prepare(delta, &prepared);
      commit(delta, &graph, {{&engine, &prepared}});
      const RoundingState& rounding = engine.state().rounding;
      CHECK_EQ(rounding.moments.batches, static_cast<size_t>(batch) + 1);
      for (size_t p = 0; p < rounding.errors.size(); ++p) {
        const PropagateStep& step = engine.program().propagations[p];
        const bool is_sum = step.aggregate == Aggregate::kSum;
        CHECK_EQ(rounding.errors[p].width(), error_width(engine.program(), step));
        CHECK_EQ(rounding.errors[p].rows(), is_sum ? graph.nodes[0].ids.capacity() : 0);
        CHECK_EQ(rounding.scales[p].scales.size(), is_sum ? engine.program().values[step.output].width : 0);
      }
    }
  }
}

// Bounds of rows that a batch does not reach grow by the factor by which its scales fall.
TEST(bounds_are_converted_to_new_units) {
  for (const Setting& setting : kSettings) {
    Graph graph({kFeatures}, {{0, 0, setting.options, setting.edge_features}});
    const RowState rows(graph, setting.make(), "", 0);
    RoundingState rounding(rows.program, "");
    Delta delta;
    delta.nodes.resize(1);
    delta.nodes[0].capacity = 3;
    BatchChanges changes;
    changes.rows.resize(rows.program.values.size());
    NewScales fresh;
    fresh.forget(rows.program.propagations.size());
    rounding.reserve(rows, delta, changes);
    rounding.commit(rows, delta, changes, fresh, Totals());
    for (size_t p = 0; p < rounding.errors.size(); ++p) {
      const PropagateStep& step = rows.program.propagations[p];
      if (step.aggregate != Aggregate::kSum) continue;
      std::vector<float> bounds(3 * saved_error_width(rows.program, step), 0x1p-20f);
      load_errors(rows.program, p, bounds, &rounding);
      fresh.all[p].shrunk = 4;
    }
    rounding.commit(rows, delta, changes, fresh, Totals());
    for (size_t p = 0; p < rounding.errors.size(); ++p) {
      const PropagateStep& step = rows.program.propagations[p];
      if (step.aggregate != Aggregate::kSum) continue;
      const bool packed = step.context == kNoIndex;
      const size_t width = rounding.errors[p].width(), converted = packed ? 1 : width / 2;
      for (size_t row = 0; row < 3; ++row) {
        const float* const errors = rounding.errors[p].row(row);
        for (size_t i = 0; i < width; ++i) {
          const float bound = packed ? unpack(errors).own : errors[i];
          CHECK_NEAR(bound, i < converted ? 0x1p-18 : 0x1p-20, 1e-9);
        }
      }
    }
  }
}

}  // namespace livegnn::rounding_state_test
