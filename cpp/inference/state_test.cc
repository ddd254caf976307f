// What an engine takes over from another.
#include "inference/state.h"

#include "inference/engine_model.h"
#include "testing/testing.h"

namespace livegnn::state_test {

using namespace testing;

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

}  // namespace livegnn::state_test
