#include "presampling/cache/cache_assembly.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "presampling/worker_model.h"
#include "sampling/sampling_model.h"
#include "testing/testing.h"

namespace livegnn::cache_assembly_test {
namespace {

using testing::PlainGraph;
using testing::Random;
using testing::vector_of;
using testing::WorkerNetwork;

using Edge = std::tuple<uint64_t, uint64_t, float, double>;  // ids of source and target, weight, time

// The sample of some seeds by an obvious walk: nodes by type in the order in which they are reached, edges by type.
struct PlainSample {
  std::vector<std::vector<uint64_t>> nodes;
  std::map<uint32_t, std::vector<Edge>> edges;
  std::vector<std::vector<int64_t>> sampled_nodes;         // by type: seeds, then for each hop
  std::map<uint32_t, std::vector<int64_t>> sampled_edges;  // for each hop

  bool reach(uint32_t type, uint64_t node) {
    if (std::find(nodes[type].begin(), nodes[type].end(), node) != nodes[type].end()) return false;
    nodes[type].push_back(node);
    return true;
  }
};

int64_t sum_of(const std::vector<int64_t>& counts) {
  int64_t sum = 0;
  for (int64_t count : counts) sum += count;
  return sum;
}

// How many there are that were not counted before.
void count_new(size_t size, std::vector<int64_t>* counts) {
  counts->push_back(static_cast<int64_t>(size) - sum_of(*counts));
}

template <class CellOf>
PlainSample plain_sample(const QueryPlan& plan, const std::vector<uint64_t>& seeds, const CellOf& cell_of) {
  PlainSample sample;
  sample.nodes.resize(plan.num_node_types());
  sample.sampled_nodes.resize(plan.num_node_types());
  std::vector<std::vector<uint64_t>> found(plan.size());
  for (uint64_t seed : seeds) sample.reach(plan.seed_type(), seed);
  const std::vector<uint64_t> distinct = sample.nodes[plan.seed_type()];
  for (size_t t = 0; t < sample.nodes.size(); ++t) count_new(sample.nodes[t].size(), &sample.sampled_nodes[t]);
  for (uint32_t hop = 0; hop < plan.num_hops(); ++hop) {
    for (uint32_t q = 0; q < plan.size(); ++q) {
      if (plan[q].hop != hop) continue;
      std::vector<uint64_t> keys;
      if (plan[q].of_seeds()) keys = distinct;
      for (uint32_t parent : plan[q].parents) keys.insert(keys.end(), found[parent].begin(), found[parent].end());
      for (uint64_t key : keys) {
        for (const CellEntry& entry : cell_of(q, key)) {
          const Neighbor& other = entry.neighbor;
          if (sample.reach(plan[q].neighbor_type, other.id)) found[q].push_back(other.id);
          const auto [source, target] = plan[q].towards_key ? std::pair(other.id, key) : std::pair(key, other.id);
          sample.edges[plan[q].edge_type].push_back({source, target, other.weight, other.time});
        }
      }
    }
    for (size_t t = 0; t < sample.nodes.size(); ++t) count_new(sample.nodes[t].size(), &sample.sampled_nodes[t]);
    for (const OneHopQuery& query : plan.queries()) {
      auto& counts = sample.sampled_edges[query.edge_type];
      if (counts.size() == hop) count_new(sample.edges[query.edge_type].size(), &counts);
    }
  }
  return sample;
}

void check_nodes(const Subgraph& sample, const PlainSample& expected, PlainGraph* graph, bool attributes) {
  CHECK_EQ(sample.nodes.size(), expected.nodes.size());
  for (uint32_t t = 0; t < sample.nodes.size(); ++t) {
    const auto ids = vector_of(sample.nodes[t].ids);
    CHECK(std::vector<uint64_t>(ids.begin(), ids.end()) == expected.nodes[t]);
    CHECK(sample.nodes[t].num_sampled == expected.sampled_nodes[t]);
    const size_t width = testing::kMarketWidths[t];
    CHECK_EQ(sample.nodes[t].features.size(), attributes ? ids.size() * width : 0);
    for (size_t i = 0; attributes && i < ids.size(); ++i) {
      const auto row = graph->features[t].find(expected.nodes[t][i]);
      for (size_t k = 0; k < width; ++k) {
        CHECK_EQ(sample.nodes[t].features[i * width + k], row == graph->features[t].end() ? 0.0f : row->second[k]);
      }
    }
  }
}

void check_edges(const Subgraph& sample, PlainSample* expected, const QueryPlan& plan, bool attributes) {
  CHECK_EQ(sample.edges.size(), expected->sampled_edges.size());
  for (const auto& type : sample.edges) {
    bool weighted = attributes, timed = attributes;
    for (const OneHopQuery& query : plan.queries()) {
      if (query.edge_type != type.edge_type) continue;
      weighted = weighted && query.weighted;
      timed = timed && query.timed;
    }
    const std::vector<Edge>& edges = expected->edges[type.edge_type];
    CHECK_EQ(type.row.size(), edges.size());
    CHECK_EQ(type.weight.size(), weighted ? edges.size() : 0);
    CHECK_EQ(type.time.size(), timed ? edges.size() : 0);
    const auto& sources = expected->nodes[testing::kMarketTypes[type.edge_type].source_type];
    const auto& targets = expected->nodes[testing::kMarketTypes[type.edge_type].target_type];
    for (size_t i = 0; i < edges.size(); ++i) {
      const auto& [source, target, weight, time] = edges[i];
      CHECK_EQ(sources[static_cast<size_t>(type.row[i])], source);
      CHECK_EQ(targets[static_cast<size_t>(type.col[i])], target);
      if (weighted) CHECK_EQ(type.weight[i], weight);
      if (timed) CHECK_EQ(type.time[i], time);
    }
    CHECK(type.num_sampled == expected->sampled_edges.at(type.edge_type));
  }
}

// Some of them twice, and some that the graph does not have.
std::vector<uint64_t> seeds_of(const WorkerNetwork& workers, uint32_t worker, size_t size, uint64_t ids,
                               Random* random) {
  const Owners owners(OwnerRule::kJump, workers.options.serving_workers);
  std::vector<uint64_t> own, seeds;
  for (uint64_t id = 0; id < 2 * ids + 100; ++id) {
    if (owners.of_id(id) == worker) own.push_back(id);
  }
  while (seeds.size() < size) seeds.push_back(own[random->below(own.size())]);
  return seeds;
}

// Samples of every serving worker are those of the whole graph, and take no more look-ups than the plan allows.
TEST(a_sample_of_a_cache_is_that_of_the_whole_graph) {
  Random random;
  for (int round = 0; round < 60; ++round) {
    WorkerNetwork workers(testing::random_market_plan(&random), testing::random_shard_options(&random, true));
    PlainGraph graph;
    const uint64_t ids = 5 + random.below(40);
    testing::NetworkStream stream(&workers, &graph, &random, ids);
    for (int step = 0; step < 40; ++step) stream.one(0.25);
    testing::collect_all(&workers);
    stream.deliver_all();
    const QueryPlan& plan = workers.plan;
    for (uint32_t w = 0; w < workers.caches.size(); ++w) {
      CacheAssembly assembly(*workers.caches[w]);
      for (size_t size : {0, 1, 1, 3, 20, 60}) {
        const std::vector<uint64_t> seeds = seeds_of(workers, w, size, ids, &random);
        const bool attributes = random.chance(0.7);
        const Subgraph sample = assembly.sample({reinterpret_cast<const int64_t*>(seeds.data()), size}, attributes);
        PlainSample expected = plain_sample(plan, seeds, [&](uint32_t q, uint64_t node) {
          return testing::best_of(plan.cell_options(q, workers.options.seed), node, graph.list(plan[q], node));
        });
        check_nodes(sample, expected, &graph, attributes);
        check_edges(sample, &expected, plan, attributes);
        for (size_t i = 0; i < size; ++i) {
          CHECK_EQ(expected.nodes[0][static_cast<size_t>(sample.inverse[0][i])], seeds[i]);
        }
        CHECK(assembly.lookups().samples <= plan.max_sample_lookups() * size);
        CHECK(assembly.lookups().features <= (attributes ? plan.max_feature_lookups() * size : 0));
      }
    }
  }
}

// The bound is reached: a tree, in which no node is drawn twice.
TEST(a_sample_takes_as_many_look_ups_as_the_plan_tells) {
  const QueryPlan plan(0, 3, testing::kMarketTypes,
                       std::vector<OneHopRequest>{{2, false, 4}, {0, false, 3, SampleBy::kUniform, {0}}});
  WorkerNetwork workers(plan, {0, 2, 1, 3, true, testing::kMarketWidths});
  testing::PlainEdges knows, clicks;
  for (uint64_t user = 0; user < 9; ++user) {
    knows.add(1, 100 + user);
    for (uint64_t item = 0; item < 7; ++item) clicks.add(100 + user, 1000 + 10 * user + item);
  }
  for (const auto& shard : workers.shards) {
    shard->add_edges(2, knows.batch());
    shard->add_edges(0, clicks.batch());
  }
  testing::collect_all(&workers);
  Random random;
  while (workers.deliver(&random)) {
  }
  CacheAssembly assembly(*workers.caches[0]);
  assembly.sample(std::vector<int64_t>{1}, true);
  CHECK_EQ(plan.max_sample_lookups(), 1u + 4);
  CHECK_EQ(plan.max_feature_lookups(), 1u + 4 + 12);
  CHECK_EQ(assembly.lookups().samples, plan.max_sample_lookups());
  CHECK_EQ(assembly.lookups().features, plan.max_feature_lookups());
  assembly.sample(std::vector<int64_t>{1}, false);
  CHECK_EQ(assembly.lookups().features, 0u);
}

}  // namespace
}  // namespace livegnn::cache_assembly_test
