#include "store/stage.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "store/graph_model.h"
#include "testing/allocations.h"
#include "testing/testing.h"

namespace livegnn::stage_test {

using namespace testing;

namespace {

void check_node_delta(const NodeDelta& delta, const std::map<int64_t, GraphModel::Node>& before,
                      const std::map<int64_t, GraphModel::Node>& after) {
  std::multiset<int64_t> added, removed, expected_added, expected_removed;
  for (const auto& [id, node] : after) {
    if (!before.contains(id) || before.at(id).birth != node.birth) expected_added.insert(id);
  }
  for (const auto& [id, node] : before) {
    if (!after.contains(id) || after.at(id).birth != node.birth) expected_removed.insert(id);
  }
  for (int64_t id : delta.added_ids) {
    if (id != kNoId) added.insert(id);
  }
  removed.insert(delta.removed_ids.begin(), delta.removed_ids.end());
  CHECK(added == expected_added);
  CHECK(removed == expected_removed);
  CHECK_EQ(delta.added.size(), delta.added_ids.size());
  CHECK_EQ(delta.removed.size(), delta.removed_ids.size());
  std::set<uint32_t> featured(delta.featured.begin(), delta.featured.end());
  CHECK_EQ(featured.size(), delta.featured.size());
  for (uint32_t index : delta.removed) CHECK(!featured.contains(index));
  for (size_t i = 0; i < delta.added.size(); ++i) {
    CHECK(delta.added_ids[i] != kNoId || !featured.contains(delta.added[i]) ||
          std::count(delta.added.begin(), delta.added.end(), delta.added[i]) > 1);
  }
}

// The changes are the difference between the edges before and after, each once.
void check_edge_delta(const Delta& delta, uint32_t type, const EdgeMap<uint32_t>& before,
                      const EdgeMap<uint32_t>& after) {
  const std::vector<EdgeChange>& changes = delta.edges[type];
  const EdgeFeaturesDelta& features = delta.edge_features[type];
  const size_t width = kEdgeTypes[type].width, stride = row_stride(width);
  const Floats zeros(width);
  size_t featured = 0;
  std::set<std::pair<uint32_t, uint32_t>> differing;
  for (const auto& [edge, value] : before) {
    if (!after.contains(edge) || after.at(edge) != value) differing.insert(edge);
  }
  for (const auto& [edge, value] : after) {
    if (!before.contains(edge)) differing.insert(edge);
  }
  CHECK_EQ(changes.size(), differing.size());
  for (size_t i = 0; i < changes.size(); ++i) {
    const EdgeChange& change = changes[i];
    std::pair<uint32_t, uint32_t> edge{change.source, change.target};
    if (kEdgeTypes[type].options.undirected) edge = std::minmax(change.source, change.target);
    CHECK(differing.erase(edge) == 1);
    CHECK_EQ(change.had, before.contains(edge));
    CHECK_EQ(change.has, after.contains(edge));
    if (change.had) CHECK_EQ(change.old_weight, before.at(edge).weight);
    if (change.has) CHECK_EQ(change.new_weight, after.at(edge).weight);
    if (change.has) CHECK_EQ(change.new_time, after.at(edge).time);
    const Floats& old_x = change.had ? before.at(edge).x : zeros;
    if (!change.has || after.at(edge).x == old_x) continue;
    CHECK_EQ(features.featured.at(featured), i);
    CHECK_EQ(features.rows.at(featured), change.row);
    const float* x = features.features.data() + featured * stride;
    CHECK(Floats(x, x + width) == after.at(edge).x);
    ++featured;
  }
  CHECK_EQ(features.featured.size(), featured);
}

std::vector<EdgeMap<uint32_t>> all_edges(const Graph& graph) {
  std::vector<EdgeMap<uint32_t>> edges;
  for (const auto& type : graph.edges) edges.push_back(edges_by_index(type));
  return edges;
}

}  // namespace

TEST(stage_says_what_its_events_change) {
  Random random;
  for (int run = 0; run < 12; ++run) {
    Graph graph(kWidths, kEdgeTypes);
    GraphModel model;
    for (int batch = 0; batch < 60; ++batch) {
      const GraphModel old_model = model;
      const GraphCopy old_copy = copy(graph);
      const auto old_edges = all_edges(graph);
      size_t num_events = 0;
      Stage stage(graph);
      // Large batches fill the maps that small ones do without.
      for (uint64_t n = batch % 10 == 9 ? 120 : random.below(12); n > 0; --n) {
        num_events += stage_at_random(&random, &stage, &model);
      }
      const Delta delta = stage.finish();
      CHECK(copy(graph) == old_copy);
      CHECK_EQ(delta.num_events, num_events);
      apply_delta(delta, &graph);
      for (size_t n = 0; n < kWidths.size(); ++n) {
        check_node_delta(delta.nodes[n], old_model.nodes[n], model.nodes[n]);
        CHECK_EQ(delta.nodes[n].capacity, graph.nodes[n].ids.capacity());
      }
      const auto new_edges = all_edges(graph);
      for (uint32_t e = 0; e < kEdgeTypes.size(); ++e) check_edge_delta(delta, e, old_edges[e], new_edges[e]);
    }
  }
}

TEST(stage_drops_what_comes_to_nothing) {
  for (bool undirected : {false, true}) {
    SmallGraph small({{true, true}, undirected, false});
    small.apply([](Stage& stage) { add_edge(stage, 0, 1, 2, 5); });
    const GraphCopy before = copy(small.graph);
    const Delta delta = small.apply([&](Stage& stage) {
      add_edge(stage, 2, 3);
      remove_edge(stage, 2, 3);
      remove_edge(stage, 1, 2);     // never there
      add_edge(stage, 0, 1, 2, 5);  // as it was
      add_edge(stage, 0, 1, 9, 4);  // too late
      remove_edge(stage, 0, 1);
      add_edge(stage, 0, 1, 2, 5);  // removed and back
      if (undirected) add_edge(stage, 1, 0, 2, 5);
    });
    CHECK(delta.edges[0].empty());
    CHECK(copy(small.graph) == before);
  }
}

TEST(stage_goes_by_the_time_of_an_event) {
  SmallGraph small({{true, true}, false, false});
  auto edge = [&] { return *small.store().find(0, 1); };
  small.apply([](Stage& stage) { add_edge(stage, 0, 1, 3, 10); });
  small.apply([](Stage& stage) { add_edge(stage, 0, 1, 4, 9); });
  CHECK_EQ(edge().weight, 3.0f);
  small.apply([](Stage& stage) { add_edge(stage, 0, 1, 5, 10); });  // as late: the later event counts
  CHECK_EQ(edge().weight, 5.0f);
  // The same weight at a later time moves the time alone.
  const Delta delta = small.apply([](Stage& stage) { add_edge(stage, 0, 1, 5, 12); });
  CHECK_EQ(delta.edges[0].size(), 1u);
  CHECK_EQ(edge().time, 12.0);
  // What was removed has no time any more.
  small.apply([](Stage& stage) { remove_edge(stage, 0, 1); });
  small.apply([](Stage& stage) { add_edge(stage, 0, 1, 6, 1); });
  CHECK_EQ(edge().weight, 6.0f);
  CHECK_EQ(edge().time, 1.0);
}

TEST(stage_adds_up_weights_where_it_is_told_to) {
  SmallGraph small({{true, true}, true, true});
  small.apply([](Stage& stage) {
    add_edge(stage, 0, 1, 3, 10);
    add_edge(stage, 1, 0, 4, 7);
  });
  small.apply([](Stage& stage) { add_edge(stage, 0, 1, 0.5f, 8); });
  auto edge = small.store().find(1, 0);
  CHECK_EQ(edge->weight, 7.5f);
  CHECK_EQ(edge->time, 10.0);
  CHECK_EQ(small.store().num_edges(), 1u);
}

TEST(stage_adds_and_removes_a_node_in_one_batch) {
  SmallGraph small;
  const Delta passed = small.apply([](Stage& stage) {
    add_node(stage, 77);
    add_edge(stage, 77, 0);
    remove_node(stage, 77);
    add_node(stage, 78);
  });
  CHECK(passed.edges[0].empty());
  const IdMap& ids = small.graph.nodes[0].ids;
  CHECK_EQ(ids.index_of(77), kNoIndex);
  CHECK_EQ(ids.index_of(78), 5u);
  CHECK_EQ(ids.next_index(0), 4u);

  // A node that goes and comes back is a new one, without edges or features.
  small.apply([](Stage& stage) { add_edge(stage, 1, 2); });
  const Delta back = small.apply([](Stage& stage) {
    remove_node(stage, 1);
    add_node(stage, 1);
    add_edge(stage, 1, 3);
  });
  CHECK(back.nodes[0].added_ids == std::vector<int64_t>{1});
  CHECK(back.nodes[0].removed_ids == std::vector<int64_t>{1});
  const uint32_t index = ids.index_of(1);
  CHECK(index != 1);
  CHECK_EQ(small.graph.nodes[0].features.row(index)[0], 0.0f);
  CHECK_EQ(small.store().num_edges(), 1u);
  CHECK(small.store().find(index, 3).has_value());
}

TEST(stage_adds_the_nodes_that_are_not_there) {
  Random random;
  for (int run = 0; run < 100; ++run) {
    SmallGraph small;
    std::set<int64_t> there{0, 1, 2, 3};
    std::vector<int64_t> expected;  // in the order in which they were first named
    const float row[] = {7, 8};
    const Delta delta = small.apply([&](Stage& stage) {
      for (int call = 0; call < 20; ++call) {
        std::vector<int64_t> ids(random.below(8));
        for (int64_t& id : ids) id = static_cast<int64_t>(random.below(run % 2 == 0 ? 8 : 200));
        if (random.below(4) == 0) {
          const int64_t removed = *there.begin();
          remove_node(stage, removed);
          there.erase(removed);
          std::erase(expected, removed);
        }
        stage.add_unknown(0, ids.data(), row, 2, ids.size());
        for (int64_t id : ids) {
          if (there.insert(id).second) expected.push_back(id);
        }
        if (!there.empty()) continue;
        add_node(stage, 1000);
        there.insert(1000);
        expected.push_back(1000);
      }
    });
    std::vector<int64_t> added = delta.nodes[0].added_ids;
    std::erase(added, kNoId);
    CHECK(added == expected);
    for (int64_t id : expected) {
      const uint32_t index = small.graph.nodes[0].ids.index_of(id);
      CHECK(index != kNoIndex);
      if (id != 1000) CHECK_EQ(small.graph.nodes[0].features.row(index)[1], 8.0f);
    }
    CHECK_EQ(small.graph.nodes[0].ids.size(), there.size());
  }
  // They are no events.
  SmallGraph small;
  const int64_t ids[] = {9, 0, 9};
  Stage stage(small.graph);
  stage.add_unknown(0, ids, nullptr, 0, 3);
  CHECK_EQ(stage.num_events(), 0u);
  CHECK(stage.finish().nodes[0].added_ids == std::vector<int64_t>{9});
}

// A batch may have as many calls as events: whatever grows at each is moved as often as there are events.
TEST(stage_makes_room_seldom) {
  constexpr int64_t kNodes = 4096;
  SmallGraph small({}, kNodes);
  const float row[] = {7, 8};
  Stage stage(small.graph);
  const size_t before = allocations;
  for (int64_t id = 0; id < kNodes; ++id) {
    stage.set_features(0, &id, row, 2, 1);
    const int64_t unknown = kNodes + id;
    stage.add_unknown(0, &unknown, row, 2, 1);
  }
  CHECK(allocations - before < 200);
}

TEST(stage_loses_no_weight_in_a_sum) {
  constexpr float kFull = 16'777'216;  // 2^24, from which on float32 counts in steps of two
  EdgeOptions options;
  options.columns.weighted = options.accumulate = true;
  auto sum_of = [&](float first, float second, bool trusted) {
    SmallGraph small(options);
    for (float weight : {first, second}) {
      Stage stage(small.graph, false, trusted);
      add_edge(stage, 0, 1, weight);
      apply_delta(stage.finish(), &small.graph);
    }
    return small.graph.edges[0].store->find(0, 1)->weight;
  };
  auto refused = [&](float first, float second) {
    try {
      sum_of(first, second, false);
    } catch (const EventError& error) {
      return error.kind == BadEvent::kInexact;
    }
    return false;
  };
  CHECK_EQ(sum_of(kFull - 1, 1, false), kFull);
  CHECK_EQ(sum_of(kFull, 2, false), kFull + 2);
  CHECK_EQ(sum_of(kFull, 0, false), kFull);
  CHECK_EQ(sum_of(0.1f, 0.2f, false), 0.1f + 0.2f);
  CHECK(refused(kFull, 1));
  CHECK(refused(kFull, 3));
  CHECK(refused(-kFull, -1));
  CHECK(refused(kFull, 0.5f));
  CHECK(refused(2'097'152, 0.1f));
  CHECK_EQ(sum_of(kFull, 1, true), kFull);  // as it was when it was first applied
}

TEST(stage_refuses_bad_events_and_stays_as_it_is) {
  SmallGraph small({{true, true}, false, false});
  small.apply([](Stage& stage) { add_edge(stage, 0, 1, 2, 5); });
  const GraphCopy before = copy(small.graph);
  auto refused = [&](BadEvent kind, int64_t id, const auto& body) {
    Stage stage(small.graph);
    add_edge(stage, 1, 2);  // what came before is not kept either
    bool thrown = false;
    try {
      body(stage);
    } catch (const EventError& error) {
      thrown = error.kind == kind && error.id == id;
    }
    CHECK(thrown);
    CHECK(copy(small.graph) == before);
  };
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInfinity = std::numeric_limits<float>::infinity();
  const float x[] = {1, 2, 3}, bad_x[] = {1, kNan}, endless_x[] = {-kInfinity, 1};
  const int64_t zero = 0, unknown = 9;
  refused(BadEvent::kUnknownNode, 9, [](Stage& stage) { add_edge(stage, 9, 0); });
  refused(BadEvent::kUnknownNode, 9, [](Stage& stage) { add_edge(stage, 0, 9); });
  refused(BadEvent::kUnknownNode, -5, [](Stage& stage) { add_edge(stage, -5, 0); });
  refused(BadEvent::kUnknownNode, 9, [](Stage& stage) { remove_edge(stage, 0, 9); });
  refused(BadEvent::kUnknownNode, 9, [](Stage& stage) { remove_node(stage, 9); });
  refused(BadEvent::kUnknownNode, 9, [&](Stage& stage) { stage.set_features(0, &unknown, x, 2, 1); });
  refused(BadEvent::kUnknownNode, 1, [](Stage& stage) {
    remove_node(stage, 1);
    add_edge(stage, 0, 1);
  });
  refused(BadEvent::kUnknownNode, 1, [](Stage& stage) {
    remove_node(stage, 1);
    remove_node(stage, 1);
  });
  refused(BadEvent::kUnknownNode, 9, [](Stage& stage) {
    add_node(stage, 9);
    remove_node(stage, 9);
    add_edge(stage, 0, 9);
  });
  refused(BadEvent::kNotFinite, 0, [](Stage& stage) { add_edge(stage, 0, 1, kNan); });
  refused(BadEvent::kNotFinite, 0, [](Stage& stage) { add_edge(stage, 0, 1, -kInfinity); });
  refused(BadEvent::kNotFinite, 0, [](Stage& stage) { add_edge(stage, 0, 1, 1, double{kInfinity}); });
  refused(BadEvent::kNotFinite, 0, [&](Stage& stage) { stage.set_features(0, &zero, bad_x, 2, 1); });
  refused(BadEvent::kNotFinite, 9, [&](Stage& stage) { stage.add_nodes(0, &unknown, bad_x, 2, 1); });
  refused(BadEvent::kNotFinite, 9, [&](Stage& stage) { stage.add_nodes(0, &unknown, endless_x, 2, 1); });
  refused(BadEvent::kWidth, kNoId, [&](Stage& stage) { stage.set_features(0, &zero, x, 3, 1); });
  refused(BadEvent::kWidth, kNoId, [&](Stage& stage) { stage.add_nodes(0, &unknown, x, 1, 1); });
  refused(BadEvent::kNegativeId, -1, [](Stage& stage) { add_node(stage, -1); });
}

}  // namespace livegnn::stage_test
