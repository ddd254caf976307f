// What an engine keeps, as arrays and back.
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "inference/engine_model.h"
#include "testing/testing.h"
#include "views/arrays.h"

namespace livegnn::state_arrays_test {

using namespace testing;

namespace {

ArrayViews views_of(Arrays* arrays, const std::string& left_out = {}) {
  ArrayViews views;
  for (SavedArray& array : arrays->all()) {
    if (array.name == left_out) continue;
    std::visit(
        [&]<class T>(const std::vector<T>& values) { views.put(array.name, std::span<const T>(values), array.width); },
        array.values);
  }
  return views;
}

}  // namespace

TEST(engine_goes_on_from_what_was_saved) {
  for (const Setting& setting : kSettings) {
    for (size_t keep_degree : {0, 5}) {
      if (keep_degree > 0 && !setting.make().messages.empty()) continue;
      auto program = [&] { return keep_degree > 0 ? keeping_aggregates(setting.make()) : setting.make(); };
      Graph graph({kFeatures}, {{0, 0, setting.options, setting.edge_features}});
      EventStream stream(&graph);
      commit(stream.begin(60, 250), &graph, {});
      Engine engine(graph, program(), 1, "", keep_degree), restored(graph, program(), 1, "", keep_degree);
      engine.initialize();
      Preparation prepared[2];
      for (int batch = 0; batch < 10; ++batch) {
        const Delta delta = stream.next(10);
        engine.prepare(delta, &prepared[0]);
        commit(delta, &graph, {{&engine, &prepared[0]}});
      }
      Arrays arrays;
      engine.save(&arrays);
      restored.load(views_of(&arrays));
      restored.load_moments(engine.moments());
      CHECK(Kept(&engine) == Kept(&restored));
      for (int batch = 0; batch < 10; ++batch) {
        const Delta delta = stream.next(10);
        engine.prepare(delta, &prepared[0]);
        restored.prepare(delta, &prepared[1]);
        commit(delta, &graph, {{&engine, &prepared[0]}, {&restored, &prepared[1]}});
        CHECK(Kept(&engine) == Kept(&restored));
        CHECK(same_bits({all_predictions(engine)}, {all_predictions(restored)}));
      }
    }
  }
}

TEST(engine_refuses_arrays_that_do_not_fit) {
  for (const Setting& setting : kSettings) {
    Graph graph({kFeatures}, {{0, 0, setting.options, setting.edge_features}});
    EventStream stream(&graph);
    commit(stream.begin(60, 250), &graph, {});
    Engine engine(graph, setting.make(), 1), other(graph, setting.make(), 1);
    engine.initialize();
    Arrays arrays;
    engine.save(&arrays);
    const size_t count = arrays.all().size();
    for (size_t i = 0; i < count; ++i) {
      const std::string name = arrays.all()[i].name;
      CHECK_THROWS(other.load(views_of(&arrays, name)), std::runtime_error, name);
      const auto values = arrays.all()[i].values;
      const size_t width = arrays.all()[i].width;
      const bool empty = std::visit(
          [&](auto& all) {
            const bool none = all.empty();
            all.resize(all.size() - (none ? 0 : std::max<size_t>(width, 1)));
            return none;
          },
          arrays.all()[i].values);
      bool refused = false;
      try {
        other.load(views_of(&arrays));
      } catch (const std::runtime_error&) {
        refused = true;
      }
      CHECK(refused || empty);
      arrays.all()[i].values = values;
    }
    other.load(views_of(&arrays));
    CHECK(Kept(&engine) == Kept(&other));
  }
}

TEST(engine_refuses_rows_of_another_shape) {
  Graph graph({kFeatures}, {{0, 0, {{true, false}, false, false}}});
  EventStream stream(&graph);
  commit(stream.begin(40, 200), &graph, {});
  Engine engine(graph, gcn(true, Random()), 1);
  engine.initialize();
  const Kept before(&engine);
  const size_t capacity = graph.nodes[0].ids.capacity();
  for (uint32_t v = 0; v < engine.program().values.size(); ++v) {
    const size_t width = engine.program().values[v].width;
    const Floats flat((capacity + 1) * (width + 1));
    CHECK(!engine.load_rows(v, flat.data(), capacity - 1, width));
    CHECK(!engine.load_rows(v, flat.data(), capacity, width + 1));
  }
  for (size_t p = 0; p < engine.program().propagations.size(); ++p) {
    RoundingScale scale;
    scale.begin(engine.state().rounding.scales[p].scales.size());
    CHECK(!scale.load(Floats(scale.saved().size() + 1, 1.0f)));
    CHECK(!scale.load(Floats(scale.saved().size(), -1.0f)));
  }
  CHECK(Kept(&engine) == before);
}

}  // namespace livegnn::state_arrays_test
