// What queries of a lazy engine compute, and whoever asks them.
#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>
#include <shared_mutex>
#include <thread>
#include <vector>

#include "inference/lazy/lazy_model.h"
#include "inference/rounding/error_bounds.h"
#include "testing/allocations.h"
#include "testing/testing.h"

namespace livegnn::lazy_query_test {

using testing::fail_each_allocation;
using testing::Random;
using namespace testing::lazy;

TEST(lazy_engine_gives_the_same_bits_whoever_asks_and_on_any_number_of_threads) {
  Random random;
  for (const Setting& setting : kSettings) {
    Graph graph({kFeatures}, {{0, 0, setting.options}});
    Stream stream(&graph, false);
    apply(stream.begin(1500, 9000), &graph, {});
    Engine one(graph, setting.make(), 1), three(graph, setting.make(), 3);
    EngineView first(one), second(three);
    for (Engine* engine : {&one, &three}) {
      engine->initialize();
      CHECK(engine->be_lazy(setting.eager));
    }
    for (int batch = 0; batch < 6; ++batch) {
      apply(stream.next(batch % 2 == 0 ? 300 : 10), &graph, {&first, &second});
      const std::vector<uint32_t> all = nodes_of(graph);
      ask(one, {all[random.below(all.size())], all[random.below(all.size())]});
      if (batch % 2 == 1) CHECK(same_bits(ask(one, all), ask(three, all)));
    }
    one.settle();
    three.settle();
    for (uint32_t v = 0; v < one.program().values.size(); ++v) {
      for (uint32_t node : nodes_of(graph)) {
        CHECK(std::memcmp(one.rows(v).row(node), three.rows(v).row(node), one.rows(v).width * sizeof(float)) == 0);
      }
    }
    for (size_t p = 0; p < one.program().propagations.size(); ++p)
      CHECK(saved_errors(one.state().rows, one.state().rounding, p) ==
            saved_errors(three.state().rows, three.state().rounding, p));
    // What rounding may have done is known of rows to which differences were added.
    const Floats errors = saved_errors(one.state().rows, one.state().rounding, 0);
    CHECK(std::any_of(errors.begin(), errors.end(), [](float error) { return error > 0; }));
  }
}

TEST(lazy_engine_computes_only_what_is_asked_for) {
  Graph graph({kFeatures}, {{0, 0, {}}});
  {
    // A line: node i is read by node i + 1.
    Stage stage(graph);
    Random random;
    for (int64_t id = 0; id < 20; ++id) stage.add_nodes(0, &id, random.floats(kFeatures).data(), kFeatures, 1);
    for (int64_t id = 0; id < 19; ++id) {
      const int64_t next = id + 1;
      stage.add_edges(0, &id, &next, nullptr, nullptr, nullptr, 0, 1);
    }
    apply(stage.finish(), &graph, {});
  }
  Engine engine(graph, three_layers(false, Aggregate::kSum, Random()), 1);
  engine.initialize();
  CHECK(engine.be_lazy(1));
  EngineView view(engine);
  Stage stage(graph);
  const int64_t id = 5;
  stage.set_features(0, &id, Floats(kFeatures, 2.0f).data(), kFeatures, 1);
  apply(stage.finish(), &graph, {&view});
  std::vector<uint32_t> changed = view.prepared().changed;
  std::sort(changed.begin(), changed.end());
  CHECK(changed == (std::vector<uint32_t>{5, 6, 7, 8}));  // its own row, and three hops along edges
  CHECK_EQ(engine.pending(), 4u);
  CHECK_EQ(engine.work().rows, 0u);
  ask(engine, {0, 1, 2, 3, 4, 9, 10, 19});
  CHECK_EQ(engine.work().rows, 0u);
  CHECK_EQ(engine.work().edges, 0u);
  ask(engine, {5});
  CHECK_EQ(engine.pending(), 3u);
  const LazyWork after = engine.work();
  CHECK(after.rows > 0);
  ask(engine, {5});
  CHECK_EQ(engine.work().rows, after.rows);
  ask(engine, {5, 6, 7, 8});
  CHECK_EQ(engine.pending(), 0u);
}

TEST(lazy_engine_is_asked_while_batches_are_applied) {
  Graph graph({kFeatures}, {{0, 0, {{true, false}, false, false}}});
  Stream stream(&graph, true);
  apply(stream.begin(300, 1500), &graph, {});
  Engine engine(graph, three_layers(true, Aggregate::kSum, Random()), 2);
  engine.initialize();
  CHECK(engine.be_lazy(1));
  EngineView view(engine);
  std::atomic<bool> stop{false};
  std::vector<std::thread> askers;
  for (uint32_t t = 0; t < 3; ++t) {
    askers.emplace_back([&, t] {
      Floats out(4 * engine.output_width());
      for (uint32_t i = t; !stop.load(); i += 7) {
        std::shared_lock lock(graph.lock);
        std::vector<uint32_t> nodes;
        for (uint32_t k = 0; k < 4; ++k) {
          const uint32_t node = (i * 31 + k * 17) % static_cast<uint32_t>(graph.nodes[0].ids.capacity());
          if (graph.nodes[0].ids.in_use(node)) nodes.push_back(node);
        }
        engine.predict(nodes, out.data());
      }
    });
  }
  for (int batch = 0; batch < 150; ++batch) {
    apply(stream.next(8), &graph, {&view});
    if (batch % 40 == 39) engine.settle();
  }
  stop.store(true);
  for (std::thread& asker : askers) asker.join();
  Engine fresh(graph, three_layers(true, Aggregate::kSum, Random()), 1);
  fresh.initialize();
  check_near(ask(engine, nodes_of(graph)), ask(fresh, nodes_of(graph)));
}

}  // namespace livegnn::lazy_query_test
