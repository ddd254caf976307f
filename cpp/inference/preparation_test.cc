// What the preparation of a batch takes, and what it gives back of it.
#include "inference/preparation.h"

#include <algorithm>

#include "inference/engine_model.h"
#include "memory/recent_needs.h"
#include "testing/testing.h"

namespace livegnn::preparation_test {

using namespace testing;

// A batch that stands alone leaves what small ones need.
TEST(engine_gives_back_what_a_large_batch_needed) {
  for (size_t place = 0; place < std::size(kSettings); place += testing::draws(3, 1)) {
    const Setting& setting = kSettings[place];
    Graph graph({kFeatures}, {{0, 0, setting.options, setting.edge_features}});
    EventStream stream(&graph);
    commit(stream.begin(3000, 9000), &graph, {});
    Engine engine(graph, setting.make(), 1);
    engine.initialize();
    Preparation prepared;
    auto apply = [&](size_t events) {
      const Delta delta = stream.next(events);
      engine.prepare(delta, &prepared);
      commit(delta, &graph, {{&engine, &prepared}});
      prepared.settle();
      return engine.batch_bytes() + prepared.held();
    };
    size_t small = 0;  // what small batches need, some of which reach a hub
    for (size_t i = 0; i < RecentNeeds::kLate; ++i) small = std::max(small, apply(5));
    CHECK(apply(9000) > 0);
    for (size_t i = 0; i < RecentNeeds::kLate; ++i) apply(5);
    CHECK(apply(5) <= 2 * small + (size_t{1} << 20));
  }
}

}  // namespace livegnn::preparation_test
