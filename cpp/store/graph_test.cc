#include <algorithm>
#include <array>
#include <atomic>
#include <filesystem>
#include <limits>
#include <map>
#include <mutex>
#include <numeric>
#include <set>
#include <shared_mutex>
#include <thread>

#include "store/stage.h"
#include "testing/allocations.h"
#include "testing/testing.h"

namespace livegnn {
namespace {

using testing::Random;
using Floats = std::vector<float>;
struct Edge {
  float weight;
  double time;
  Floats x;
  bool operator==(const Edge&) const = default;
};
template <class Id>
using EdgeMap = std::map<std::pair<Id, Id>, Edge>;

const std::vector<size_t> kWidths{3, 20};
const std::vector<EdgeTypeSpec> kEdgeTypes{
    {0, 0, {{true, true}, false, false}},
    {0, 0, {{true, false}, true, false}, 3},
    {0, 1, {{false, true}, false, false}, 20, true},
    {1, 0, {{true, true}, false, true}, 1, true},
    {1, 1, {{false, false}, true, false}},
    {0, 0, {{true, true}, true, true}, 2, true},
    {1, 0, {{false, false}, false, true}},
    {1, 1, {{false, true}, false, false, false}, 2, true},
};

// The same, and types that keep parallel edges apart.
std::vector<EdgeTypeSpec> with_keyed_types() {
  std::vector<EdgeTypeSpec> types = kEdgeTypes;
  for (EdgeTypeSpec spec :
       {EdgeTypeSpec{0, 0, {{true, true}, false, false}, 3, true}, EdgeTypeSpec{0, 1, {{true, false}, false, false}},
        EdgeTypeSpec{1, 1, {{false, true}, true, false}, 2, true}}) {
    spec.options.keyed = true;
    spec.options.samtree.capacity = 4;  // so that parallel edges make trees
    spec.options.samtree.slack = 1;
    types.push_back(spec);
  }
  return types;
}

// What a graph means, by the users' ids alone. A node that is removed and added again is another one: births tell.
struct Model {
  struct Node {
    int birth;
    Floats x;
  };
  std::vector<std::map<int64_t, Node>> nodes{kWidths.size()};
  std::vector<EdgeMap<int64_t>> edges{kEdgeTypes.size()};
  int births = 0;

  static std::pair<int64_t, int64_t> named(uint32_t type, int64_t source, int64_t target) {
    if (kEdgeTypes[type].options.undirected && target < source) std::swap(source, target);
    return {source, target};
  }
  void add_edge(uint32_t type, int64_t source, int64_t target, float weight, double time, const float* x) {
    const EdgeOptions& options = kEdgeTypes[type].options;
    if (!options.columns.weighted) weight = 1;
    if (!options.columns.timed) time = 0;
    const size_t width = kEdgeTypes[type].width;
    auto [at, is_new] = edges[type].try_emplace(named(type, source, target), Edge{weight, time, Floats(width)});
    Edge& edge = at->second;
    const bool late = options.columns.timed && time < edge.time;
    if (!late && x != nullptr) edge.x.assign(x, x + width);
    if (is_new) return;
    if (options.accumulate && options.columns.weighted) {
      edge.weight += weight;
      edge.time = std::max(edge.time, time);
    } else if (!late) {
      edge.weight = weight;
      edge.time = time;
    }
  }
  void remove_edge(uint32_t type, int64_t source, int64_t target) { edges[type].erase(named(type, source, target)); }
  void add_node(uint32_t type, int64_t id, const float* x) {
    auto [at, is_new] = nodes[type].try_emplace(id, Node{births, Floats(kWidths[type])});
    births += is_new ? 1 : 0;
    if (x != nullptr) at->second.x.assign(x, x + kWidths[type]);
  }
  void remove_node(uint32_t type, int64_t id) {
    nodes[type].erase(id);
    for (uint32_t e = 0; e < edges.size(); ++e) {
      std::erase_if(edges[e], [&](const auto& edge) {
        return (kEdgeTypes[e].source_type == type && edge.first.first == id) ||
               (kEdgeTypes[e].target_type == type && edge.first.second == id);
      });
    }
  }
};

template <class Visit>
void for_each_edge(const Graph::EdgeType& type, const Visit& visit) {
  const GraphStore& store = *type.store;
  for (uint32_t source = 0; source < store.num_sources(); ++source) {
    store.scan_out(source, [&](NeighborSpan span) {
      for (size_t i = 0; i < span.size; ++i) {
        if (store.options().undirected && span.ids[i] < source) continue;
        CHECK_EQ(span.rows != nullptr, type.spec.width > 0);
        const float* x = span.rows ? type.features.table().row(span.rows[i]) : nullptr;
        visit(source, span.ids[i],
              Edge{span.weights ? span.weights[i] : 1.0f, span.times ? span.times[i] : 0.0,
                   x ? Floats(x, x + type.spec.width) : Floats()});
      }
    });
  }
}

EdgeMap<uint32_t> edges_by_index(const Graph::EdgeType& type) {
  EdgeMap<uint32_t> edges;
  for_each_edge(type, [&](uint32_t source, uint32_t target, const Edge& edge) {
    CHECK(edges.emplace(std::pair{source, target}, edge).second);
  });
  return edges;
}

// Every row is free, and zero, or belongs to one edge, both of whose lists name it.
void check_rows(const Graph::EdgeType& type) {
  const Table& table = type.features.table();
  if (type.spec.width == 0) {
    CHECK_EQ(table.rows(), 0u);
    return;
  }
  std::vector<int> owners(table.rows());
  for_each_edge(type, [&](uint32_t source, uint32_t target, const Edge&) {
    const uint32_t row = type.store->find(source, target)->row;
    ++owners.at(row);
    if (type.spec.options.undirected) CHECK_EQ(type.store->find(target, source)->row, row);
    if (!type.store->has_in()) return;
    type.store->scan_in(target, [&](NeighborSpan span) {
      for (size_t i = 0; i < span.size; ++i) CHECK(span.ids[i] != source || span.rows[i] == row);
    });
  });
  for (uint32_t row : type.features.free_list()) {
    ++owners.at(row);
    CHECK(std::all_of(table.row(row), table.row(row) + table.stride(), [](float v) { return v == 0; }));
  }
  CHECK(std::all_of(owners.begin(), owners.end(), [](int count) { return count == 1; }));
}

void check_against(const Graph& graph, const Model& model) {
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const auto& [ids, features] = graph.nodes[n];
    CHECK_EQ(ids.size(), model.nodes[n].size());
    CHECK_EQ(features.rows(), ids.capacity());
    for (const auto& [id, node] : model.nodes[n]) {
      uint32_t index = ids.index_of(id);
      CHECK(index != kNoIndex);
      CHECK(std::equal(node.x.begin(), node.x.end(), features.row(index)));
    }
    for (uint32_t index : ids.free_list()) {
      CHECK(std::all_of(features.row(index), features.row(index) + features.stride(), [](float v) { return v == 0; }));
    }
  }
  for (uint32_t e = 0; e < graph.edges.size(); ++e) {
    const EdgeTypeSpec& spec = graph.edges[e].spec;
    const GraphStore* store = graph.edges[e].store.get();
    store->check();
    EdgeMap<int64_t> found;
    for_each_edge(graph.edges[e], [&](uint32_t source, uint32_t target, const Edge& edge) {
      auto value = store->find(source, target);
      CHECK(value && value->weight == edge.weight && value->time == edge.time);
      found[Model::named(e, graph.nodes[spec.source_type].ids.id_of(source),
                         graph.nodes[spec.target_type].ids.id_of(target))] = edge;
    });
    check_rows(graph.edges[e]);
    CHECK_EQ(store->num_edges(), found.size());
    CHECK(found == model.edges[e]);
  }
}

// Everything that the graph keeps, in its order.
struct Copy {
  std::vector<std::vector<int64_t>> ids;
  std::vector<std::vector<uint32_t>> numbers;
  std::vector<Floats> floats;
  std::vector<std::vector<double>> times;
  std::vector<std::vector<uint64_t>> keyed;
  bool operator==(const Copy&) const = default;

  template <class Saved>
  void add(Saved&& columns) {
    if constexpr (std::is_same_v<std::remove_cvref_t<Saved>, GraphStore::Trees::Saved>) {
      numbers.insert(numbers.end(), {columns.keys, columns.ids});
    } else {
      keyed.insert(keyed.end(), {columns.keys, columns.ids});
    }
    numbers.insert(numbers.end(), {columns.shape, columns.rows});
    floats.push_back(columns.weights);
    times.push_back(columns.times);
  }
};

Copy copy(const Graph& graph) {
  Copy to;
  for (const auto& [ids, features] : graph.nodes) {
    to.ids.push_back(ids.ids());
    to.numbers.push_back(ids.free_list());
    to.floats.emplace_back(features.row(0), features.row(0) + features.rows() * features.stride());
  }
  for (const Graph::EdgeType& type : graph.edges) {
    if (type.spec.options.keyed) {
      to.add(type.store->save_keyed_out());
      to.add(type.store->save_keyed_in());
    } else {
      to.add(type.store->save_out());
      to.add(type.store->save_in());
    }
    const Table& table = type.features.table();
    to.numbers.push_back(type.features.free_list());
    if (table.rows() > 0) to.floats.emplace_back(table.row(0), table.row(0) + table.rows() * table.stride());
  }
  return to;
}

// One random call of a stage, and the same on the model.
void stage_at_random(Random* random, Stage* stage, Model* model, size_t* num_events) {
  auto some_id = [&](uint32_t type) {
    auto& nodes = model->nodes[type];
    auto at = nodes.begin();
    std::advance(at, random->below(nodes.size()));
    return at->first;
  };
  const uint64_t kind = random->below(16);
  const size_t count = 1 + random->below(5);
  if (kind < 11) {
    const uint32_t type = random->index(kEdgeTypes.size());
    const EdgeTypeSpec& spec = kEdgeTypes[type];
    if (model->nodes[spec.source_type].empty() || model->nodes[spec.target_type].empty()) return;
    std::vector<int64_t> sources, targets;
    Floats weights;
    std::vector<double> times;
    for (size_t i = 0; i < count; ++i) {
      sources.push_back(some_id(spec.source_type));
      targets.push_back(some_id(spec.target_type));
      // Few values, so that some edges come again as they were.
      weights.push_back(static_cast<float>(random->below(4)) - 1);
      times.push_back(static_cast<double>(random->below(4)));
      const auto& known = model->edges[type];
      if (random->chance(0.5) && !known.empty()) {
        auto at = known.begin();
        std::advance(at, random->below(known.size()));
        std::tie(sources[i], targets[i]) = at->first;
        if (spec.options.undirected && random->chance(0.5)) std::swap(sources[i], targets[i]);
      }
    }
    if (kind < 7) {
      const float* weight = random->chance(0.8) ? weights.data() : nullptr;
      const double* time = random->chance(0.8) ? times.data() : nullptr;
      // Few values here too.
      Floats rows(count * spec.width);
      for (float& value : rows) value = static_cast<float>(random->below(2));
      const float* x = spec.width > 0 && random->chance(0.7) ? rows.data() : nullptr;
      stage->add_edges(type, sources.data(), targets.data(), weight, time, x, spec.width, count);
      for (size_t i = 0; i < count; ++i) {
        model->add_edge(type, sources[i], targets[i], weight ? weight[i] : 1, time ? time[i] : 0,
                        x ? x + i * spec.width : nullptr);
      }
    } else {
      stage->remove_edges(type, sources.data(), targets.data(), count);
      for (size_t i = 0; i < count; ++i) model->remove_edge(type, sources[i], targets[i]);
    }
    *num_events += count;
    return;
  }
  const uint32_t type = random->index(kWidths.size());
  const Floats x = random->floats(count * kWidths[type]);
  std::vector<int64_t> ids;
  if (kind < 13) {
    const float* rows = random->chance(0.5) ? x.data() : nullptr;
    for (size_t i = 0; i < count; ++i) {
      ids.push_back(static_cast<int64_t>(random->below(30)) * (random->chance(0.1) ? 1'000'000'007 : 1));
    }
    stage->add_nodes(type, ids.data(), rows, kWidths[type], count);
    for (size_t i = 0; i < count; ++i) model->add_node(type, ids[i], rows ? rows + i * kWidths[type] : nullptr);
  } else {
    if (model->nodes[type].empty()) return;
    for (size_t i = 0; i < count; ++i) {
      int64_t id = some_id(type);
      if (kind == 13 && std::find(ids.begin(), ids.end(), id) != ids.end()) break;  // none is removed twice
      ids.push_back(id);
    }
    if (kind == 13) {
      stage->remove_nodes(type, ids.data(), ids.size());
      for (int64_t id : ids) model->remove_node(type, id);
    } else {
      stage->set_features(type, ids.data(), x.data(), kWidths[type], count);
      for (size_t i = 0; i < count; ++i) model->add_node(type, ids[i], x.data() + i * kWidths[type]);
    }
  }
  *num_events += ids.size();
}

// Edges of a type with keys, some of them named, between few nodes; one of them is to be a hub.
void stage_keyed_at_random(Random* random, Stage* stage, const Model& model, uint32_t type, const EdgeTypeSpec& spec) {
  const auto& from = model.nodes[spec.source_type];
  const auto& to = model.nodes[spec.target_type];
  if (from.empty() || to.empty()) return;
  const size_t count = 1 + random->below(12);
  std::vector<int64_t> sources, targets;
  std::vector<uint32_t> keys;
  std::vector<double> times;
  for (size_t i = 0; i < count; ++i) {
    sources.push_back(
        std::next(from.begin(), static_cast<int>(random->below(std::min<size_t>(from.size(), 3))))->first);
    targets.push_back(std::next(to.begin(), static_cast<int>(random->below(std::min<size_t>(to.size(), 3))))->first);
    keys.push_back(random->index(9));
    times.push_back(static_cast<double>(random->below(6)));
  }
  const uint32_t* key = random->chance(0.5) ? keys.data() : nullptr;
  if (random->chance(0.3)) {
    stage->remove_edges(type, sources.data(), targets.data(), count, key);
    return;
  }
  const Floats weights = random->floats(count), x = random->floats(count * spec.width);
  const bool featured = spec.width > 0 && random->chance(0.7);
  stage->add_edges(type, sources.data(), targets.data(), weights.data(), times.data(), featured ? x.data() : nullptr,
                   spec.width, count, key);
}

void check_node_delta(const NodeDelta& delta, const std::map<int64_t, Model::Node>& before,
                      const std::map<int64_t, Model::Node>& after) {
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

std::vector<EdgeMap<uint32_t>> all_edges(const Graph& graph) {
  std::vector<EdgeMap<uint32_t>> edges;
  for (const auto& type : graph.edges) edges.push_back(edges_by_index(type));
  return edges;
}

// A graph of the first kind of node and one kind of edge.
void apply_delta(const Delta& delta, Graph* graph) {
  graph->prepare(delta);
  {
    std::unique_lock lock(graph->lock);
    testing::check_allocates_nothing([&] { graph->commit(delta); });
  }
  graph->settle();
}

struct Small {
  explicit Small(EdgeOptions options = {}, size_t nodes = 4) : Small(0, false, options, nodes) {}
  Small(size_t edge_width, bool expires, EdgeOptions options, size_t nodes)
      : graph({2}, {{0, 0, options, edge_width, expires}}) {
    apply([&](Stage& stage) {
      for (size_t i = 0; i < nodes; ++i) {
        auto id = static_cast<int64_t>(i);
        const float x[] = {static_cast<float>(i), 1};
        stage.add_nodes(0, &id, x, 2, 1);
      }
    });
  }
  template <class Body>
  Delta apply(const Body& body) {
    Stage stage(graph);
    body(stage);
    Delta delta = stage.finish();
    apply_delta(delta, &graph);
    return delta;
  }
  const GraphStore& store() const { return *graph.edges[0].store; }

  Graph graph;
};

void add_edge(Stage& stage, int64_t source, int64_t target, float weight = 1, double time = 0) {
  stage.add_edges(0, &source, &target, &weight, &time, nullptr, 0, 1);
}
void add_featured(Stage& stage, int64_t source, int64_t target, float x) {
  stage.add_edges(0, &source, &target, nullptr, nullptr, &x, 1, 1);
}
void remove_edge(Stage& stage, int64_t source, int64_t target) { stage.remove_edges(0, &source, &target, 1); }
void add_node(Stage& stage, int64_t id) { stage.add_nodes(0, &id, nullptr, 0, 1); }
void remove_node(Stage& stage, int64_t id) { stage.remove_nodes(0, &id, 1); }

}  // namespace

TEST(graph_agrees_with_a_plain_model) {
  Random random;
  for (int run = 0; run < 12; ++run) {
    Graph graph(kWidths, kEdgeTypes);
    Model model;
    for (int batch = 0; batch < 60; ++batch) {
      const Model old_model = model;
      const Copy old_copy = copy(graph);
      const auto old_edges = all_edges(graph);
      size_t num_events = 0;
      Stage stage(graph);
      // Large batches fill the maps that small ones do without.
      for (uint64_t n = batch % 10 == 9 ? 120 : random.below(12); n > 0; --n) {
        stage_at_random(&random, &stage, &model, &num_events);
      }
      const Delta delta = stage.finish();
      CHECK(copy(graph) == old_copy);
      CHECK_EQ(delta.num_events, num_events);
      apply_delta(delta, &graph);
      check_against(graph, model);
      for (size_t n = 0; n < kWidths.size(); ++n) {
        check_node_delta(delta.nodes[n], old_model.nodes[n], model.nodes[n]);
        CHECK_EQ(delta.nodes[n].capacity, graph.nodes[n].ids.capacity());
      }
      const auto new_edges = all_edges(graph);
      for (uint32_t e = 0; e < kEdgeTypes.size(); ++e) check_edge_delta(delta, e, old_edges[e], new_edges[e]);
      if (random.chance(0.3)) check_expired(&graph, static_cast<double>(random.below(5)) - 1);
    }
  }
}

TEST(graph_drops_what_comes_to_nothing) {
  for (bool undirected : {false, true}) {
    Small small({{true, true}, undirected, false});
    small.apply([](Stage& stage) { add_edge(stage, 0, 1, 2, 5); });
    const Copy before = copy(small.graph);
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

TEST(graph_goes_by_the_time_of_an_event) {
  Small small({{true, true}, false, false});
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

TEST(graph_adds_up_weights_where_it_is_told_to) {
  Small small({{true, true}, true, true});
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

TEST(graph_keeps_the_old_features_of_an_edge_until_the_commit) {
  Small small(1, false, {}, 4);
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
    Model model;
    size_t failures = 0;
    for (int batch = 0; batch < 12; ++batch) {
      Stage stage(graph);
      size_t num_events = 0;
      for (size_t call = random.below(batch % 4 == 3 ? 400 : 40); call > 0; --call) {
        stage_at_random(&random, &stage, &model, &num_events);
        const uint32_t keyed =
            static_cast<uint32_t>(kEdgeTypes.size()) + random.index(types.size() - kEdgeTypes.size());
        if (random.chance(0.3)) stage_keyed_at_random(&random, &stage, model, keyed, types[keyed]);
      }
      const Delta delta = stage.finish();
      const Copy before = copy(graph);
      failures += testing::fail_each_allocation([&] { graph.prepare(delta); }, [&] { CHECK(copy(graph) == before); });
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
  Small small({{true, true}, false, false}, 0);
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
  Small small(0, true, {{false, true}, true, false}, 200);
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
  Small small({}, 10);
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
  const auto& [ids, features] = small.graph.nodes[0];
  CHECK_EQ(ids.capacity(), 10u);
  CHECK_EQ(ids.index_of(500), 7u);
  CHECK_EQ(ids.index_of(501), 4u);
  CHECK_EQ(features.row(4)[0] + features.row(7)[1], 0.0f);  // not those of the old nodes
  CHECK(small.store().find(4, 7).has_value());
  CHECK_EQ(small.store().degree_in(4), 0u);
}

TEST(graph_adds_and_removes_a_node_in_one_batch) {
  Small small;
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

TEST(graph_refuses_bad_events_and_stays_as_it_is) {
  Small small({{true, true}, false, false});
  small.apply([](Stage& stage) { add_edge(stage, 0, 1, 2, 5); });
  const Copy before = copy(small.graph);
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
  const float x[] = {1, 2, 3}, bad_x[] = {1, kNan};
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
  refused(BadEvent::kNotFinite, kNoId, [](Stage& stage) { add_edge(stage, 0, 1, kNan); });
  refused(BadEvent::kNotFinite, kNoId, [](Stage& stage) { add_edge(stage, 0, 1, -kInfinity); });
  refused(BadEvent::kNotFinite, kNoId, [](Stage& stage) { add_edge(stage, 0, 1, 1, double{kInfinity}); });
  refused(BadEvent::kNotFinite, kNoId, [&](Stage& stage) { stage.set_features(0, &zero, bad_x, 2, 1); });
  refused(BadEvent::kNotFinite, kNoId, [&](Stage& stage) { stage.add_nodes(0, &unknown, bad_x, 2, 1); });
  refused(BadEvent::kWidth, kNoId, [&](Stage& stage) { stage.set_features(0, &zero, x, 3, 1); });
  refused(BadEvent::kWidth, kNoId, [&](Stage& stage) { stage.add_nodes(0, &unknown, x, 1, 1); });
  refused(BadEvent::kNegativeId, -1, [](Stage& stage) { add_node(stage, -1); });
}

}  // namespace livegnn
