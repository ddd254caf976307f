#include "presampling/view/presampling_view.h"

#include <atomic>
#include <mutex>
#include <shared_mutex>
#include <thread>
#include <vector>

#include "presampling/view/sample_assembly.h"
#include "store/stage.h"
#include "testing/allocations.h"
#include "testing/chi_square.h"
#include "testing/testing.h"
#include "views/commit.h"

namespace livegnn::presampling_view_test {
namespace {

constexpr uint32_t kNodes = 40;

// Random batches on a graph of one type, with a hub, removals, and nodes that go and come back.
class Stream {
 public:
  explicit Stream(Graph* graph) : graph_(graph) {}

  Delta next(size_t events) {
    Stage stage(*graph_);
    for (size_t i = 0; i < events; ++i) {
      const auto source = static_cast<int64_t>(random_.below(kNodes));
      const int64_t target = random_.below(2) == 0 ? 0 : static_cast<int64_t>(random_.below(kNodes));
      stage.add_nodes(0, &source, nullptr, 0, 1);
      stage.add_nodes(0, &target, nullptr, 0, 1);
      const double time = static_cast<double>(random_.below(50));
      const auto weight = static_cast<float>(random_.below(5)) - 1;
      stage.add_edges(0, &source, &target, &weight, &time, nullptr, 0, 1);
      if (random_.below(3) == 0) stage.remove_edges(0, &target, &source, 1);
      if (source != 0 && random_.below(8) == 0) stage.remove_nodes(0, &source, 1);
    }
    return stage.finish();
  }

 private:
  Graph* graph_;
  testing::Random random_;
};

std::vector<EdgeTypeSpec> kinds() {
  std::vector<EdgeTypeSpec> all;
  for (bool undirected : {false, true}) {
    for (bool keyed : {false, true}) {
      EdgeOptions options{.columns = {.weighted = true, .timed = true}, .undirected = undirected, .samtree = {8, 1}};
      options.keyed = keyed;
      all.push_back({0, 0, options});
    }
  }
  return all;
}

// Each strategy in each direction, in two hops.
std::vector<OneHopRequest> requests(int64_t count) {
  std::vector<OneHopRequest> all;
  for (SampleBy by : {SampleBy::kUniform, SampleBy::kWeight, SampleBy::kLatest}) {
    for (bool incoming : {false, true}) all.push_back({0, incoming, count, by, {kSeeds}});
  }
  all.push_back({0, true, count, SampleBy::kUniform, {0, 3}});
  return all;
}

using Cells = std::vector<std::vector<uint64_t>>;

Cells cells_of(const PresamplingView& view) {
  Cells all;
  for (size_t q = 0; q < view.plan().size(); ++q) {
    for (uint32_t node = 0; node < view.graph().nodes[0].ids.capacity(); ++node) {
      const CellView cell = view.cell(q, node);
      all.emplace_back(cell.ids, cell.ids + cell.size);
    }
  }
  return all;
}

void apply(Graph* graph, const Delta& delta, View* view) {
  graph->prepare(delta);
  view->prepare(Change(*graph, delta));
  View* const views[] = {view};
  commit(graph, delta, views);
}

}  // namespace

TEST(presampled_cells_stay_the_best_of_their_lists) {
  for (const EdgeTypeSpec& spec : kinds()) {
    for (int64_t count : {1, 4, 1000}) {
      Graph graph({0}, {spec});
      Stream stream(&graph);
      PresamplingView view(graph, 0, requests(count), 7, 1);
      for (size_t batch = 0; batch < 40; ++batch) {
        apply(&graph, stream.next(batch == 20 ? 400 : 1 + batch % 9), &view);
        view.check();
      }
      // A view of the same graph is the same, whatever its history, on any number of threads.
      CHECK(cells_of(PresamplingView(graph, 0, requests(count), 7, 3)) == cells_of(view));
      CHECK(count > 1000 || cells_of(PresamplingView(graph, 0, requests(count), 8, 1)) != cells_of(view));
    }
  }
}

TEST(presampling_fails_whole_and_commits_without_memory) {
  for (const EdgeTypeSpec& spec : kinds()) {
    Graph graph({0}, {spec});
    Stream stream(&graph);
    PresamplingView view(graph, 0, requests(3), 7, 1);
    for (size_t batch = 0; batch < 16; ++batch) {
      const Delta delta = stream.next(1 + batch % 9);
      const Cells before = cells_of(view);
      testing::fail_each_allocation(
          [&] {
            graph.abandon();
            view.abandon();
            graph.prepare(delta);
            view.prepare(Change(graph, delta));
          },
          [&] { CHECK(cells_of(view) == before); });
      if (batch % 5 == 4) {
        view.abandon();
        graph.abandon();
        CHECK(cells_of(view) == before);
        view.check();
        continue;
      }
      {
        std::unique_lock lock(graph.lock);
        testing::check_allocates_nothing([&] {
          graph.commit(delta);
          view.commit();
        });
      }
      graph.settle();
      view.settle();
      view.check();
    }
  }
}

TEST(appended_edges_of_a_hub_read_no_list) {
  EdgeOptions options{.columns = {.timed = true}};
  Graph graph({0}, {{0, 0, options}});
  PresamplingView view(graph, 0, {{0, true, 10, SampleBy::kUniform}, {0, true, 10, SampleBy::kLatest}}, 3, 1);
  const int64_t hub = 0;
  for (int64_t batch = 0; batch < 50; ++batch) {
    Stage stage(graph);
    for (int64_t i = 0; i < 100; ++i) {
      const int64_t source = 1 + batch * 100 + i;
      const auto time = static_cast<double>(source);
      stage.add_nodes(0, &source, nullptr, 0, 1);
      stage.add_nodes(0, &hub, nullptr, 0, 1);
      stage.add_edges(0, &source, &hub, nullptr, &time, nullptr, 0, 1);
    }
    apply(&graph, stage.finish(), &view);
  }
  CHECK_EQ(view.num_redraws(), 0u);
  view.check();
  // Of 5,000 neighbours 500 go, one by one: a uniform cell loses one in five hundred of them.
  for (int64_t gone = 1; gone <= 500; ++gone) {
    Stage stage(graph);
    stage.remove_edges(0, &gone, &hub, 1);
    apply(&graph, stage.finish(), &view);
  }
  CHECK(view.num_redraws() <= 10);
  view.check();
}

TEST(presampled_neighbors_have_the_law_of_their_strategy_after_removals) {
  EdgeOptions options{.columns = {.weighted = true}};
  constexpr size_t kNeighbors = 12;
  for (SampleBy by : {SampleBy::kUniform, SampleBy::kWeight}) {
    std::vector<size_t> seen(kNeighbors);
    std::vector<double> law(kNeighbors);
    double total = 0;
    for (size_t i = 0; i < kNeighbors; ++i)
      total += law[i] = by == SampleBy::kUniform ? 1.0 : 1.0 + static_cast<double>(i % 3);
    for (double& share : law) share /= total;
    Graph graph({0}, {{0, 0, options}});
    std::vector<std::unique_ptr<PresamplingView>> views;
    std::vector<View*> all;
    for (uint64_t seed = 0; seed < 3000; ++seed) {
      views.push_back(
          std::make_unique<PresamplingView>(graph, 0, std::vector<OneHopRequest>{{0, true, 1, by}}, seed, 1));
      all.push_back(views.back().get());
    }
    const auto put = [&](int64_t from, int64_t to, bool remove) {
      Stage stage(graph);
      for (int64_t source = from; source < to; ++source) {
        const int64_t hub = 100;
        const auto weight = 1.0f + static_cast<float>((source - 1) % 3);
        stage.add_nodes(0, &source, nullptr, 0, 1);
        stage.add_nodes(0, &hub, nullptr, 0, 1);
        if (remove) {
          stage.remove_edges(0, &source, &hub, 1);
        } else {
          stage.add_edges(0, &source, &hub, &weight, nullptr, nullptr, 0, 1);
        }
      }
      const Delta delta = stage.finish();
      graph.prepare(delta);
      for (View* view : all) view->prepare(Change(graph, delta));
      commit(&graph, delta, all);
    };
    put(1, 31, false);
    put(13, 31, true);
    const uint32_t hub = graph.nodes[0].ids.index_of(100);
    for (const auto& view : views) {
      const CellView cell = view->cell(0, hub);
      CHECK_EQ(cell.size, 1u);
      ++seen[static_cast<size_t>(graph.nodes[0].ids.id_of(static_cast<uint32_t>(cell.ids[0]))) - 1];
    }
    CHECK(testing::chi_square(seen, law) < testing::chi_square_limit(kNeighbors - 1));
  }
}

TEST(readers_see_cells_before_a_batch_or_after_it) {
  // Each batch replaces the neighbours of every node by those of the next generation.
  constexpr int64_t kUsers = 30, kOthers = 60;
  EdgeOptions options{.columns = {.timed = true}};
  Graph graph({0}, {{0, 0, options}});
  PresamplingView view(graph, 0, {{0, false, 5, SampleBy::kUniform}, {0, false, 5, SampleBy::kLatest}}, 3, 1);
  const auto turn = [&](int64_t generation) {
    Stage stage(graph);
    for (int64_t user = 0; user < kUsers; ++user) {
      for (int64_t other = 0; other < kOthers; ++other) {
        const int64_t now = 1000 + (generation % 2) * kOthers + other,
                      old = 1000 + (1 - generation % 2) * kOthers + other;
        const auto time = static_cast<double>(generation);
        for (int64_t node : {user, now, old}) stage.add_nodes(0, &node, nullptr, 0, 1);
        stage.add_edges(0, &user, &now, nullptr, &time, nullptr, 0, 1);
        stage.remove_edges(0, &user, &old, 1);
      }
    }
    apply(&graph, stage.finish(), &view);
  };
  turn(0);
  std::atomic<bool> done{false};
  std::atomic<size_t> samples{0};
  std::vector<std::string> failures(2);
  const auto read = [&](size_t reader) {
    SampleAssembly assembly(view);
    std::vector<int64_t> users(kUsers);
    for (int64_t i = 0; i < kUsers; ++i) users[static_cast<size_t>(i)] = i;
    while (!done || samples < 10) {
      std::shared_lock lock(graph.lock);
      const Subgraph sample = assembly.sample(users, true);
      ++samples;
      const auto& edges = sample.edges[0];
      if (edges.row.size() != 2 * 5 * kUsers) failures[reader] = "a sample of the wrong size";
      for (size_t i = 0; i < edges.time.size(); ++i) {
        const int64_t id = sample.nodes[0].ids[static_cast<size_t>(edges.col[i])];
        const bool odd = id >= 1000 + kOthers;
        if (edges.time[i] != edges.time[0]) failures[reader] = "two generations in a sample";
        if (odd != (static_cast<int64_t>(edges.time[i]) % 2 == 1)) failures[reader] = "a neighbour that is not one";
      }
    }
  };
  std::thread one(read, 0), two(read, 1);
  for (int64_t generation = 1; generation < 60; ++generation) turn(generation);
  done = true;
  one.join();
  two.join();
  for (const auto& failure : failures) CHECK_EQ(failure, "");
}

TEST(presampling_of_what_a_graph_lacks_is_refused) {
  EdgeOptions options;
  options.in_lists = false;
  Graph graph({0}, {{0, 0, options}});
  const auto make = [&](OneHopRequest one) { PresamplingView(graph, 0, {one}, 1, 1); };
  CHECK_THROWS(make({0, true, 3}), std::invalid_argument, "no lists of in-edges");
  CHECK_THROWS(make({1, false, 3}), std::invalid_argument, "no edge type");
  CHECK_THROWS(make({0, false, 3, SampleBy::kLatest}), std::invalid_argument, "times");
  CHECK_THROWS(make({0, false, 5000}), std::invalid_argument, "fan-out");
}

TEST(presampling_gives_back_what_goes) {
  EdgeOptions options;
  Graph graph({0}, {{0, 0, options}});
  PresamplingView view(graph, 0, {{0, false, 16}}, 3, 1);
  const auto put = [&](int64_t nodes, bool remove) {
    Stage stage(graph);
    for (int64_t node = 0; node < nodes; ++node) {
      for (int64_t other = 0; other < 8; ++other) {
        const int64_t target = (node + 1 + other) % nodes;
        stage.add_nodes(0, &node, nullptr, 0, 1);
        stage.add_nodes(0, &target, nullptr, 0, 1);
        if (remove) {
          stage.remove_edges(0, &node, &target, 1);
        } else {
          stage.add_edges(0, &node, &target, nullptr, nullptr, nullptr, 0, 1);
        }
      }
    }
    apply(&graph, stage.finish(), &view);
  };
  put(5000, false);
  const auto come_and_go = [&](int rounds) {
    for (int i = 0; i < rounds; ++i) {
      put(5000, true);
      put(5000, false);
    }
    return view.bytes();
  };
  const size_t soon = come_and_go(2);
  CHECK(come_and_go(6) <= soon + (size_t{1} << 18));
  view.check();
}

}  // namespace livegnn::presampling_view_test
