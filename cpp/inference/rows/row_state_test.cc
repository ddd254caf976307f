// The rows that an engine keeps, before anything is computed.
#include "inference/rows/row_state.h"

#include <set>
#include <vector>

#include "inference/engine_model.h"
#include "testing/testing.h"

namespace livegnn::row_state_test {

using namespace testing;

TEST(state_has_a_place_of_its_own_for_every_row) {
  for (const Setting& setting : kSettings) {
    Graph graph({kFeatures}, {{0, 0, setting.options, setting.edge_features}});
    EventStream stream(&graph);
    commit(stream.begin(60, 250), &graph, {});
    RowState state(graph, setting.make(), "", 0);
    state.clear();
    std::set<const float*> taken;
    for (uint32_t v = 0; v < state.program.values.size(); ++v) {
      const Rows rows = state.rows(v);
      CHECK_EQ(rows.count, graph.nodes[0].ids.capacity());
      CHECK_EQ(rows.width, state.program.values[v].width);
      CHECK_EQ(state.slots(v).size(), rows.count);
      for (uint32_t node = 0; node < rows.count; ++node) {
        CHECK_EQ(state.slot_of(v, node), node);
        CHECK(state.stored_row(v, node) == rows.row(node));
        for (size_t c = 0; c < rows.width; ++c) CHECK(taken.insert(rows.row(node) + c).second);
      }
      // A node that has come since is as one without a row.
      for (size_t c = 0; c < rows.width; ++c) CHECK_EQ(state.stored_row(v, 1'000'000)[c], 0.0f);
    }
  }
}

TEST(state_counts_beside_each_maximum_of_rows) {
  for (const Setting& setting : kSettings) {
    Graph graph({kFeatures}, {{0, 0, setting.options, setting.edge_features}});
    const RowState state(graph, setting.make(), "", 0);
    for (const PropagateStep& step : state.program.propagations) {
      const bool counted = step.aggregate == Aggregate::kMax && step.message == kNoIndex;
      CHECK_EQ(step.counts != kNoIndex, counted);
      if (!counted) continue;
      CHECK_EQ(state.program.values[step.counts].width, state.program.values[step.output].width);
      CHECK_EQ(state.program.values[step.counts].slab, state.program.values[step.output].slab);
    }
  }
}

TEST(states_have_serials_of_their_own) {
  Graph graph({kFeatures}, {{0, 0, {}}});
  std::set<uint64_t> seen;
  for (int i = 0; i < 10; ++i) CHECK(seen.insert(RowState(graph, gcn(false, Random()), "", 0).serial).second);
}

}  // namespace livegnn::row_state_test
