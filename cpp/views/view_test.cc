#include "views/view.h"

#include <map>
#include <mutex>
#include <set>
#include <vector>

#include "store/stage.h"
#include "testing/allocations.h"
#include "testing/testing.h"
#include "views/commit.h"
#include "views/degree_histogram.h"

namespace livegnn::view_test {
namespace {

constexpr uint32_t kNodes = 40;

// Random batches on a graph of one type, one hub among its nodes.
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
      const double time = static_cast<double>(i);
      stage.add_edges(0, &source, &target, nullptr, &time, nullptr, 0, 1);
      if (random_.below(3) == 0) stage.remove_edges(0, &target, &source, 1);
      if (source != 0 && random_.below(8) == 0) stage.remove_nodes(0, &source, 1);
    }
    return stage.finish();
  }

 private:
  Graph* graph_;
  testing::Random random_;
};

std::vector<int64_t> recount(const Graph& graph) {
  std::vector<int64_t> counts;
  for (uint32_t node = 0; node < graph.nodes[0].ids.capacity(); ++node) {
    if (!graph.nodes[0].ids.in_use(node)) continue;
    const size_t degree = graph.edges[0].store->degree_out(node);
    if (counts.size() <= degree) counts.resize(degree + 1);
    ++counts[degree];
  }
  return counts;
}

// Every list, by direction and node, in the order of a scan.
using Lists = std::map<std::pair<bool, uint32_t>, std::vector<uint32_t>>;

template <class Scan>
Lists lists_of(size_t capacity, const Scan& scan) {
  Lists lists;
  for (uint32_t node = 0; node < capacity; ++node) {
    for (bool incoming : {false, true}) {
      auto& list = lists[{incoming, node}];
      scan(incoming, node, [&](const NeighborSpan& span) {
        for (size_t i = 0; i < span.size; ++i) list.insert(list.end(), {span.ids[i], key_at(span, i)});
      });
    }
  }
  return lists;
}

Lists lists_after(const Change& change) {
  return lists_of(change.capacity_after(0), [&](bool incoming, uint32_t node, const auto& visit) {
    incoming ? change.scan_in_after(0, node, visit) : change.scan_out_after(0, node, visit);
  });
}

Lists lists_now(const Graph& graph) {
  const GraphStore& store = *graph.edges[0].store;
  return lists_of(graph.nodes[0].ids.capacity(), [&](bool incoming, uint32_t node, const auto& visit) {
    incoming ? store.scan_in(node, visit) : store.scan_out(node, visit);
  });
}

std::vector<EdgeTypeSpec> kinds() {
  std::vector<EdgeTypeSpec> all;
  for (bool undirected : {false, true}) {
    for (bool keyed : {false, true}) {
      EdgeOptions options{.columns = {.timed = true}, .undirected = undirected, .samtree = {8, 1}};
      options.keyed = keyed;
      all.push_back({0, 0, options});
    }
  }
  return all;
}

}  // namespace

TEST(change_shows_lists_as_the_commit_leaves_them) {
  for (const EdgeTypeSpec& spec : kinds()) {
    Graph graph({0}, {spec}, 2);
    Stream stream(&graph);
    for (size_t batch = 0; batch < 12; ++batch) {
      const Delta delta = stream.next(batch == 5 ? 6000 : 1 + 7 * batch);  // the large one shares a hub's leaves out
      const Lists before = lists_now(graph);
      graph.prepare(delta);
      const Change change(graph, delta);
      const Lists after = lists_after(change);
      CHECK(lists_now(graph) == before);
      for (uint32_t node = 0; node < change.capacity_after(0); ++node) {
        CHECK_EQ(after.at({false, node}).size(), 2 * size_t{change.degree_out_after(0, node)});
        CHECK_EQ(after.at({true, node}).size(), 2 * size_t{change.degree_in_after(0, node)});
      }
      if (batch % 4 == 3) {
        graph.abandon();
        CHECK(lists_now(graph) == before);
        CHECK(lists_after(change).at({false, 0}) == before.at({false, 0}));
        continue;
      }
      commit(&graph, delta, {});
      CHECK(lists_now(graph) == after);
    }
  }
}

TEST(change_names_undirected_edges_in_both_directions) {
  EdgeOptions options{.undirected = true};
  Graph graph({0}, {{0, 0, options}});
  Stage stage(graph);
  const std::vector<int64_t> ids = {0, 1, 2}, source = {0, 2, 1}, target = {1, 2, 2};
  stage.add_nodes(0, ids.data(), nullptr, 0, 3);
  stage.add_edges(0, source.data(), target.data(), nullptr, nullptr, nullptr, 0, 3);
  const Delta delta = stage.finish();
  graph.prepare(delta);
  std::multiset<std::pair<uint32_t, uint32_t>> seen;
  Change(graph, delta).for_each_edge(0, [&](uint32_t u, uint32_t v, const EdgeChange&) { seen.insert({u, v}); });
  CHECK(seen == (std::multiset<std::pair<uint32_t, uint32_t>>{{0, 1}, {1, 0}, {2, 2}, {1, 2}, {2, 1}}));
  graph.abandon();
}

TEST(degree_histogram_stays_right_and_commits_take_no_memory) {
  for (const EdgeTypeSpec& spec : kinds()) {
    Graph graph({0}, {spec});
    Stream stream(&graph);
    DegreeHistogram histogram(graph, 0);
    for (size_t batch = 0; batch < 30; ++batch) {
      const Delta delta = stream.next(1 + batch % 9);
      const std::vector<int64_t> before = histogram.counts();
      testing::fail_each_allocation(
          [&] {
            graph.abandon();
            histogram.abandon();
            graph.prepare(delta);
            histogram.prepare(Change(graph, delta));
          },
          [&] { CHECK(histogram.counts() == before); });
      if (batch % 5 == 4) {
        histogram.abandon();
        graph.abandon();
        CHECK(histogram.counts() == before);
        continue;
      }
      {
        std::unique_lock lock(graph.lock);
        testing::check_allocates_nothing([&] {
          graph.commit(delta);
          histogram.commit();
        });
      }
      graph.settle();
      histogram.settle();
      CHECK(histogram.counts() == recount(graph));
    }
    Arrays saved;
    histogram.save(&saved);
    ArrayViews views;
    views.put<int64_t>("counts", std::get<std::vector<int64_t>>(saved.all()[0].values));
    DegreeHistogram restored(graph, 0);
    restored.load(views);
    CHECK(restored.counts() == histogram.counts());
  }
}

TEST(arrays_that_do_not_fit_are_named) {
  const std::vector<float> numbers(6);
  ArrayViews views;
  views.put<float>("a", numbers, 3);
  CHECK_EQ(views.of_size<float>("a", 6, 3).size(), 6u);
  CHECK_THROWS(views.at<float>("b"), std::runtime_error, "there is no array b");
  CHECK_THROWS(views.at<double>("a", 3), std::runtime_error, "another type");
  CHECK_THROWS(views.at<float>("a", 2), std::runtime_error, "another shape");
  CHECK_THROWS(views.of_size<float>("a", 7, 3), std::runtime_error, "expected 7 numbers, got 6");
}

}  // namespace livegnn::view_test
