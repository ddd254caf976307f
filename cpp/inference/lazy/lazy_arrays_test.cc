// What a lazy engine has recorded since its base, as arrays and back.
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "inference/lazy/lazy_model.h"
#include "testing/testing.h"
#include "views/arrays.h"

namespace livegnn::lazy_arrays_test {

using testing::Random;
using namespace testing::lazy;

namespace {

ArrayViews views_of(Arrays* arrays) {
  ArrayViews views;
  for (SavedArray& array : arrays->all()) {
    std::visit(
        [&]<class T>(const std::vector<T>& values) { views.put(array.name, std::span<const T>(values), array.width); },
        array.values);
  }
  return views;
}

// The first array of numbers that is not empty; rows and weights beside it are floats.
std::vector<uint32_t>* find_numbers(Arrays* arrays, const std::string& begin, std::string* name) {
  for (SavedArray& array : arrays->all()) {
    auto* const numbers = std::get_if<std::vector<uint32_t>>(&array.values);
    if (numbers == nullptr || numbers->empty() || array.name.compare(0, begin.size(), begin) != 0) continue;
    *name = array.name;
    return numbers;
  }
  return nullptr;
}

}  // namespace

TEST(lazy_engine_goes_on_from_what_was_saved) {
  Random random;
  for (const Setting& setting : kSettings) {
    Graph graph({kFeatures}, {{0, 0, setting.options}});
    Stream stream(&graph, true);
    apply(stream.begin(60, 240), &graph, {});
    Engine engine(graph, setting.make(), 1), restored(graph, setting.make(), 1), eager(graph, setting.make(), 1);
    engine.initialize();
    CHECK(engine.be_lazy(setting.eager));
    CHECK(restored.be_lazy(setting.eager));
    EngineView view(engine);
    size_t pending = 0;
    for (int batch = 0; batch < 20; ++batch) {
      apply(stream.next(1 + random.below(10)), &graph, {&view});
      const std::vector<uint32_t> all = nodes_of(graph);
      if (random.chance(0.3)) ask(engine, {all[random.below(all.size())]});
      Arrays arrays;
      engine.save(&arrays);
      restored.load(views_of(&arrays));
      eager.load(views_of(&arrays));  // an engine of another mode works the record off
      pending += restored.pending();
      Arrays again;
      restored.save(&again);
      CHECK_EQ(again.all().size(), arrays.all().size());
      for (size_t i = 0; i < again.all().size(); ++i) CHECK(again.all()[i].values == arrays.all()[i].values);
      const Floats expected = ask(engine, all);
      CHECK(same_bits(ask(restored, all), expected));
      CHECK(same_bits(ask(eager, all), expected));
    }
    CHECK(pending > 0);
  }
}

TEST(lazy_arrays_that_do_not_fit_are_refused_and_leave_no_record) {
  Random random;
  const Setting& setting = kSettings[0];
  Graph graph({kFeatures}, {{0, 0, setting.options}});
  Stream stream(&graph, true);
  apply(stream.begin(60, 240), &graph, {});
  Engine engine(graph, setting.make(), 1), restored(graph, setting.make(), 1);
  engine.initialize();
  CHECK(engine.be_lazy(setting.eager));
  CHECK(restored.be_lazy(setting.eager));
  EngineView view(engine);
  while (engine.pending() == 0 || engine.record_bytes() == 0) apply(stream.next(5), &graph, {&view});
  const auto refused = [&](const std::string& begin, auto spoil) {
    Arrays arrays;
    engine.save(&arrays);
    std::string name;
    std::vector<uint32_t>* const numbers = find_numbers(&arrays, begin, &name);
    CHECK(numbers != nullptr);
    spoil(numbers);
    bool said = false;
    try {
      restored.load(views_of(&arrays));
    } catch (const std::runtime_error& error) {
      said = std::string(error.what()).find(name) != std::string::npos;
    }
    CHECK(said);
    CHECK_EQ(restored.pending(), 0u);
  };
  using Numbers = std::vector<uint32_t>;
  refused("lazy/covered/", [](Numbers* nodes) { nodes->back() = 1u << 30; });
  refused("lazy/covered/", [](Numbers* nodes) { nodes->push_back(nodes->back()); });
  refused("lazy/edges/", [](Numbers* numbers) { numbers->at(0) = 1u << 30; });
  refused("lazy/edges/", [](Numbers* numbers) { numbers->at(3) = 7; });
  refused("lazy/edges/", [](Numbers* numbers) { numbers->at(3) ^= 2; });  // whether the edge is there
}

}  // namespace livegnn::lazy_arrays_test
