#include "store/graph_store.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <string>

#include "store/graph_store_model.h"
#include "testing/testing.h"
#include "threads/parallel.h"

namespace livegnn::graph_store_test {
namespace {

using testing::check_against;
using testing::Edge;
using testing::named;
using testing::neighbors;
using testing::Random;
using testing::same_columns;
using Model = testing::EdgeModel;

constexpr EdgeColumns kAllColumns[] = {{false, false}, {true, false}, {false, true}, {true, true}};

void change_at_random(size_t times, double growth, Random* random, GraphStore* store, Model* model) {
  const EdgeOptions& options = store->options();
  for (size_t i = 0; i < times; ++i) {
    // Low numbers come more often, so that some lists are long.
    uint32_t source = random->index(random->index(store->num_sources()) + 1);
    uint32_t target = random->index(store->num_targets());
    Edge edge = named({source, target}, options.undirected);
    if (random->chance(growth)) {
      EdgeValue value{options.columns.weighted ? random->between(-3, 3) : 1.0f,
                      options.columns.timed ? random->between(0, 100) : 0.0};
      CHECK_EQ(store->upsert(source, target, value), !model->contains(edge));
      (*model)[edge] = value;
    } else {
      // Half of the time one that is there.
      auto found = model->lower_bound(edge);
      if (i % 2 == 0 && found != model->end()) edge = found->first;
      CHECK_EQ(store->find(edge.source, edge.target).has_value(), model->contains(edge));
      CHECK_EQ(store->remove(edge.source, edge.target), model->erase(edge) == 1);
    }
  }
}

template <class Body>
void for_all_options(const Body& body) {
  for (EdgeColumns columns : kAllColumns) {
    for (bool undirected : {false, true}) body(EdgeOptions{columns, undirected, false});
  }
}

// Edges of distinct pairs, whichever way round, for one batch.
std::vector<EdgeUpdate> updates_of(size_t count, uint32_t nodes, Random* random) {
  std::vector<EdgeUpdate> updates;
  const uint32_t first = random->index(nodes), half = nodes / 2;
  for (size_t i = 0; i < count; ++i) {
    updates.push_back({static_cast<uint32_t>((first + i) % half),
                       static_cast<uint32_t>(half + (first + i / half) % half),
                       random->chance(0.5),
                       {}});
  }
  return updates;
}

}  // namespace

TEST(graph_store_agrees_with_a_map) {
  Random random;
  for_all_options([&](EdgeOptions options) {
    GraphStore store(options);
    Model model;
    check_against(store, model);
    store.resize(5, options.undirected ? 5 : 3);
    for (int turn = 0; turn < 6; ++turn) {
      change_at_random(400, turn % 3 == 2 ? 0.2 : 0.8, &random, &store, &model);
      check_against(store, model);
      // Nodes come; the two sides of a directed type have different numbers of them.
      size_t sources = store.num_sources() + 20, targets = store.num_targets() + (options.undirected ? 20 : 7);
      store.resize(sources, targets);
      CHECK_EQ(store.num_sources(), sources);
      CHECK_EQ(store.num_targets(), targets);
      check_against(store, model);
    }
    while (!model.empty()) {
      const auto [source, target, key] = model.begin()->first;
      // An undirected edge goes whichever way round it is named.
      CHECK(options.undirected ? store.remove(target, source) : store.remove(source, target));
      model.erase(model.begin());
    }
    check_against(store, {});
  });
}

TEST(graph_store_has_trees_on_both_sides) {
  Random random;
  for_all_options([&](EdgeOptions options) {
    GraphStore store(options);
    Model model;
    store.resize(1000, 1000);
    for (uint32_t i = 0; i < 900; ++i) {
      for (Edge edge : {Edge{i, 3}, Edge{4, i}}) {
        store.upsert(edge.source, edge.target, {});
        model[named(edge, options.undirected)] = {};
      }
    }
    check_against(store, model);
    change_at_random(2000, 0.5, &random, &store, &model);
    check_against(store, model);
  });
}

TEST(graph_store_keeps_a_loop_once) {
  for_all_options([&](EdgeOptions options) {
    GraphStore store(options);
    store.resize(2, 2);
    CHECK(store.upsert(1, 1, {}));
    CHECK(!store.upsert(1, 1, {}));
    check_against(store, {{{1, 1}, {}}});
    CHECK(store.remove(1, 1));
    CHECK(!store.remove(1, 1));
    check_against(store, {});
  });
}

TEST(graph_store_knows_nothing_of_nodes_past_its_end) {
  for_all_options([&](EdgeOptions options) {
    GraphStore store(options);
    store.resize(2, 2);
    CHECK(!store.find(2, 0).has_value());
    CHECK(!store.find(0, 2).has_value());
    CHECK_EQ(store.degree_out(2) + store.degree_in(2), 0u);
    CHECK(neighbors(store, 2, true).empty());
    CHECK(neighbors(store, 2, false).empty());
    for (uint32_t node : {0u, 1u, 2u, UINT32_MAX}) {
      store.prefetch_out(node);
      store.prefetch_out_leaf(node);
      store.prefetch_in(node);
      store.prefetch_in_leaf(node);
    }
  });
}

TEST(graph_store_does_not_keep_an_undirected_edge_on_two_sides) {
  GraphStore directed({{}, false, false}), undirected({{}, true, false});
  for (GraphStore* store : {&directed, &undirected}) {
    store->resize(300, 300);
    for (uint32_t i = 0; i < 300; ++i) {
      for (uint32_t j = 1; j <= 4; ++j) store->upsert(i, (i + j) % 300, {});
    }
  }
  CHECK(undirected.memory().lists <= directed.memory().lists);
  CHECK(undirected.save_in().ids.empty());
  CHECK_EQ(undirected.save_out().ids.size(), 2 * undirected.num_edges());
}

TEST(graph_store_comes_back_exactly) {
  Random random;
  for_all_options([&](EdgeOptions options) {
    GraphStore store(options), restored(options);
    Model model;
    store.resize(40, options.undirected ? 40 : 30);
    change_at_random(3000, 0.7, &random, &store, &model);
    restored.resize(store.num_sources(), store.num_targets());
    restored.load(store.save_out(), store.save_in(), store.num_edges());
    check_against(restored, model);
    Model same_model = model;
    for (int i = 0; i < 5; ++i) {
      Random same_numbers = random;
      change_at_random(300, 0.5, &random, &store, &model);
      change_at_random(300, 0.5, &same_numbers, &restored, &same_model);
      CHECK(same_columns(store.save_out(), restored.save_out()));
      CHECK(same_columns(store.save_in(), restored.save_in()));
    }
    check_against(restored, model);
  });
}

TEST(graph_store_refuses_columns_that_do_not_fit) {
  Random random;
  for_all_options([&](EdgeOptions options) {
    GraphStore store(options);
    Model model;
    store.resize(40, 40);
    change_at_random(1000, 0.8, &random, &store, &model);
    const GraphStore::Trees::Saved out = store.save_out(), in = store.save_in();
    auto refused = [&](auto&& spoil, const char* words) {
      GraphStore::Trees::Saved bad_out = out, bad_in = in;
      size_t num_edges = store.num_edges();
      spoil(&bad_out, &bad_in, &num_edges);
      GraphStore other(options);
      other.resize(40, 40);
      CHECK_THROWS(other.load(bad_out, bad_in, num_edges), std::runtime_error, words);
    };
    using Columns = GraphStore::Trees::Saved;
    refused([](Columns* out, Columns*, size_t*) { out->shape.pop_back(); }, "ends before its shape");
    refused([](Columns* out, Columns*, size_t*) { out->ids.pop_back(); }, "ends before its shape");
    refused([](Columns* out, Columns*, size_t*) { out->ids.push_back(1); }, "left over");
    refused([](Columns* out, Columns*, size_t*) { out->shape.insert(out->shape.end(), {2, 0, 0}); }, "left over");
    // An index that no node has would be read past the end of every table.
    refused([](Columns* out, Columns*, size_t*) { out->ids[5] = 40; }, "expected nodes below");
    refused([](Columns*, Columns*, size_t* num_edges) { ++*num_edges; }, "edges");
    refused([](Columns*, Columns*, size_t* num_edges) { *num_edges = 0; }, "edges");
    if (options.undirected) {
      refused([](Columns*, Columns* in, size_t*) { in->ids.push_back(1); }, "in/ids: expected nothing");
    } else {
      refused([](Columns*, Columns* in, size_t*) { in->ids[0] = UINT32_MAX; }, "expected nodes below");
      refused([](Columns*, Columns* in, size_t*) { *in = {}; }, "ends before its shape");
      refused(
          [](Columns*, Columns* in, size_t*) {
            *in = {};
            for (int node = 0; node < 40; ++node) in->shape.insert(in->shape.end(), {2, 0, 0});
          },
          "edges");
    }
  });
}

TEST(graph_store_keeps_edges_with_keys_apart) {
  Random random;
  ThreadPool pool(3);
  for (bool undirected : {false, true}) {
    for (uint32_t capacity : {4u, 256u}) {
      EdgeOptions options{{true, true}, undirected, false, true, {capacity, capacity / 8}, true};
      GraphStore store(options), other(options);
      Model model;
      for (GraphStore* one : {&store, &other}) one->resize(12, 12);
      check_against(store, model);
      for (int batch = 0; batch < 12; ++batch) {
        Model changes;
        // Sometimes so many of one pair that a node's leaves are shared out.
        const size_t count = batch % 4 == 3 ? 3000 : 100;
        for (size_t i = 0; i < count; ++i) {
          const uint32_t source = batch % 4 == 3 ? 1 : random.index(12), target = random.index(batch % 4 == 3 ? 2 : 12);
          const uint32_t key = random.chance(0.1) ? UINT32_MAX - random.index(3) : random.index(count / 2);
          changes[named({source, target, key}, undirected)] = {random.between(-3, 3), random.between(0, 100)};
        }
        std::vector<EdgeUpdate> updates;
        for (const auto& [edge, value] : changes) {
          const bool has = random.chance(0.6);
          updates.push_back({edge.source, edge.target, has, value, edge.key});
          has ? void(model[edge] = value) : void(model.erase(edge));
        }
        store.apply(updates, &pool);
        for (const EdgeUpdate& u : updates) {
          u.has ? other.upsert(u.source, u.target, u.value, u.key) : other.remove(u.source, u.target, u.key);
        }
        check_against(store, model);
        check_against(other, model);
      }
      GraphStore restored(options);
      restored.resize(12, 12);
      restored.load(store.save_keyed_out(), store.save_keyed_in(), store.num_edges());
      check_against(restored, model);
      CHECK(same_columns(restored.save_keyed_out(), store.save_keyed_out()));
      CHECK(same_columns(restored.save_keyed_in(), store.save_keyed_in()));
    }
  }
}

// A sanitizer's own memory would be counted, too.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && defined(__linux__)
namespace {

size_t anonymous_memory() {
  // Also what the system has moved elsewhere, because others need memory.
  std::ifstream status("/proc/self/status");
  size_t bytes = 0;
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("RssAnon:")) bytes += std::stoul(line.substr(8)) * 1024;
    if (line.starts_with("VmSwap:")) bytes += std::stoul(line.substr(7)) * 1024;
  }
  CHECK(bytes > 0);
  return bytes;
}

}  // namespace

TEST(graph_store_takes_the_memory_that_it_reports) {
  constexpr uint32_t kNodes = 20'000;
  constexpr size_t kBatch = 1 << 16;
  Random random;
  ThreadPool pool(1);
  std::vector<EdgeUpdate> updates(kBatch);
  const size_t before = anonymous_memory();
  GraphStore store({{true, true, true}, false, false, true, {}});
  store.resize(kNodes, kNodes);
  for (int batch = 0; batch < 70; ++batch) {
    for (EdgeUpdate& update : updates) {
      // Long lists and short ones; batches must not name an edge twice.
      const uint32_t source = random.index(random.index(kNodes) + 1);
      update = {source, random.index(kNodes), true, {1, 1, 1}};
    }
    auto order = [](const EdgeUpdate& a, const EdgeUpdate& b) {
      return a.source != b.source ? a.source < b.source : a.target < b.target;
    };
    auto same = [](const EdgeUpdate& a, const EdgeUpdate& b) { return a.source == b.source && a.target == b.target; };
    std::sort(updates.begin(), updates.end(), order);
    const auto last = std::unique(updates.begin(), updates.end(), same);
    store.apply({updates.data(), static_cast<size_t>(last - updates.begin())}, &pool);
  }
  const auto taken = static_cast<double>(anonymous_memory() - before);
  const auto [lists, batches] = store.memory();
  const auto reported = static_cast<double>(lists + batches);
  CHECK(reported > 150e6);
  CHECK_NEAR(reported / taken, 1.0, 0.1);
}
#endif

// A batch that stands alone leaves what small ones need, on every kind of list; batches of one size take nothing anew.
TEST(recent_needs_of_batches_are_given_back) {
  Random random;
  ThreadPool pool(2);
  for (const EdgeOptions& options :
       {EdgeOptions{}, EdgeOptions{{true, true, true}, true}, EdgeOptions{{false, true, false}, false, false, false}}) {
    GraphStore store(options);
    store.resize(8000, 8000);
    auto apply = [&](size_t count) {
      store.prepare(updates_of(count, 8000, &random), &pool);
      store.commit();
      store.settle();
    };
    for (int i = 0; i < 10; ++i) apply(200);
    const size_t before = store.memory().batches;
    apply(300'000);
    CHECK(store.memory().batches <= before);
    for (int i = 0; i < 10; ++i) apply(50'000);
    const size_t steady = store.memory().batches;
    CHECK(steady > 50'000 * sizeof(EdgeUpdate));
    for (int i = 0; i < 10; ++i) apply(50'000);
    CHECK(store.memory().batches <= steady + steady / 8);
    for (size_t i = 0; i < RecentNeeds::kLate; ++i) apply(200);
    CHECK(store.memory().batches <= before + before / 2);
  }
}

}  // namespace livegnn::graph_store_test
