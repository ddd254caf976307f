// What an engine keeps, before anything is computed.
#include "inference/state.h"

#include <set>
#include <vector>

#include "inference/engine_model.h"
#include "testing/testing.h"

namespace livegnn::state_test {

using namespace testing;

TEST(state_has_a_place_of_its_own_for_every_row) {
  for (const Setting& setting : kSettings) {
    Graph graph({kFeatures}, {{0, 0, setting.options, setting.edge_features}});
    EventStream stream(&graph);
    commit(stream.begin(60, 250), &graph, {});
    State state(graph, setting.make(), "", 0);
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
    const State state(graph, setting.make(), "", 0);
    for (const PropagateStep& step : state.program.propagations) {
      const bool counted = step.aggregate == Aggregate::kMax && step.message == kNoIndex;
      CHECK_EQ(step.counts != kNoIndex, counted);
      if (!counted) continue;
      CHECK_EQ(state.program.values[step.counts].width, state.program.values[step.output].width);
      CHECK_EQ(state.program.values[step.counts].slab, state.program.values[step.output].slab);
    }
  }
}

TEST(state_takes_what_the_one_of_an_equal_graph_keeps) {
  for (const Setting& setting : kSettings) {
    for (size_t keep_degree : {0, 5}) {
      if (keep_degree > 0 && !setting.make().messages.empty()) continue;
      auto program = [&] { return keep_degree > 0 ? keeping_aggregates(setting.make()) : setting.make(); };
      Graph graph({kFeatures}, {{0, 0, setting.options, setting.edge_features}});
      Graph equal({kFeatures}, {{0, 0, setting.options, setting.edge_features}});
      EventStream stream(&graph), same(&equal);
      commit(stream.begin(60, 250), &graph, {});
      commit(same.begin(60, 250), &equal, {});
      Engine engine(graph, program(), 1, "", keep_degree), source(equal, program(), 2, "", keep_degree);
      Engine taken(graph, program(), 1, "", keep_degree);
      for (Engine* each : {&engine, &source}) each->initialize();
      Preparation prepared[2];
      for (int batch = 0; batch < 10; ++batch) {
        const Delta delta = stream.next(10), of_equal = same.next(10);
        engine.prepare(delta, &prepared[0]);
        source.prepare(of_equal, &prepared[1]);
        commit(delta, &graph, {{&engine, &prepared[0]}});
        commit(of_equal, &equal, {{&source, &prepared[1]}});
      }
      CHECK(taken.take(&source));
      CHECK(Kept(&engine) == Kept(&taken));
      for (int batch = 0; batch < 10; ++batch) {
        const Delta delta = stream.next(10);
        engine.prepare(delta, &prepared[0]);
        taken.prepare(delta, &prepared[1]);
        commit(delta, &graph, {{&engine, &prepared[0]}, {&taken, &prepared[1]}});
        CHECK(Kept(&engine) == Kept(&taken));
        CHECK(same_bits({all_predictions(engine)}, {all_predictions(taken)}));
      }
    }
  }
}

TEST(state_takes_nothing_that_is_laid_out_differently) {
  for (const Setting& setting : kSettings) {
    Graph graph({kFeatures}, {{0, 0, setting.options, setting.edge_features}});
    Graph other({kFeatures}, {{0, 0, setting.options, setting.edge_features}});
    EventStream stream(&graph), longer(&other);
    commit(stream.begin(60, 250), &graph, {});
    commit(longer.begin(61, 250), &other, {});
    Engine engine(graph, setting.make(), 1), source(other, setting.make(), 1);
    for (Engine* each : {&engine, &source}) each->initialize();
    const Kept before(&engine);
    CHECK(!engine.take(&source));
    CHECK(Kept(&engine) == before);
  }
}

TEST(states_have_serials_of_their_own) {
  Graph graph({kFeatures}, {{0, 0, {}}});
  std::set<uint64_t> seen;
  for (int i = 0; i < 10; ++i) CHECK(seen.insert(State(graph, gcn(false, Random()), "", 0).serial).second);
}

}  // namespace livegnn::state_test
