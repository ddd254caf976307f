#include "inference/engine.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <vector>

#include "inference/engine_model.h"
#include "testing/allocations.h"
#include "testing/testing.h"

namespace livegnn::engine_test {

using namespace testing;

TEST(engine_prepares_without_changing_anything) {
  for (const Setting& setting : kSettings) {
    Graph graph({kFeatures}, {{0, 0, setting.options, setting.edge_features}});
    EventStream stream(&graph);
    commit(stream.begin(50, 200), &graph, {});
    Engine engine(graph, setting.make(), 1), plain(graph, setting.make(), 1);
    engine.initialize();
    plain.initialize();
    Preparation asked, prepared;
    for (int batch = 0; batch < 20; ++batch) {
      const Delta delta = stream.next(8);
      const Kept before(&engine);
      // "What if", then nothing at all, then in earnest: what the batch reaches is the same.
      engine.prepare(delta, &asked);
      CHECK(Kept(&engine) == before);
      const size_t affected = asked.affected, touched = asked.edges_touched;
      engine.prepare(Stage(graph).finish(), &asked);
      CHECK_EQ(asked.affected, 0u);
      CHECK_EQ(asked.edges_touched, 0u);
      engine.prepare(delta, &prepared);
      CHECK_EQ(prepared.affected, affected);
      CHECK_EQ(prepared.edges_touched, touched);
      CHECK(Kept(&engine) == before);
      Preparation plainly;
      plain.prepare(delta, &plainly);
      commit(delta, &graph, {{&engine, &prepared}, {&plain, &plainly}});
      CHECK(Kept(&engine) == Kept(&plain));
    }
  }
}

TEST(engine_names_the_rows_that_change) {
  for (const Setting& setting : kSettings) {
    Graph graph({kFeatures}, {{0, 0, setting.options, setting.edge_features}});
    EventStream stream(&graph);
    commit(stream.begin(50, 120), &graph, {});
    Engine engine(graph, setting.make(), 1);
    engine.initialize();
    Preparation prepared;
    for (int batch = 0; batch < 20; ++batch) {
      const Rows out = engine.rows(engine.program().output);
      std::vector<Floats> before;
      for (uint32_t i = 0; i < out.count; ++i) before.emplace_back(out.row(i), out.row(i) + kClasses);
      const Delta delta = stream.next(2);
      engine.prepare(delta, &prepared);
      commit(delta, &graph, {{&engine, &prepared}});
      const Rows now = engine.rows(engine.program().output);
      const Changes& changes = prepared.batch.of(engine.program().output);
      std::map<uint32_t, size_t> changed;
      for (size_t i = 0; i < changes.size(); ++i) CHECK(changed.emplace(changes.nodes()[i], i).second);
      CHECK(changed.size() <= prepared.affected);
      for (uint32_t i = 0; i < now.count; ++i) {
        if (!graph.nodes[0].ids.in_use(i)) {
          CHECK(!changed.contains(i));
          CHECK(std::all_of(now.row(i), now.row(i) + kClasses, [](float value) { return value == 0; }));
        } else if (changed.contains(i)) {
          CHECK(std::memcmp(changes.row(changed[i]), now.row(i), kClasses * sizeof(float)) == 0);
        } else {
          CHECK(i < before.size() && std::memcmp(before[i].data(), now.row(i), kClasses * sizeof(float)) == 0);
        }
      }
    }
  }
}

TEST(engine_gives_the_same_bits_on_any_number_of_threads) {
  for (const Setting& setting : kSettings) {
    Graph graph({kFeatures}, {{0, 0, setting.options, setting.edge_features}});
    EventStream stream(&graph);
    commit(stream.begin(1500, 9000), &graph, {});
    Engine one(graph, setting.make(), 1), three(graph, setting.make(), 3);
    one.initialize();
    three.initialize();
    CHECK(Kept(&one) == Kept(&three));
    Preparation by_one, by_three;
    for (size_t batch = 0; batch < testing::draws(2, 6); ++batch) {
      // Large enough that waking the others is worth it.
      const Delta delta = stream.next(batch % 2 == 0 ? 400 : 20);
      one.prepare(delta, &by_one);
      three.prepare(delta, &by_three);
      CHECK_EQ(by_one.affected, by_three.affected);
      CHECK_EQ(by_one.recomputed, by_three.recomputed);
      commit(delta, &graph, {{&one, &by_one}, {&three, &by_three}});
      CHECK(Kept(&one) == Kept(&three));
    }
  }
}

// After whichever failure the engine keeps what it kept, and the batch that is tried again does what it does elsewhere.
TEST(engine_is_as_it_was_after_any_allocation_that_fails) {
  for (const Setting& setting : kSettings) {
    for (size_t keep_degree : {0, 5}) {
      if (keep_degree > 0 && !setting.make().messages.empty()) continue;
      auto program = [&] { return keep_degree > 0 ? keeping_aggregates(setting.make()) : setting.make(); };
      Graph graph({kFeatures}, {{0, 0, setting.options, setting.edge_features}});
      EventStream stream(&graph);
      commit(stream.begin(60, 250), &graph, {});
      Engine engine(graph, program(), 2, "", keep_degree), untroubled(graph, program(), 2, "", keep_degree);
      for (Engine* each : {&engine, &untroubled}) each->initialize();
      Preparation prepared, expected;
      size_t failures = 0;
      for (size_t batch = 0; batch < testing::draws(3, 6); ++batch) {
        const Delta delta = stream.next(batch % 3 == 2 ? 150 : 10);
        const Kept before(&engine);
        failures += fail_each_allocation(
            [&] {
              graph.abandon();
              engine.release();
              graph.prepare(delta);
              engine.prepare(delta, &prepared);
              engine.reserve(delta, prepared);
            },
            [&] { CHECK(Kept(&engine) == before); });
        graph.abandon();
        engine.release();
        CHECK(Kept(&engine) == before);
        engine.prepare(delta, &prepared);
        untroubled.prepare(delta, &expected);
        commit(delta, &graph, {{&engine, &prepared}, {&untroubled, &expected}});
        CHECK(Kept(&engine) == Kept(&untroubled));
      }
      CHECK(failures > 50);
    }
  }
}

}  // namespace livegnn::engine_test
