#include "presampling/sampling_shard.h"

#include <cmath>
#include <limits>

#include "presampling/worker_model.h"
#include "testing/testing.h"

namespace livegnn {
namespace {

using testing::CellEdge;
using testing::PlainGraph;
using testing::Random;
using testing::WorkerNetwork;

struct Edges {
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

ShardOptions random_options(Random* random, bool keep_edges) {
  return {0, 1 + random->index(4), 1 + random->index(4), random->below(100), keep_edges, testing::kShopWidths};
}

// Random events for all workers and the plain graph alike.
class Stream {
 public:
  Stream(WorkerNetwork* workers, PlainGraph* graph, Random* random, uint64_t ids)
      : workers_(workers), graph_(graph), random_(random), ids_(ids) {}

  void add_edges() {
    const uint32_t type = random_->index(testing::kShopTypes.size());
    Edges edges;
    for (uint64_t i = random_->below(30); i > 0; --i) {
      const uint64_t source = random_->below(ids_), target = random_->below(ids_);
      CellEdge edge{random_->chance(0.1) ? -1.0f : random_->between(0, 5), static_cast<double>(random_->below(50))};
      if (!testing::kShopTypes[type].weighted) edge.weight = 1;
      if (!testing::kShopTypes[type].timed) edge.time = 0;
      edges.add(source, target, edge);
      graph_->add(type, source, target, edge);
    }
    tell([&](SamplingShard* shard) { shard->add_edges(type, edges.batch()); });
  }
  void remove_edges() {
    const uint32_t type = random_->index(testing::kShopTypes.size());
    Edges edges;
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
    const uint32_t type = random_->index(testing::kShopWidths.size());
    std::vector<uint64_t> nodes;
    std::vector<float> rows;
    for (uint64_t i = random_->below(20); i > 0; --i) {
      nodes.push_back(random_->below(ids_));
      const std::vector<float> row = random_->floats(testing::kShopWidths[type]);
      rows.insert(rows.end(), row.begin(), row.end());
      if (!row.empty()) graph_->features[type][nodes.back()] = row;
    }
    tell([&](SamplingShard* shard) { shard->set_features(type, nodes, rows); });
  }
  void remove_nodes() {
    const uint32_t type = random_->index(testing::kShopWidths.size());
    std::vector<uint64_t> nodes;
    for (uint64_t i = random_->below(4); i > 0; --i) nodes.push_back(random_->below(ids_));
    for (uint64_t node : nodes) graph_->remove_node(type, node);
    tell([&](SamplingShard* shard) { shard->remove_nodes(type, nodes); });
  }
  void one(double removals) {
    if (random_->chance(removals)) {
      random_->chance(0.7) ? remove_edges() : remove_nodes();
    } else {
      random_->chance(0.7) ? add_edges() : set_features();
    }
  }
  void deliver_all() {
    while (workers_->deliver(random_)) {
    }
  }

 private:
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

void collect_all(WorkerNetwork* workers) {
  for (uint32_t i = 0; i < workers->shards.size(); ++i) workers->collect(i);
}

void check_against_lists(const WorkerNetwork& workers, PlainGraph* graph, uint64_t ids) {
  check_caches(workers, graph, ids, [&](uint32_t q, uint64_t node) {
    return testing::best_of(workers.plan.cell_options(q, workers.options.seed), node,
                            graph->list(workers.plan[q], node));
  });
}

TEST(caches_have_what_a_full_walk_fetches_and_nothing_more) {
  Random random;
  for (int round = 0; round < 60; ++round) {
    WorkerNetwork workers(testing::random_shop_plan(&random), random_options(&random, true));
    PlainGraph graph;
    const uint64_t ids = 5 + random.below(40);
    Stream stream(&workers, &graph, &random, ids);
    for (int step = 0; step < 60; ++step) {
      stream.one(step < 40 ? 0.3 : 0.6);
      if (step % 10 != 9) continue;
      collect_all(&workers);
      stream.deliver_all();
      check_against_lists(workers, &graph, ids);
    }
    // A serving worker that has lost everything.
    const uint32_t lost = random.index(workers.caches.size());
    workers.caches[lost]->clear();
    for (const auto& shard : workers.shards) shard->publish_all(lost);
    collect_all(&workers);
    stream.deliver_all();
    check_against_lists(workers, &graph, ids);
  }
}

void check_empty(const WorkerNetwork& workers) {
  for (const auto& shard : workers.shards) {
    for (size_t q = 0; q < workers.plan.size(); ++q) {
      CHECK_EQ(shard->cells(q).size(), 0u);
      CHECK_EQ(shard->subscriptions(q).size(), 0u);
    }
    for (size_t type = 0; type < testing::kShopWidths.size(); ++type) {
      CHECK_EQ(shard->features(type).size(), 0u);
      CHECK_EQ(shard->feature_subscriptions(type).size(), 0u);
    }
    CHECK(shard->bytes() < 400'000);
  }
  for (const auto& cache : workers.caches) {
    for (uint32_t q = 0; q < workers.plan.size(); ++q) CHECK_EQ(cache->num_samples(q), 0u);
    for (uint32_t type = 0; type < testing::kShopWidths.size(); ++type) CHECK_EQ(cache->num_features(type), 0u);
    CHECK(cache->bytes() < 400'000);
  }
}

TEST(nothing_is_left_of_a_graph_that_is_removed) {
  Random random;
  for (int round = 0; round < 30; ++round) {
    const bool keep_edges = round % 2 == 0, by_node = random.chance(0.5);
    WorkerNetwork workers(testing::random_shop_plan(&random), random_options(&random, keep_edges));
    PlainGraph graph;
    const uint64_t ids = 5 + random.below(60);
    Stream stream(&workers, &graph, &random, ids);
    for (int step = 0; step < 30; ++step) stream.one(0.2);
    std::vector<uint64_t> all;
    for (uint64_t id = 0; id < ids; ++id) all.push_back(id);
    for (uint32_t i = 0; i < workers.shards.size(); ++i) {
      for (uint32_t type = 0; type < testing::kShopTypes.size() && !by_node; ++type) {
        Edges edges;
        for (const auto& [source, list] : graph.out[type]) {
          for (const auto& [target, edge] : list) edges.add(source, target);
        }
        workers.shards[i]->remove_edges(type, {edges.sources, edges.targets});
      }
      for (uint32_t type = 0; type < 3; ++type) workers.shards[i]->remove_nodes(type, all);
    }
    collect_all(&workers);
    stream.deliver_all();
    check_empty(workers);
  }
}

// Without lists, caches have what the cells lead to, whatever these are.
TEST(without_lists_caches_follow_the_cells) {
  Random random;
  for (int round = 0; round < 40; ++round) {
    WorkerNetwork workers(testing::random_shop_plan(&random), random_options(&random, false));
    PlainGraph graph;
    const uint64_t ids = 5 + random.below(40);
    Stream stream(&workers, &graph, &random, ids);
    for (int step = 0; step < 40; ++step) {
      stream.one(0.3);
      if (step % 10 != 9) continue;
      collect_all(&workers);
      stream.deliver_all();
      check_caches(workers, &graph, ids, [&](uint32_t q, uint64_t node) {
        const std::vector<CellEntry> cell = cell_in(workers, q, node);
        const auto& list = graph.list(workers.plan[q], node);
        for (const CellEntry& entry : cell) CHECK_EQ(list.count(entry.neighbor.id), 1u);  // none that was removed
        return cell;
      });
    }
  }
}

// While edges are only added, and no edge again with other values, a cell is that of the list, kept or not.
TEST(appended_edges_need_no_lists) {
  Random random;
  for (int round = 0; round < 20; ++round) {
    WorkerNetwork workers(testing::random_shop_plan(&random), random_options(&random, false));
    PlainGraph graph;
    constexpr uint64_t kIds = 40;
    for (int step = 0; step < 20; ++step) {
      const uint32_t type = random.index(testing::kShopTypes.size());
      Edges edges;
      for (int i = 0; i < 30; ++i) {
        const uint64_t source = random.below(kIds), target = random.below(kIds);
        if (graph.out[type][source].count(target) > 0) continue;
        const CellEdge edge{random.between(0, 5), static_cast<double>(random.below(50))};
        edges.add(source, target, edge);
        graph.add(type, source, target, edge);
      }
      for (uint32_t i = 0; i < workers.shards.size(); ++i) workers.shards[i]->add_edges(type, edges.batch());
    }
    collect_all(&workers);
    while (workers.deliver(&random)) {
    }
    check_against_lists(workers, &graph, kIds);
  }
}

ArrayViews views_of(Arrays* arrays) {
  ArrayViews views;
  for (const SavedArray& array : arrays->all()) {
    std::visit([&](const auto& values) { views.put(array.name, std::span(values), array.width); }, array.values);
  }
  return views;
}

TEST(a_worker_that_is_loaded_goes_on) {
  Random random;
  for (int round = 0; round < 30; ++round) {
    WorkerNetwork workers(testing::random_shop_plan(&random), random_options(&random, random.chance(0.7)));
    PlainGraph graph;
    const uint64_t ids = 5 + random.below(40);
    Stream stream(&workers, &graph, &random, ids);
    for (int step = 0; step < 30; ++step) stream.one(0.3);
    const uint32_t replaced = random.index(workers.shards.size());
    workers.collect(replaced);
    Arrays arrays;
    workers.shards[replaced]->save(&arrays);
    ShardOptions options = workers.shards[replaced]->options();
    auto loaded = std::make_unique<SamplingShard>(workers.plan, options);
    loaded->load(views_of(&arrays));
    ++options.seed;
    SamplingShard other(workers.plan, options);
    CHECK_THROWS(other.load(views_of(&arrays)), std::runtime_error, "another seed");
    workers.shards[replaced] = std::move(loaded);
    for (int step = 0; step < 30; ++step) stream.one(0.4);
    collect_all(&workers);
    stream.deliver_all();
    if (workers.options.keep_edges) check_against_lists(workers, &graph, ids);
    check_caches(workers, &graph, ids, [&](uint32_t q, uint64_t node) { return cell_in(workers, q, node); });
  }
}

TEST(the_same_events_make_the_same_blocks) {
  Random random;
  const QueryPlan plan = testing::random_shop_plan(&random);
  const ShardOptions options{0, 1, 3, 5, true, testing::kShopWidths};
  SamplingShard first(plan, options), second(plan, options);
  for (int step = 0; step < 50; ++step) {
    Edges edges;
    for (int i = 0; i < 40; ++i) {
      edges.add(random.below(30), random.below(30), {random.between(0.1f, 3), random.between(0, 9)});
    }
    const uint32_t type = random.index(4);
    for (SamplingShard* shard : {&first, &second}) {
      step % 3 == 2 ? shard->remove_edges(type, edges.batch()) : shard->add_edges(type, edges.batch());
      shard->finish();
    }
    for (uint32_t w = 0; w < 3; ++w) {
      const auto a = first.for_serving(w), b = second.for_serving(w);
      CHECK(std::equal(a.begin(), a.end(), b.begin(), b.end()));
    }
  }
}

TEST(bad_events_change_nothing) {
  SamplingShard shard(
      QueryPlan(0, 3, testing::kShopTypes, std::vector<OneHopRequest>{{0, false, 3, SampleBy::kWeight}}),
      {0, 1, 1, 0, true, testing::kShopWidths});
  const std::vector<uint64_t> two{1, 2}, one{1};
  const std::vector<float> weights{1, 2}, infinite{1, std::numeric_limits<float>::infinity()}, row(3, NAN);
  const std::vector<double> times{1, NAN};
  CHECK_THROWS(shard.add_edges(0, {two, one, weights}), std::invalid_argument, "as many targets");
  CHECK_THROWS(shard.add_edges(0, {two, two}), std::invalid_argument, "each needs a weight");
  CHECK_THROWS(shard.add_edges(0, {two, two, infinite}), std::invalid_argument, "at most 2^96");
  CHECK_THROWS(shard.add_edges(0, {two, two, weights, times}), std::invalid_argument, "must be finite");
  CHECK_THROWS(shard.set_features(0, one, {}), std::invalid_argument, "expected 1 rows of 3 features, got 0");
  CHECK_THROWS(shard.set_features(0, one, row), std::invalid_argument, "a feature must be finite");
  CHECK_THROWS(shard.set_features(3, one, {}), std::invalid_argument, "no node type 3");
  CHECK_THROWS(shard.remove_nodes(3, one), std::invalid_argument, "no node type 3");
  CHECK_THROWS(shard.publish_all(1), std::invalid_argument, "no serving worker 1");
  CHECK_EQ(shard.cells(0).size(), 0u);
  shard.finish();
  CHECK(shard.for_serving(0).empty());
  const QueryPlan& plan = shard.plan();
  CHECK_THROWS(SamplingShard(plan, {1, 1, 1, 0, true, {1, 2, 3}}), std::invalid_argument, "is none of 1");
  CHECK_THROWS(SamplingShard(plan, {0, 1, 0, 0, true, {1, 2, 3}}), std::invalid_argument, "serving workers, not 0");
  CHECK_THROWS(SamplingShard(plan, {0, 1, 1, 0, true, {1}}), std::invalid_argument, "3 node types, and widths of 1");
}

TEST(blocks_for_others_are_refused) {
  PublicationWriter writer(1, 0);
  writer.reference(0, 5, 0, 1);
  writer.finish();
  const QueryPlan plan(0, 3, testing::kShopTypes, std::vector<OneHopRequest>{{0, false, 3}});
  SamplingShard second(plan, {1, 2, 1, 0, true, testing::kShopWidths});
  CHECK_THROWS(second.receive(writer.bytes()), std::runtime_error, "for sampling worker 0");
  PublicationWriter wrong(1, 0);
  wrong.reference(7, 5, 0, 1);
  wrong.finish();
  SamplingShard first(plan, {0, 2, 1, 0, true, testing::kShopWidths});
  CHECK_THROWS(first.receive(wrong.bytes()), std::runtime_error, "not for this sampling worker");
}

}  // namespace
}  // namespace livegnn
