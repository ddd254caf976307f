#include "store/graph.h"

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <numeric>
#include <set>
#include <shared_mutex>
#include <string>
#include <thread>
#include <vector>

#include "store/graph_model.h"
#include "testing/testing.h"

namespace livegnn::graph_test {

using namespace testing;

namespace {

void check_expired(Graph* graph, double horizon) {
  for (uint32_t e = 0; e < kEdgeTypes.size(); ++e) {
    if (!kEdgeTypes[e].expires) continue;
    std::set<EdgeName> expected;
    for (const auto& [edge, value] : edges_by_index(graph->edges[e])) {
      if (value.time < horizon) expected.insert({edge.first, edge.second, 0});
    }
    const auto found = graph->expired(e, horizon);
    CHECK_EQ(found.size(), expected.size());
    CHECK((std::set(found.begin(), found.end()) == expected));
    CHECK(std::is_sorted(found.begin(), found.end(), [](auto a, auto b) { return a.source < b.source; }));
  }
}

}  // namespace

TEST(graph_agrees_with_a_plain_model) {
  Random random;
  for (int run = 0; run < 12; ++run) {
    Graph graph(kWidths, kEdgeTypes);
    GraphModel model;
    for (int batch = 0; batch < 60; ++batch) {
      Stage stage(graph);
      // Large batches fill the maps that small ones do without.
      for (uint64_t n = batch % 10 == 9 ? 120 : random.below(12); n > 0; --n) stage_at_random(&random, &stage, &model);
      apply_delta(stage.finish(), &graph);
      check_against(graph, model);
      if (random.chance(0.3)) check_expired(&graph, static_cast<double>(random.below(5)) - 1);
    }
  }
}

TEST(graph_keeps_the_old_features_of_an_edge_until_the_commit) {
  SmallGraph small(1, false, {}, 4);
  small.apply([](Stage& stage) {
    add_featured(stage, 0, 1, 5);
    add_featured(stage, 1, 2, 6);
    add_featured(stage, 2, 3, 7);
  });
  const Table& table = small.graph.edges[0].features.table();
  Stage stage(small.graph);
  add_featured(stage, 1, 2, 60);
  add_featured(stage, 2, 3, 7);  // as it was
  remove_edge(stage, 0, 1);
  add_featured(stage, 3, 0, 80);
  const Delta delta = stage.finish();
  const EdgeFeaturesDelta& features = delta.edge_features[0];
  CHECK_EQ(delta.edges[0].size(), 3u);
  CHECK(features.featured == (std::vector<uint32_t>{0, 2}));
  CHECK(features.rows == (std::vector<uint32_t>{1, 3}));
  CHECK(features.features == (Floats{60, 80}));
  CHECK(features.freed == std::vector<uint32_t>{0});
  small.graph.prepare(delta);
  for (const EdgeChange& change : delta.edges[0]) {
    if (change.had) CHECK_EQ(table.row(change.row)[0], change.source == 0 ? 5.0f : 6.0f);
  }
  small.graph.abandon();
  CHECK_EQ(table.rows(), 3u);
  apply_delta(delta, &small.graph);
  CHECK_EQ(table.row(small.store().find(1, 2)->row)[0], 60.0f);
  CHECK_EQ(table.row(small.store().find(3, 0)->row)[0], 80.0f);
  CHECK_EQ(table.row(0)[0], 0.0f);
  // The row that the removed edge had is the next one's.
  small.apply([](Stage& stage) { add_featured(stage, 3, 3, 9); });
  CHECK_EQ(small.store().find(3, 3)->row, 0u);
  CHECK_EQ(table.rows(), 4u);
}

// After whichever failure the graph is as it was, and the batch that is tried again does what it does elsewhere.
TEST(graph_is_as_it_was_after_any_allocation_that_fails) {
  Random random;
  for (int turn = 0; turn < 4; ++turn) {
    const std::vector<EdgeTypeSpec> types = with_keyed_types();
    Graph graph(kWidths, types, 2), untroubled(kWidths, types, 2);
    GraphModel model;
    size_t failures = 0;
    for (int batch = 0; batch < 12; ++batch) {
      Stage stage(graph);
      for (size_t call = random.below(batch % 4 == 3 ? 400 : 40); call > 0; --call) {
        stage_at_random(&random, &stage, &model);
        const uint32_t keyed =
            static_cast<uint32_t>(kEdgeTypes.size()) + random.index(types.size() - kEdgeTypes.size());
        if (random.chance(0.3)) stage_keyed_at_random(&random, &stage, model, keyed, types[keyed]);
      }
      const Delta delta = stage.finish();
      const GraphCopy before = copy(graph);
      failures += fail_each_allocation([&] { graph.prepare(delta); }, [&] { CHECK(copy(graph) == before); });
      graph.abandon();
      CHECK(copy(graph) == before);
      for (Graph* each : {&graph, &untroubled}) apply_delta(delta, each);
      CHECK(copy(graph) == copy(untroubled));
      for (const auto& type : graph.edges) type.store->check();
    }
    CHECK(failures > 100);
  }
}

// Ids that are no indices, one batch after the other: tables of ids double a few times, none of them in a commit.
TEST(graph_grows_before_the_commit) {
  Random random;
  SmallGraph small({{true, true}, false, false}, 0);
  std::vector<int64_t> ids;
  for (int batch = 0; batch < 60; ++batch) {
    small.apply([&](Stage& stage) {
      for (int i = 0; i < 100; ++i) {
        ids.push_back(static_cast<int64_t>(random.below(uint64_t{1} << 62)));
        stage.add_nodes(0, &ids.back(), nullptr, 0, 1);
        add_edge(stage, ids[random.below(ids.size())], ids.back());
      }
    });
  }
  for (uint32_t i = 0; i < ids.size(); ++i) CHECK_EQ(small.graph.nodes[0].ids.index_of(ids[i]), i);
}

// Every batch gives all edges of node 0 the same features, and adds edges, so that the table grows under the reader.
TEST(graph_readers_see_features_before_a_batch_or_after_it) {
  for (const std::string& directory : {std::string(), std::filesystem::temp_directory_path().string()}) {
    constexpr int64_t kNodes = 3000;
    Graph graph({0}, {{0, 0, {}, 1}}, 1, directory);
    {
      std::vector<int64_t> ids(kNodes);
      std::iota(ids.begin(), ids.end(), 0);
      Stage stage(graph);
      stage.add_nodes(0, ids.data(), nullptr, 0, ids.size());
      apply_delta(stage.finish(), &graph);
    }
    std::atomic<bool> ended{false};
    bool torn = false;
    std::thread reader([&] {
      while (!ended) {
        std::shared_lock lock(graph.lock);
        std::set<float> seen;
        graph.edges[0].store->scan_out(0, [&](NeighborSpan span) {
          for (size_t i = 0; i < span.size; ++i) seen.insert(*graph.edges[0].features.table().row(span.rows[i]));
        });
        torn = torn || seen.size() > 1;
      }
    });
    for (int64_t batch = 1; batch <= 60; ++batch) {
      const auto count = static_cast<size_t>(batch * kNodes / 60);
      std::vector<int64_t> source(count, 0), target(count);
      std::iota(target.begin(), target.end(), 0);
      const Floats x(count, static_cast<float>(batch));
      Stage stage(graph);
      stage.add_edges(0, source.data(), target.data(), nullptr, nullptr, x.data(), 1, count);
      apply_delta(stage.finish(), &graph);
    }
    ended = true;
    reader.join();
    CHECK(!torn);
    CHECK_EQ(graph.edges[0].features.table().rows(), static_cast<size_t>(kNodes));
  }
}

TEST(graph_looks_for_expired_edges_where_they_may_be) {
  SmallGraph small(0, true, {{false, true}, true, false}, 200);
  const EarliestTimes& earliest = small.graph.edges[0].earliest;
  auto blocks_before = [&](double time) {
    std::vector<size_t> blocks;
    for (size_t block = 0; block < earliest.num_blocks(); ++block) {
      if (earliest.before(block, time)) blocks.push_back(block);
    }
    return blocks;
  };
  small.apply([](Stage& stage) {
    add_edge(stage, 70, 3, 1, 10);  // belongs to 3
    add_edge(stage, 3, 4, 1, 30);
    add_edge(stage, 150, 150, 1, 20);
    add_edge(stage, 151, 199, 1, 40);
  });
  CHECK(blocks_before(100) == (std::vector<size_t>{0, 2}));
  CHECK(blocks_before(10).empty());
  CHECK(blocks_before(15) == std::vector<size_t>{0});
  CHECK((small.graph.expired(0, 15) == std::vector<EdgeName>{{3, 70, 0}}));
  CHECK((small.graph.expired(0, 25) == std::vector<EdgeName>{{3, 70, 0}, {150, 150, 0}}));
  small.apply([](Stage& stage) {
    remove_edge(stage, 3, 70);
    remove_edge(stage, 150, 150);
  });
  // Removal leaves the bounds where they were; the next look makes them exact.
  CHECK(blocks_before(25) == (std::vector<size_t>{0, 2}));
  CHECK(small.graph.expired(0, 25).empty());
  CHECK(blocks_before(30).empty());
  CHECK(blocks_before(40) == std::vector<size_t>{0});
  small.graph.edges[0].earliest.forget();
  CHECK((small.graph.expired(0, 31) == std::vector<EdgeName>{{3, 4, 0}}));
  CHECK(blocks_before(30).empty());
}

TEST(graph_gives_out_indices_again) {
  SmallGraph small({}, 10);
  small.apply([](Stage& stage) {
    add_edge(stage, 3, 4);
    add_edge(stage, 4, 3);
    add_edge(stage, 4, 4);
    add_edge(stage, 5, 6);
  });
  small.apply([](Stage& stage) {
    remove_node(stage, 4);
    remove_node(stage, 7);
  });
  CHECK_EQ(small.store().num_edges(), 1u);
  CHECK_EQ(small.graph.nodes[0].ids.size(), 8u);
  small.apply([](Stage& stage) {
    add_node(stage, 500);
    add_node(stage, 501);
    add_edge(stage, 501, 500);
  });
  const IdMap& ids = small.graph.nodes[0].ids;
  const NodeFeatures& features = small.graph.nodes[0].features;
  CHECK_EQ(ids.capacity(), 10u);
  CHECK_EQ(ids.index_of(500), 7u);
  CHECK_EQ(ids.index_of(501), 4u);
  CHECK_EQ(features.row(4)[0] + features.row(7)[1], 0.0f);  // not those of the old nodes
  CHECK(small.store().find(4, 7).has_value());
  CHECK_EQ(small.store().degree_in(4), 0u);
}

}  // namespace livegnn::graph_test
