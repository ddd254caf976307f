// The first computation beside batches from wherever they began.
#include <vector>

#include "inference/engine_model.h"
#include "testing/testing.h"

namespace livegnn::row_propagation_test {

using namespace testing;

TEST(initializing_gives_what_batches_give) {
  Random random;
  for (const Setting& setting : kSettings) {
    for (bool from_nothing : {true, false}) {
      Graph graph({kFeatures}, {{0, 0, setting.options, setting.edge_features}});
      EventStream stream(&graph);
      Engine engine(graph, setting.make(), 1);
      Preparation prepared;
      if (!from_nothing) commit(stream.begin(60, 250), &graph, {});
      engine.initialize();
      for (int batch = 0; batch < 30; ++batch) {
        const Delta delta = from_nothing && batch == 0 ? stream.begin(60, 250)
                                                       : stream.next(batch % 10 == 9 ? 150 : 1 + random.below(12));
        engine.prepare(delta, &prepared);
        commit(delta, &graph, {{&engine, &prepared}});
        Engine fresh(graph, setting.make(), 1);
        fresh.initialize();
        check_near(tables(engine, true), tables(fresh, true));
      }
    }
  }
}

}  // namespace livegnn::row_propagation_test
