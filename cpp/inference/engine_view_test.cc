#include "inference/engine_view.h"

#include <algorithm>
#include <limits>
#include <map>
#include <mutex>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

#include "inference/engine_model.h"
#include "testing/testing.h"
#include "views/commit.h"

namespace livegnn::engine_view_test {

using namespace testing;

namespace {

// An output of each node by its id.
std::map<int64_t, Floats> predictions(const Engine& engine, size_t output = 0) {
  const std::vector<uint32_t> nodes = nodes_in_use(engine);
  const auto width = static_cast<std::ptrdiff_t>(engine.output_width(output));
  Floats rows(nodes.size() * static_cast<size_t>(width));
  engine.predict(nodes, rows.data(), output);
  std::map<int64_t, Floats> all;
  for (size_t i = 0; i < nodes.size(); ++i) {
    const auto row = rows.begin() + static_cast<std::ptrdiff_t>(i) * width;
    all[engine.graph().nodes[0].ids.id_of(nodes[i])] = Floats(row, row + width);
  }
  return all;
}

}  // namespace

// As an engine of its own that is prepared and committed by hand; and it names the ids whose prediction is another.
TEST(engine_view_follows_its_graph) {
  Random random;
  for (const Setting& setting : kSettings) {
    Graph graph({kFeatures}, {{0, 0, setting.options, setting.edge_features}});
    EventStream stream(&graph);
    commit(stream.begin(60, 250), &graph, {});
    Engine engine(graph, setting.make(), 1), plain(graph, setting.make(), 1);
    for (Engine* each : {&engine, &plain}) each->initialize();
    EngineView view(engine);
    Preparation prepared;
    for (int batch = 0; batch < 20; ++batch) {
      const Delta delta = stream.next(3);
      const auto before = predictions(engine);
      plain.prepare(delta, &prepared);
      plain.reserve(delta, prepared);
      graph.prepare(delta);
      if (random.chance(0.3)) {  // comes to nothing at first
        view.prepare(Change(graph, delta));
        view.abandon();
        CHECK(predictions(engine) == before);
      }
      view.prepare(Change(graph, delta));
      {
        std::unique_lock lock(graph.lock);
        check_allocates_nothing([&] {
          graph.commit(delta);
          view.commit();
          plain.commit(delta, prepared);
        });
      }
      plain.release();
      view.settle();
      graph.settle();
      CHECK(Kept(&engine) == Kept(&plain));
      std::vector<int64_t> expected;
      for (const auto& [id, row] : predictions(engine)) {
        const auto old = before.find(id);
        if (old == before.end() || old->second != row) expected.push_back(id);
      }
      std::vector<int64_t> changed = view.take_changed_ids();
      std::sort(changed.begin(), changed.end());
      CHECK(std::includes(changed.begin(), changed.end(), expected.begin(), expected.end()));
    }
  }
}

// It names the nodes whose rows of any output have changed: of sums along edges, and of rows that are made of them.
TEST(engine_view_names_the_changed_rows_of_the_outputs_that_are_watched) {
  Random random;
  for (const Setting& setting : kSettings) {
    Graph graph({kFeatures}, {{0, 0, setting.options, setting.edge_features}});
    EventStream stream(&graph);
    commit(stream.begin(60, 250), &graph, {});
    Program program = setting.make();
    for (const PropagateStep& step : program.propagations) program.others.push_back({true, step.output});
    for (const RowsStep& step : program.rows) {
      for (const Sink& sink : step.sinks) program.others.push_back({true, sink.value});
    }
    for (uint32_t i = 0; i < program.on_demand.size(); ++i) program.others.push_back({false, i});
    Engine engine(graph, std::move(program), 1);
    engine.initialize();
    EngineView view(engine);
    std::vector<size_t> outputs(1 + engine.program().others.size());
    std::iota(outputs.begin(), outputs.end(), size_t{0});
    view.watch(outputs);
    size_t fewer = 0;  // a batch may reach all nodes
    for (int batch = 0; batch < 10; ++batch) {
      std::vector<std::map<int64_t, Floats>> before;
      for (size_t output : outputs) before.push_back(predictions(engine, output));
      const Delta delta = stream.next(3);
      View* const views[] = {&view};
      graph.prepare(delta);
      view.prepare(Change(graph, delta));
      commit(&graph, delta, views);
      for (size_t output : outputs) {
        std::set<int64_t> named;
        for (uint32_t node : view.changed_rows(output)) named.insert(graph.nodes[0].ids.id_of(node));
        for (const auto& [id, row] : predictions(engine, output)) {
          const auto old = before[output].find(id);
          if (old == before[output].end() || old->second != row) CHECK(named.contains(id));
        }
        fewer += named.size() < before[output].size() ? 1 : 0;
      }
    }
    CHECK(fewer > 0);
  }
}

// A batch that would make a value other than finite is refused by a view that guards, unless it is trusted.
TEST(engine_view_refuses_what_is_not_finite) {
  Graph graph({kFeatures}, {{0, 0, {}}});
  EventStream stream(&graph);
  commit(stream.begin(30, 100), &graph, {});
  Engine engine(graph, gcn(false, Random()), 1);
  engine.initialize();
  engine.set_guard(true);
  EngineView view(engine);
  Stage stage(graph);
  const int64_t id = graph.nodes[0].ids.id_of(4);
  const Floats x(kFeatures, std::numeric_limits<float>::max());
  stage.set_features(0, &id, x.data(), kFeatures, 1);
  const Delta delta = stage.finish();
  const Kept before(&engine);
  graph.prepare(delta);
  bool refused = false;
  try {
    view.prepare(Change(graph, delta));
  } catch (const NotFinite& error) {
    refused = error.node_type == 0 && engine.graph().nodes[0].ids.in_use(error.node);
  }
  CHECK(refused);
  view.abandon();
  CHECK(Kept(&engine) == before);
  CHECK(engine.guarded());
  view.expect(false, true);
  view.prepare(Change(graph, delta));
  CHECK(engine.guarded());
  View* const views[] = {&view};
  commit(&graph, delta, views);
  CHECK(!(Kept(&engine) == before));
}

}  // namespace livegnn::engine_view_test
