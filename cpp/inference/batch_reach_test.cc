// What a batch may reach, beside what it changes.
#include "inference/batch_reach.h"

#include <vector>

#include "inference/engine_model.h"
#include "testing/testing.h"

namespace livegnn::batch_reach_test {

using namespace testing;

TEST(a_batch_changes_no_more_than_it_may_reach) {
  for (const Setting& setting : kSettings) {
    Graph graph({kFeatures}, {{0, 0, setting.options, setting.edge_features}});
    EventStream stream(&graph);
    commit(stream.begin(60, 250), &graph, {});
    Engine engine(graph, setting.make(), 1);
    engine.initialize();
    Preparation prepared;
    for (int batch = 0; batch < 20; ++batch) {
      const Delta delta = stream.next(static_cast<size_t>(batch));
      const BatchReach reach = reach_of(graph, engine.program(), delta);
      engine.prepare(delta, &prepared);
      size_t rows = 0;
      for (uint32_t value = 0; value < engine.program().values.size(); ++value) {
        if (!engine.program().values[value].features) rows += prepared.batch.of(value).size();
      }
      CHECK(prepared.changed.size() <= reach.predictions);
      CHECK(rows <= reach.rows);
      commit(delta, &graph, {{&engine, &prepared}});
    }
  }
}

TEST(an_empty_batch_reaches_nothing) {
  Graph graph({kFeatures}, {{0, 0, kSettings[0].options, 0}});
  EventStream stream(&graph);
  commit(stream.begin(20, 60), &graph, {});
  Engine engine(graph, kSettings[0].make(), 1);
  Stage stage(graph);
  const BatchReach reach = reach_of(graph, engine.program(), stage.finish());
  CHECK_EQ(reach.predictions + reach.rows + reach.edges, size_t{0});
}

TEST(new_features_of_one_node_reach_its_targets_in_as_many_steps_as_there_are) {
  Graph graph({kFeatures}, {{0, 0, kSettings[0].options, 0}});
  const std::vector<float> row(kFeatures, 1.0f);
  {
    Stage stage(graph);
    for (int64_t id = 0; id < 10; ++id) stage.add_nodes(0, &id, row.data(), kFeatures, 1);
    for (int64_t id = 0; id + 1 < 10; ++id) {
      const int64_t next = id + 1;
      const float weight = 1;
      const double time = 0;
      stage.add_edges(0, &id, &next, &weight, &time, nullptr, 0, 1);
    }
    commit(stage.finish(), &graph, {});
  }
  Engine engine(graph, kSettings[0].make(), 1);
  const int64_t id = 3;
  Stage stage(graph);
  const std::vector<float> other(kFeatures, 2.0f);
  stage.set_features(0, &id, other.data(), kFeatures, 1);
  const size_t depth = engine.program().propagations.size();
  CHECK_EQ(reach_of(graph, engine.program(), stage.finish()).predictions, depth + 1);
}

}  // namespace livegnn::batch_reach_test
