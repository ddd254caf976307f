#include "livegnn/graph_store.h"

#include <algorithm>
#include <map>
#include <set>

#include "testing.h"

namespace livegnn {
namespace {

using testing::Random;
using Edge = std::pair<uint32_t, uint32_t>;
using Model = std::map<Edge, EdgeValue>;

constexpr EdgeColumns kAllColumns[] = {{false, false}, {true, false}, {false, true}, {true, true}};

// The same edge whichever way round it is named, where that is one edge.
Edge named(uint32_t source, uint32_t target, bool undirected) {
  return undirected && target < source ? Edge{target, source} : Edge{source, target};
}

using Neighbors = std::map<uint32_t, EdgeValue>;

Neighbors neighbors(const GraphStore& store, uint32_t node, bool out) {
  Neighbors found;
  auto visit = [&](NeighborSpan span) {
    for (size_t i = 0; i < span.size; ++i) {
      EdgeValue value{span.weights ? span.weights[i] : 1.0f, span.times ? span.times[i] : 0.0};
      CHECK(found.emplace(span.ids[i], value).second);
    }
  };
  if (out) {
    store.scan_out(node, visit);
  } else {
    store.scan_in(node, visit);
  }
  return found;
}

void check_same(const Neighbors& expected, const Neighbors& found) {
  CHECK_EQ(expected.size(), found.size());
  for (auto a = expected.begin(), b = found.begin(); a != expected.end(); ++a, ++b) {
    CHECK_EQ(a->first, b->first);
    CHECK_EQ(a->second.weight, b->second.weight);
    CHECK_EQ(a->second.time, b->second.time);
  }
}

void check_against(const GraphStore& store, const Model& model) {
  store.check();
  CHECK_EQ(store.num_edges(), model.size());
  std::vector<Neighbors> out(store.num_sources()), in(store.num_targets());
  for (const auto& [edge, value] : model) {
    auto [source, target] = edge;
    out[source][target] = in[target][source] = value;
    if (store.options().undirected) out[target][source] = in[source][target] = value;
    CHECK(store.find(source, target).has_value());
  }
  for (uint32_t node = 0; node < out.size(); ++node) {
    check_same(out[node], neighbors(store, node, true));
    CHECK_EQ(store.degree_out(node), out[node].size());
  }
  for (uint32_t node = 0; node < in.size(); ++node) {
    check_same(in[node], neighbors(store, node, false));
    CHECK_EQ(store.degree_in(node), in[node].size());
  }
}

void change_at_random(size_t times, double growth, Random* random, GraphStore* store, Model* model) {
  const EdgeOptions& options = store->options();
  for (size_t i = 0; i < times; ++i) {
    // Low numbers come more often, so that some lists are long.
    uint32_t source = random->index(random->index(store->num_sources()) + 1);
    uint32_t target = random->index(store->num_targets());
    Edge edge = named(source, target, options.undirected);
    if (random->chance(growth)) {
      EdgeValue value{options.columns.weighted ? random->between(-3, 3) : 1.0f,
                      options.columns.timed ? random->between(0, 100) : 0.0};
      CHECK_EQ(store->upsert(source, target, value), !model->contains(edge));
      (*model)[edge] = value;
    } else {
      // Half of the time one that is there.
      auto found = model->lower_bound(edge);
      if (i % 2 == 0 && found != model->end()) edge = found->first;
      CHECK_EQ(store->find(edge.first, edge.second).has_value(), model->contains(edge));
      CHECK_EQ(store->remove(edge.first, edge.second), model->erase(edge) == 1);
    }
  }
}

template <class Body>
void for_all_options(const Body& body) {
  for (EdgeColumns columns : kAllColumns) {
    for (bool undirected : {false, true}) body(EdgeOptions{columns, undirected, false});
  }
}

bool same_columns(const GraphStore::Trees::Saved& a, const GraphStore::Trees::Saved& b) {
  return a.shape == b.shape && a.keys == b.keys && a.ids == b.ids && a.weights == b.weights && a.times == b.times;
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
      auto [source, target] = model.begin()->first;
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
        store.upsert(edge.first, edge.second, {});
        model[named(edge.first, edge.second, options.undirected)] = {};
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
    refused([](Columns* out, Columns*, size_t*) { out->shape.pop_back(); }, "column ends");
    refused([](Columns* out, Columns*, size_t*) { out->ids.pop_back(); }, "column ends");
    refused([](Columns* out, Columns*, size_t*) { out->ids.push_back(1); }, "left over");
    refused([](Columns* out, Columns*, size_t*) { out->shape.insert(out->shape.end(), {2, 0, 0}); }, "left over");
    // An index that no node has would be read past the end of every table.
    refused([](Columns* out, Columns*, size_t*) { out->ids[5] = 40; }, "no such node");
    refused([](Columns*, Columns*, size_t* num_edges) { ++*num_edges; }, "edges");
    refused([](Columns*, Columns*, size_t* num_edges) { *num_edges = 0; }, "edges");
    if (!options.undirected) {
      refused([](Columns*, Columns* in, size_t*) { in->ids[0] = UINT32_MAX; }, "no such node");
      refused([](Columns*, Columns* in, size_t*) { *in = {}; }, "column ends");
      refused(
          [](Columns*, Columns* in, size_t*) {
            *in = {};
            for (int node = 0; node < 40; ++node) in->shape.insert(in->shape.end(), {2, 0, 0});
          },
          "edges");
    }
  });
}

}  // namespace livegnn
