// Sampling and serving workers whose blocks a test delivers, and a plain graph that they are held against.
#pragma once

#include <algorithm>
#include <array>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "presampling/cache/sample_cache.h"
#include "presampling/shard/sampling_shard.h"
#include "presampling/tables/cell_model.h"
#include "testing/testing.h"

namespace livegnn::testing {

// Users click on items, items are bought together, users know users; users and items have features, pages have none.
inline const std::vector<PlannedEdgeType> kMarketTypes{
    {0, 1, false, true, true}, {1, 1, true, true, false}, {0, 0, false, false, true}, {1, 2, false, false, false}};
inline const std::vector<size_t> kMarketWidths{3, 5, 0};

inline QueryPlan random_market_plan(Random* random) {
  const auto count = [&] { return static_cast<int64_t>(1 + random->below(5)); };
  const auto by = [&] { return static_cast<SampleBy>(random->below(3)); };
  const auto one_of = [&] { return random->chance(0.5) ? SampleBy::kUniform : SampleBy::kLatest; };
  std::vector<OneHopRequest> requests;
  switch (random->below(4)) {
    case 0:  // two hops of one type
      requests = {{2, false, count(), one_of()}, {2, false, count(), one_of(), {0}}};
      break;
    case 1:  // three, the last one back, with weights and times
      requests = {{2, true, count(), one_of(), {kSeeds}, false, true},
                  {0, false, count(), by(), {0}, true, true},
                  {1, false, count(), random->chance(0.5) ? SampleBy::kUniform : SampleBy::kWeight, {1}, true}};
      break;
    case 2:  // several types in a hop, and queries with several parents
      requests = {{2, false, count()},
                  {0, false, count(), by()},
                  {0, false, count(), by(), {0}},
                  {2, true, count(), one_of(), {0}},
                  {1, true, count(), SampleBy::kUniform, {1}},
                  {1, false, count(), SampleBy::kWeight, {2, 4}},
                  {3, false, count(), SampleBy::kUniform, {4}}};
      break;
    default:
      requests = {{0, false, count(), by()}, {1, false, count(), SampleBy::kUniform, {0}}};
      if (random->chance(0.5)) requests.push_back({0, true, count(), by(), {1}});
  }
  return QueryPlan(0, 3, kMarketTypes, requests);
}

// The whole graph, as maps.
struct PlainGraph {
  std::map<uint32_t, std::map<uint64_t, CellList>> out, in;             // by edge type and node
  std::map<uint32_t, std::map<uint64_t, std::vector<float>>> features;  // by node type and node

  // An edge that is there with a later time stays.
  void add(uint32_t type, uint64_t source, uint64_t target, CellEdge edge) {
    const auto there = out[type][source].find(target);
    if (there != out[type][source].end() && there->second.time > edge.time) return;
    out[type][source][target] = in[type][target][source] = edge;
    if (kMarketTypes[type].undirected) out[type][target][source] = in[type][source][target] = edge;
  }
  void remove(uint32_t type, uint64_t source, uint64_t target) {
    out[type][source].erase(target), in[type][target].erase(source);
    if (kMarketTypes[type].undirected) out[type][target].erase(source), in[type][source].erase(target);
  }
  void remove_node(uint32_t node_type, uint64_t node) {
    features[node_type].erase(node);
    for (uint32_t type = 0; type < kMarketTypes.size(); ++type) {
      if (kMarketTypes[type].source_type == node_type) {
        out[type].erase(node);
        for (auto& [target, list] : in[type]) list.erase(node);
      }
      if (kMarketTypes[type].target_type == node_type) {
        in[type].erase(node);
        for (auto& [source, list] : out[type]) list.erase(node);
      }
    }
  }
  void expire(uint32_t type, double before) {
    for (auto* side : {&out[type], &in[type]}) {
      for (auto& [node, list] : *side) {
        std::erase_if(list, [&](const auto& one) { return one.second.time < before; });
      }
    }
  }
  const CellList& list(const OneHopQuery& query, uint64_t node) {
    return (query.incoming ? in : out)[query.edge_type][node];
  }
};

// What a serving worker should have: samples by (query, node), features by (node type, node).
struct Needed {
  std::map<std::pair<uint32_t, uint64_t>, std::vector<CellEntry>> samples;
  std::set<std::pair<uint32_t, uint64_t>> features;
};

// A full walk from all seeds that a worker has by any of these; `cell_of(query, node)` returns the entries of a cell.
template <class CellOf>
Needed walk(const QueryPlan& plan, uint64_t ids, uint32_t worker, const std::vector<Owners>& owners,
            const CellOf& cell_of) {
  Needed needed;
  std::vector<std::set<uint64_t>> keys(plan.size());
  for (uint64_t id = 0; id < ids; ++id) {
    if (std::ranges::none_of(owners, [&](const Owners& by) { return by.of_id(id) == worker; })) continue;
    needed.features.insert({plan.seed_type(), id});
    for (size_t q = 0; q < plan.size(); ++q) {
      if (plan[q].of_seeds()) keys[q].insert(id);
    }
  }
  for (uint32_t q = 0; q < plan.size(); ++q) {
    for (uint64_t key : keys[q]) {
      const std::vector<CellEntry> cell = cell_of(q, key);
      if (cell.empty()) continue;
      needed.samples[{q, key}] = cell;
      for (const CellEntry& entry : cell) {
        needed.features.insert({plan[q].neighbor_type, entry.neighbor.id});
        for (uint32_t child : plan[q].children) keys[child].insert(entry.neighbor.id);
      }
    }
  }
  return needed;
}

class WorkerNetwork {
 public:
  using Blocks = std::deque<std::vector<uint8_t>>;

  WorkerNetwork(QueryPlan plan, ShardOptions options)
      : plan(plan), options(options), owners{Owners(OwnerRule::kJump, options.serving_workers)} {
    for (uint32_t i = 0; i < options.sampling_workers; ++i) {
      options.worker = i;
      shards.push_back(std::make_unique<SamplingShard>(plan, options));
    }
    for (uint32_t i = 0; i < options.serving_workers; ++i) {
      caches.push_back(std::make_unique<SampleCache>(plan, options.feature_widths, i, options.sampling_workers));
    }
  }

  // Takes what a worker has to send into the queues.
  void collect(uint32_t from) {
    SamplingShard& shard = *shards[from];
    shard.finish();
    const auto take = [&](Blocks* to, std::span<const uint8_t> bytes) {
      if (!bytes.empty()) to->emplace_back(bytes.begin(), bytes.end());
    };
    for (uint32_t w = 0; w < options.sampling_workers; ++w) take(&between[{from, w}], shard.for_sampling(w));
    for (uint32_t w = 0; w < shard.num_serving(); ++w) take(&to_caches[{from, w}], shard.for_serving(w));
    shard.clear_outbox();
  }
  // Delivers what comes next between some pair; returns false if nothing is left. Sometimes it comes twice.
  bool deliver(Random* random) {
    std::vector<std::pair<uint32_t, uint32_t>> pairs, cache_pairs;
    for (auto& [pair, blocks] : between) {
      if (!blocks.empty()) pairs.push_back(pair);
    }
    for (auto& [pair, blocks] : to_caches) {
      if (!blocks.empty()) cache_pairs.push_back(pair);
    }
    if (pairs.empty() && cache_pairs.empty()) return false;
    const size_t i = random->below(pairs.size() + cache_pairs.size());
    const bool to_shard = i < pairs.size();
    const auto pair = to_shard ? pairs[i] : cache_pairs[i - pairs.size()];
    Blocks& blocks = to_shard ? between[pair] : to_caches[pair];
    for (int times = random->chance(0.1) ? 2 : 1; times > 0; --times) {
      if (to_shard) {
        shards[pair.second]->receive(blocks.front());
      } else {
        caches[pair.second]->apply(blocks.front());
        if (delivered) delivered(blocks.front());
      }
    }
    blocks.pop_front();
    if (to_shard) collect(pair.second);
    return true;
  }

  QueryPlan plan;
  ShardOptions options;
  std::vector<Owners> owners;                               // workers have their seeds by each of these
  std::function<void(std::span<const uint8_t>)> delivered;  // hears of what caches are given
  std::vector<std::unique_ptr<SamplingShard>> shards;
  std::vector<std::unique_ptr<SampleCache>> caches;
  std::map<std::pair<uint32_t, uint32_t>, Blocks> between, to_caches;  // by sender and receiver
};

// The cell of a node, as its sampling worker has it.
inline std::vector<CellEntry> cell_in(const WorkerNetwork& workers, uint32_t query, uint64_t node) {
  const uint32_t owner = Owners(OwnerRule::kModulo, workers.options.sampling_workers).of_id(node);
  const CellTable& table = workers.shards[owner]->cells(query);
  const CellView cell = table.find(node);
  std::vector<CellEntry> entries;
  for (uint32_t i = 0; i < cell.size; ++i) entries.push_back({0, table.format().neighbor_at(cell, i)});
  return entries;
}

// That each cache has what it needs, as it is, and nothing more. `ids`: all ids are below it.
template <class CellOf>
void check_caches(const WorkerNetwork& workers, PlainGraph* graph, uint64_t ids, const CellOf& cell_of) {
  for (uint32_t w = 0; w < workers.caches.size(); ++w) {
    const SampleCache& cache = *workers.caches[w];
    const Needed needed = walk(workers.plan, ids, w, workers.owners, cell_of);
    Lookups lookups;
    size_t samples = 0, rows = 0, features = 0;
    for (uint32_t q = 0; q < workers.plan.size(); ++q) samples += cache.num_samples(q);
    CHECK_EQ(samples, needed.samples.size());
    for (const auto& [key, cell] : needed.samples) {
      const OneHopQuery& query = workers.plan[key.first];
      const CellView found = cache.sample(key.first, key.second, &lookups);
      CHECK_EQ(found.size, cell.size());
      for (uint32_t i = 0; i < found.size; ++i) {
        CHECK_EQ(found.ids[i], cell[i].neighbor.id);
        if (query.weighted) CHECK_EQ(found.weights[i], cell[i].neighbor.weight);
        if (query.timed) CHECK_EQ(found.times[i], cell[i].neighbor.time);
      }
    }
    for (uint32_t type = 0; type < kMarketWidths.size(); ++type) rows += cache.num_features(type);
    for (const auto& [type, node] : needed.features) {
      const auto row = graph->features[type].find(node);
      if (row == graph->features[type].end()) continue;
      ++features;
      const float* found = cache.features(type, node, &lookups);
      CHECK(found != nullptr && std::equal(row->second.begin(), row->second.end(), found));
    }
    CHECK_EQ(rows, features);
    CHECK_EQ(lookups.samples, needed.samples.size());
    CHECK_EQ(lookups.features, features);
  }
}

struct PlainEdges {
  std::vector<uint64_t> sources, targets;
  std::vector<float> weights;
  std::vector<double> times;

  void add(uint64_t source, uint64_t target, CellEdge edge = {}) {
    sources.push_back(source);
    targets.push_back(target);
    weights.push_back(edge.weight);
    times.push_back(edge.time);
  }
  EdgeBatch batch() const { return {sources, targets, weights, times}; }
};

inline ShardOptions random_shard_options(Random* random, bool keep_edges) {
  return {0, 1 + random->index(4), 1 + random->index(4), random->below(100), keep_edges, kMarketWidths};
}

// Random events for all workers and the plain graph alike.
class NetworkStream {
 public:
  NetworkStream(WorkerNetwork* workers, PlainGraph* graph, Random* random, uint64_t ids)
      : workers_(workers), graph_(graph), random_(random), ids_(ids) {}

  void add_edges() {
    const uint32_t type = random_->index(kMarketTypes.size());
    PlainEdges edges;
    for (uint64_t i = random_->below(30); i > 0; --i) {
      const uint64_t source = random_->below(ids_), target = random_->below(ids_);
      CellEdge edge{random_->chance(0.1) ? -1.0f : random_->between(0, 5), static_cast<double>(random_->below(50))};
      if (!kMarketTypes[type].weighted) edge.weight = 1;
      if (!kMarketTypes[type].timed || !knows_times(type)) edge.time = 0;
      edges.add(source, target, edge);
      graph_->add(type, source, target, edge);
    }
    tell([&](SamplingShard* shard) { shard->add_edges(type, edges.batch()); });
  }
  void remove_edges() {
    const uint32_t type = random_->index(kMarketTypes.size());
    PlainEdges edges;
    for (const auto& [source, list] : graph_->out[type]) {
      for (const auto& [target, edge] : list) {
        if (random_->chance(0.1)) edges.add(source, target);
      }
    }
    edges.add(random_->below(ids_), random_->below(ids_));  // it may not be there
    for (size_t i = 0; i < edges.sources.size(); ++i) graph_->remove(type, edges.sources[i], edges.targets[i]);
    tell([&](SamplingShard* shard) { shard->remove_edges(type, {edges.sources, edges.targets}); });
  }
  void set_features() {
    const uint32_t type = random_->index(kMarketWidths.size());
    std::vector<uint64_t> nodes;
    std::vector<float> rows;
    for (uint64_t i = random_->below(20); i > 0; --i) {
      nodes.push_back(random_->below(ids_));
      const std::vector<float> row = random_->floats(kMarketWidths[type]);
      rows.insert(rows.end(), row.begin(), row.end());
      if (!row.empty()) graph_->features[type][nodes.back()] = row;
    }
    tell([&](SamplingShard* shard) { shard->set_features(type, nodes, rows); });
  }
  void remove_nodes() {
    const uint32_t type = random_->index(kMarketWidths.size());
    std::vector<uint64_t> nodes;
    for (uint64_t i = random_->below(4); i > 0; --i) nodes.push_back(random_->below(ids_));
    for (uint64_t node : nodes) graph_->remove_node(type, node);
    tell([&](SamplingShard* shard) { shard->remove_nodes(type, nodes); });
  }
  void add_missing() {
    const uint32_t type = random_->index(kMarketWidths.size());
    const std::vector<float> row = random_->floats(kMarketWidths[type]);
    std::vector<uint64_t> nodes;
    for (uint64_t i = random_->below(8); i > 0; --i) nodes.push_back(random_->below(ids_));
    for (uint64_t node : nodes) {
      if (!row.empty()) graph_->features[type].try_emplace(node, row);
    }
    tell([&](SamplingShard* shard) { shard->add_missing(type, nodes, row); });
  }
  // Of a type whose queries have times; otherwise it is refused.
  void expire() {
    const uint32_t type = random_->index(kMarketTypes.size());
    const double before = static_cast<double>(random_->below(20));
    if (!can_expire(type)) {
      for (const auto& shard : workers_->shards) {
        CHECK_THROWS(shard->expire(type, before), std::invalid_argument, "keep no times");
      }
      return;
    }
    graph_->expire(type, before);
    tell([&](SamplingShard* shard) { shard->expire(type, before); });
  }
  void one(double removals) {
    if (random_->chance(removals)) {
      random_->chance(0.6) ? remove_edges() : random_->chance(0.5) ? remove_nodes() : expire();
    } else {
      random_->chance(0.7) ? add_edges() : random_->chance(0.8) ? set_features() : add_missing();
    }
  }
  void deliver_all() {
    while (workers_->deliver(random_)) {
    }
  }

 private:
  // A worker can tell late edges from others if each query over them has their times.
  bool knows_times(uint32_t type) const {
    return std::ranges::all_of(workers_->plan.queries(), [&](const OneHopQuery& query) {
      return query.edge_type != type || query.timed || query.by == SampleBy::kLatest;
    });
  }
  // Lists have times if a query over them has; without lists each query needs its own.
  bool can_expire(uint32_t type) const {
    std::map<bool, std::vector<bool>> timed;  // by direction
    for (const OneHopQuery& query : workers_->plan.queries()) {
      if (query.edge_type == type) timed[query.incoming].push_back(query.timed || query.by == SampleBy::kLatest);
    }
    return std::all_of(timed.begin(), timed.end(), [&](const auto& side) {
      const auto& all = side.second;
      return workers_->options.keep_edges ? std::count(all.begin(), all.end(), true) > 0
                                          : std::count(all.begin(), all.end(), false) == 0;
    });
  }
  template <class Tell>
  void tell(const Tell& tell) {
    for (uint32_t i = 0; i < workers_->shards.size(); ++i) {
      tell(workers_->shards[i].get());
      if (random_->chance(0.7)) workers_->collect(i);
      for (uint64_t k = random_->below(6); k > 0; --k) workers_->deliver(random_);
    }
  }

  WorkerNetwork* workers_;
  PlainGraph* graph_;
  Random* random_;
  uint64_t ids_;
};

inline void collect_all(WorkerNetwork* workers) {
  for (uint32_t i = 0; i < workers->shards.size(); ++i) workers->collect(i);
}

inline void check_against_lists(const WorkerNetwork& workers, PlainGraph* graph, uint64_t ids) {
  check_caches(workers, graph, ids, [&](uint32_t q, uint64_t node) {
    return best_of(workers.plan.cell_options(q, workers.options.seed), node, graph->list(workers.plan[q], node));
  });
}

}  // namespace livegnn::testing
