#include "store/feature_times.h"

#include <array>
#include <map>
#include <stdexcept>
#include <utility>

#include "store/graph.h"
#include "store/stage.h"
#include "testing/testing.h"

namespace livegnn::feature_times_test {

using namespace testing;

namespace {

constexpr std::array<uint32_t, 1> kTimed{0};

Graph make_graph() { return {{1, 1}, {}, 1, "", kTimed}; }

void apply(Graph* graph, const Delta& delta) {
  graph->prepare(delta);
  graph->commit(delta);
  graph->settle();
}

}  // namespace

TEST(feature_times_decide_which_features_stay) {
  Random random;
  Graph graph = make_graph();
  std::map<int64_t, std::pair<double, float>> expected;
  for (int batch = 0; batch < 400; ++batch) {
    Stage stage(graph);
    size_t late = 0;
    for (uint64_t i = random.below(6); i > 0; --i) {
      const int64_t id = static_cast<int64_t>(random.below(8));
      const bool known = expected.contains(id);
      const auto x = static_cast<float>(random.below(100));
      const double time = static_cast<double>(random.below(9)) - 4;
      const bool has_time = random.below(4) > 0;
      if (known && random.below(5) == 0) {
        stage.remove_nodes(0, &id, 1);
        expected.erase(id);
        continue;
      }
      if (random.below(6) == 0) {
        stage.add_nodes(0, &id, nullptr, 0, 1);
        expected.try_emplace(id, FeatureTimes::kNever, 0.0f);
        continue;
      }
      if (!known || random.below(3) == 0) {
        stage.add_nodes(0, &id, &x, 1, 1, has_time ? &time : nullptr);
      } else {
        stage.set_features(0, &id, &x, 1, 1, has_time ? &time : nullptr);
      }
      auto [at, is_new] = expected.try_emplace(id, FeatureTimes::kNever, 0.0f);
      const double given = has_time ? time : 0;
      if (given < at->second.first) {
        ++late;
      } else {
        at->second = {given, x};
      }
    }
    const Delta delta = stage.finish();
    CHECK_EQ(delta.late_features, late);
    CHECK_EQ(delta.nodes[0].times.size(), delta.nodes[0].featured.size());
    apply(&graph, delta);
    const Graph::NodeType& type = graph.nodes[0];
    CHECK_EQ(type.ids.size(), expected.size());
    for (const auto& [id, value] : expected) {
      const uint32_t index = type.ids.index_of(id);
      CHECK_EQ(type.times.at(index), value.first);
      CHECK_EQ(*type.features.row(index), value.second);
    }
    for (uint32_t index : type.ids.free_list()) CHECK_EQ(type.times.at(index), FeatureTimes::kNever);
  }
}

TEST(feature_times_are_of_the_types_that_have_them) {
  Graph graph = make_graph();
  const int64_t id = 3;
  const float first = 1, second = 2;
  const double late = 5, later = 9;
  Stage stage(graph);
  stage.add_nodes(1, &id, &first, 1, 1, &later);
  stage.set_features(1, &id, &second, 1, 1, &late);
  const Delta delta = stage.finish();
  CHECK(delta.nodes[1].times.empty());
  CHECK_EQ(delta.late_features, 0u);
  CHECK_EQ(delta.latest_time, FeatureTimes::kNever);
  apply(&graph, delta);
  CHECK_EQ(*graph.nodes[1].features.row(0), second);
  CHECK_EQ(graph.nodes[1].times.bytes(), 0u);
}

TEST(feature_times_that_do_not_fit_are_not_loaded) {
  Graph graph = make_graph();
  graph.latest_time = 7;
  graph.load_nodes(0, {4, kNoId, 6}, {1}, std::array<float, 3>{}.data(), 3, 1);
  const auto refused = [&](std::vector<double> times) {
    try {
      graph.load_feature_times(0, std::move(times));
    } catch (const std::runtime_error&) {
      return true;
    }
    return false;
  };
  constexpr double kNever = FeatureTimes::kNever;
  CHECK(refused({1, kNever}));
  CHECK(refused({1, 2, 3}));  // index 1 is free
  CHECK(refused({8, kNever, 3}));
  CHECK(refused({-kNever, kNever, 3}));
  CHECK(refused({std::numeric_limits<double>::quiet_NaN(), kNever, 3}));
  CHECK(!refused({7, kNever, kNever}));
  CHECK_EQ(graph.nodes[0].times.at(0), 7.0);
}

}  // namespace livegnn::feature_times_test
