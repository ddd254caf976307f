// Reference model for the tests of a graph: maps of nodes and edges by the user's ids, and events that change both.
#pragma once

#include <algorithm>
#include <iterator>
#include <map>
#include <mutex>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "store/graph.h"
#include "store/stage.h"
#include "testing/allocations.h"
#include "testing/testing.h"

namespace livegnn::testing {

using Floats = std::vector<float>;
struct EdgeWithFeatures {
  float weight;
  double time;
  Floats x;
  bool operator==(const EdgeWithFeatures&) const = default;
};
template <class Id>
using EdgeMap = std::map<std::pair<Id, Id>, EdgeWithFeatures>;

inline const std::vector<size_t> kWidths{3, 20};
inline const std::vector<EdgeTypeSpec> kEdgeTypes{
    {0, 0, {{true, true}, false, false}},
    {0, 0, {{true, false}, true, false}, 3},
    {0, 1, {{false, true}, false, false}, 20, true},
    {1, 0, {{true, true}, false, true}, 1, true},
    {1, 1, {{false, false}, true, false}},
    {0, 0, {{true, true}, true, true}, 2, true},
    {1, 0, {{false, false}, false, true}},
    {1, 1, {{false, true}, false, false, false}, 2, true},
};

// The same edge types, and types with parallel edges.
inline std::vector<EdgeTypeSpec> with_keyed_types() {
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

// The contents of a graph, expressed in the user's ids. A node that is removed and added again is a new node: `birth`
// distinguishes them.
struct GraphModel {
  struct Node {
    int birth;
    Floats x;
  };
  std::vector<std::map<int64_t, Node>> nodes{kWidths.size()};
  std::vector<EdgeMap<int64_t>> edges{kEdgeTypes.size()};
  int births = 0;

  int64_t some_id(uint32_t type, Random* random) const {
    return std::next(nodes[type].begin(), random->index(nodes[type].size()))->first;
  }

  static std::pair<int64_t, int64_t> named(uint32_t type, int64_t source, int64_t target) {
    if (kEdgeTypes[type].options.undirected && target < source) std::swap(source, target);
    return {source, target};
  }
  void add_edge(uint32_t type, int64_t source, int64_t target, float weight, double time, const float* x) {
    const EdgeOptions& options = kEdgeTypes[type].options;
    if (!options.columns.weighted) weight = 1;
    if (!options.columns.timed) time = 0;
    const size_t width = kEdgeTypes[type].width;
    auto [at, is_new] =
        edges[type].try_emplace(named(type, source, target), EdgeWithFeatures{weight, time, Floats(width)});
    EdgeWithFeatures& edge = at->second;
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
              EdgeWithFeatures{span.weights ? span.weights[i] : 1.0f, span.times ? span.times[i] : 0.0,
                               x ? Floats(x, x + type.spec.width) : Floats()});
      }
    });
  }
}

inline EdgeMap<uint32_t> edges_by_index(const Graph::EdgeType& type) {
  EdgeMap<uint32_t> edges;
  for_each_edge(type, [&](uint32_t source, uint32_t target, const EdgeWithFeatures& edge) {
    CHECK(edges.emplace(std::pair{source, target}, edge).second);
  });
  return edges;
}

// Checks that every row is either free and zero, or belongs to one edge, and that both lists of that edge refer to it.
inline void check_rows(const Graph::EdgeType& type) {
  const Table& table = type.features.table();
  if (type.spec.width == 0) {
    CHECK_EQ(table.rows(), 0u);
    return;
  }
  std::vector<int> owners(table.rows());
  for_each_edge(type, [&](uint32_t source, uint32_t target, const EdgeWithFeatures&) {
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

inline void check_against(const Graph& graph, const GraphModel& model) {
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const IdMap& ids = graph.nodes[n].ids;
    const NodeFeatures& features = graph.nodes[n].features;
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
    for_each_edge(graph.edges[e], [&](uint32_t source, uint32_t target, const EdgeWithFeatures& edge) {
      auto value = store->find(source, target);
      CHECK(value && value->weight == edge.weight && value->time == edge.time);
      found[GraphModel::named(e, graph.nodes[spec.source_type].ids.id_of(source),
                              graph.nodes[spec.target_type].ids.id_of(target))] = edge;
    });
    check_rows(graph.edges[e]);
    CHECK_EQ(store->num_edges(), found.size());
    CHECK(found == model.edges[e]);
  }
}

// Everything that the graph keeps, in its internal order.
struct GraphCopy {
  std::vector<std::vector<int64_t>> ids;
  std::vector<std::vector<uint32_t>> numbers;
  std::vector<Floats> floats;
  std::vector<std::vector<double>> times;
  std::vector<std::vector<uint64_t>> keyed;
  bool operator==(const GraphCopy&) const = default;

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

inline GraphCopy copy(const Graph& graph) {
  GraphCopy to;
  for (const auto& [ids, features, times] : graph.nodes) {
    to.ids.push_back(ids.ids());
    to.numbers.push_back(ids.free_list());
    to.floats.emplace_back(features.row(0), features.row(0) + features.rows() * features.stride());
    to.times.push_back(times.values());
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

// Makes one random call of a stage with edges, and the same on the model. Returns the number of events.
inline size_t stage_edges_at_random(Random* random, Stage* stage, GraphModel* model) {
  const uint32_t type = random->index(kEdgeTypes.size());
  const EdgeTypeSpec& spec = kEdgeTypes[type];
  if (model->nodes[spec.source_type].empty() || model->nodes[spec.target_type].empty()) return 0;
  const size_t count = 1 + random->below(5);
  std::vector<int64_t> sources, targets;
  Floats weights;
  std::vector<double> times;
  for (size_t i = 0; i < count; ++i) {
    sources.push_back(model->some_id(spec.source_type, random));
    targets.push_back(model->some_id(spec.target_type, random));
    // Few different values, so that some edges are added again unchanged.
    weights.push_back(static_cast<float>(random->below(4)) - 1);
    times.push_back(static_cast<double>(random->below(4)));
    const auto& known = model->edges[type];
    if (random->chance(0.5) && !known.empty()) {
      std::tie(sources[i], targets[i]) = std::next(known.begin(), random->index(known.size()))->first;
      if (spec.options.undirected && random->chance(0.5)) std::swap(sources[i], targets[i]);
    }
  }
  if (random->chance(0.36)) {
    stage->remove_edges(type, sources.data(), targets.data(), count);
    for (size_t i = 0; i < count; ++i) model->remove_edge(type, sources[i], targets[i]);
    return count;
  }
  const float* weight = random->chance(0.8) ? weights.data() : nullptr;
  const double* time = random->chance(0.8) ? times.data() : nullptr;
  // Few different values here too.
  Floats rows(count * spec.width);
  for (float& value : rows) value = static_cast<float>(random->below(2));
  const float* x = spec.width > 0 && random->chance(0.7) ? rows.data() : nullptr;
  stage->add_edges(type, sources.data(), targets.data(), weight, time, x, spec.width, count);
  for (size_t i = 0; i < count; ++i) {
    model->add_edge(type, sources[i], targets[i], weight ? weight[i] : 1, time ? time[i] : 0,
                    x ? x + i * spec.width : nullptr);
  }
  return count;
}

// The same for nodes.
inline size_t stage_nodes_at_random(Random* random, Stage* stage, GraphModel* model) {
  enum { kAdd, kAddToo, kRemove, kSetFeatures, kKinds };
  const uint64_t kind = random->below(kKinds);
  const uint32_t type = random->index(kWidths.size());
  const size_t count = 1 + random->below(5), width = kWidths[type];
  const Floats x = random->floats(count * width);
  std::vector<int64_t> ids;
  if (kind <= kAddToo) {
    const float* rows = random->chance(0.5) ? x.data() : nullptr;
    for (size_t i = 0; i < count; ++i) {
      ids.push_back(static_cast<int64_t>(random->below(30)) * (random->chance(0.1) ? 1'000'000'007 : 1));
    }
    stage->add_nodes(type, ids.data(), rows, width, count);
    for (size_t i = 0; i < count; ++i) model->add_node(type, ids[i], rows ? rows + i * width : nullptr);
    return count;
  }
  if (model->nodes[type].empty()) return 0;
  for (size_t i = 0; i < count; ++i) {
    const int64_t id = model->some_id(type, random);
    if (kind == kRemove && std::find(ids.begin(), ids.end(), id) != ids.end()) break;  // no node is removed twice
    ids.push_back(id);
  }
  if (kind == kRemove) {
    stage->remove_nodes(type, ids.data(), ids.size());
    for (int64_t id : ids) model->remove_node(type, id);
  } else {
    stage->set_features(type, ids.data(), x.data(), width, count);
    for (size_t i = 0; i < count; ++i) model->add_node(type, ids[i], x.data() + i * width);
  }
  return ids.size();
}

inline size_t stage_at_random(Random* random, Stage* stage, GraphModel* model) {
  return random->chance(0.7) ? stage_edges_at_random(random, stage, model)
                             : stage_nodes_at_random(random, stage, model);
}

// Edges of a type with keys, some of them with explicit keys, between few nodes, one of which becomes a hub.
inline void stage_keyed_at_random(Random* random, Stage* stage, const GraphModel& model, uint32_t type,
                                  const EdgeTypeSpec& spec) {
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

// Prepares, commits and settles a batch.
inline void apply_delta(const Delta& delta, Graph* graph) {
  graph->prepare(delta);
  {
    std::unique_lock lock(graph->lock);
    testing::check_allocates_nothing([&] { graph->commit(delta); });
  }
  graph->settle();
}

// A graph with one node type and one edge type.
struct SmallGraph {
  explicit SmallGraph(EdgeOptions options = {}, size_t nodes = 4) : SmallGraph(0, false, options, nodes) {}
  SmallGraph(size_t edge_width, bool expires, EdgeOptions options, size_t nodes)
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

inline void add_edge(Stage& stage, int64_t source, int64_t target, float weight = 1, double time = 0) {
  stage.add_edges(0, &source, &target, &weight, &time, nullptr, 0, 1);
}
inline void add_featured(Stage& stage, int64_t source, int64_t target, float x) {
  stage.add_edges(0, &source, &target, nullptr, nullptr, &x, 1, 1);
}
inline void remove_edge(Stage& stage, int64_t source, int64_t target) { stage.remove_edges(0, &source, &target, 1); }
inline void add_node(Stage& stage, int64_t id) { stage.add_nodes(0, &id, nullptr, 0, 1); }
inline void remove_node(Stage& stage, int64_t id) { stage.remove_nodes(0, &id, 1); }

}  // namespace livegnn::testing
