// A lazy engine beside an eager one and a fresh one, on random streams.
#include "inference/lazy/lazy.h"

#include <algorithm>
#include <array>
#include <vector>

#include "inference/lazy/lazy_model.h"
#include "testing/allocations.h"
#include "testing/testing.h"

namespace livegnn::lazy_test {

using testing::fail_each_allocation;
using testing::Random;
using namespace testing::lazy;

TEST(lazy_engine_answers_as_a_fresh_one) {
  Random random;
  for (const Setting& setting : kSettings) {
    Graph graph({kFeatures}, {{0, 0, setting.options}});
    Stream stream(&graph, true);
    apply(stream.begin(60, 240), &graph, {});
    Engine lazy(graph, setting.make(), 1), eager(graph, setting.make(), 1);
    lazy.initialize();
    eager.initialize();
    CHECK(lazy.be_lazy(setting.eager));
    EngineView lazy_view(lazy), eager_view(eager);
    for (int batch = 0; batch < 60; ++batch) {
      apply(stream.next(1 + random.below(10)), &graph, {&lazy_view, &eager_view});
      std::vector<uint32_t> some = nodes_of(graph);
      if (!random.chance(0.3)) some = {some[random.below(some.size())], some[random.below(some.size())]};
      const Floats got = ask(lazy, some);
      Engine fresh(graph, setting.make(), 1);
      fresh.initialize();
      check_near(got, ask(fresh, some));
      check_near(got, ask(eager, some));
    }
    // Settled, every value is what initializing gives.
    lazy.settle();
    CHECK_EQ(lazy.pending(), 0u);
    Engine fresh(graph, setting.make(), 1);
    fresh.initialize();
    for (uint32_t v = 0; v < lazy.program().values.size(); ++v) {
      Floats got, expected;
      for (uint32_t node : nodes_of(graph)) {
        got.insert(got.end(), lazy.rows(v).row(node), lazy.rows(v).row(node) + lazy.rows(v).width);
        expected.insert(expected.end(), fresh.rows(v).row(node), fresh.rows(v).row(node) + fresh.rows(v).width);
      }
      check_near(got, expected);
    }
  }
}

// Batches and queries whose allocations fail leave no trace, and a commit needs none.
TEST(lazy_engine_is_as_it_was_after_any_allocation_that_fails) {
  Random random;
  for (const Setting& setting : kSettings) {
    Graph graph({kFeatures}, {{0, 0, setting.options}});
    Stream stream(&graph, true);
    apply(stream.begin(60, 240), &graph, {});
    Engine lazy(graph, setting.make(), 2), untroubled(graph, setting.make(), 2);
    for (Engine* each : {&lazy, &untroubled}) {
      each->initialize();
      CHECK(each->be_lazy(setting.eager));
    }
    EngineView view(lazy), other(untroubled);
    size_t failures = 0;
    for (int batch = 0; batch < 12; ++batch) {
      const Delta delta = stream.next(1 + random.below(20));
      failures += fail_each_allocation([&] { prepare(delta, &graph, {&view}); }, [] {});
      graph.abandon();
      view.abandon();
      const std::vector<uint32_t> all = nodes_of(graph);
      if (batch % 2 == 0) CHECK(same_bits(ask(lazy, all), ask(untroubled, all)));
      prepare(delta, &graph, {&view, &other});
      {
        std::unique_lock lock(graph.lock);
        graph.commit(delta);
        const size_t made = testing::allocations;
        for (EngineView* each : {&view, &other}) each->commit();
        CHECK_EQ(testing::allocations - made, 0u);
      }
      for (EngineView* each : {&view, &other}) each->settle();
      graph.settle();
      const std::vector<uint32_t> nodes = nodes_of(graph);
      if (batch % 3 == 0) continue;
      Floats got;
      failures += fail_each_allocation([&] { got = ask(lazy, nodes); }, [] {});
      CHECK(same_bits(got, ask(untroubled, nodes)));
    }
    CHECK(failures > 50);
  }
}

TEST(lazy_engine_forgets_edges_that_are_again_as_they_were) {
  EdgeRecord record;
  auto merge = [&](std::span<const DirectedChange> changes) {
    record.prepare(changes);
    record.merge();
  };
  const auto change = [](uint32_t source, float old_weight, float new_weight) {
    return DirectedChange{source, 7, old_weight, new_weight, old_weight > 0, new_weight > 0, 0, nullptr, nullptr};
  };
  const DirectedChange added = change(3, 0, 2), heavier = change(3, 2, 5), gone = change(3, 5, 0);
  merge({&added, 1});
  merge({&heavier, 1});
  CHECK_EQ(record.of(7).size(), 1u);
  CHECK_EQ(record.of(7)[0].new_weight, 5.0f);
  CHECK(!record.of(7)[0].had);
  merge({&gone, 1});
  CHECK_EQ(record.of(7).size(), 0u);
  CHECK_EQ(record.size(), 0u);
  const DirectedChange lost[] = {change(2, 1, 0), change(4, 1, 0)};
  merge(lost);
  const DirectedChange back = change(4, 0, 1);
  merge({&back, 1});
  CHECK_EQ(record.size(), 1u);
  CHECK_EQ(record.of(7)[0].source, 2u);
}

TEST(lazy_engine_says_when_it_is_outgrown) {
  Graph graph({kFeatures}, {{0, 0, {}}});
  Stream stream(&graph, false);
  apply(stream.begin(400, 1600), &graph, {});
  Engine engine(graph, three_layers(false, Aggregate::kSum, Random()), 1);
  engine.initialize();
  CHECK(engine.be_lazy(1));
  EngineView view(engine);
  size_t batches = 0;
  Delta next = stream.next(100);
  for (; !engine.outgrown_by(next); next = stream.next(100), ++batches) apply(next, &graph, {&view});
  CHECK(batches > 10 && batches < 40);
  const size_t bytes = engine.record_bytes();
  engine.settle();
  CHECK(engine.record_bytes() < bytes);
  apply(next, &graph, {&view});  // the nodes that it adds may be in the next one
  CHECK(!engine.outgrown_by(stream.next(1)));
}

}  // namespace livegnn::lazy_test
