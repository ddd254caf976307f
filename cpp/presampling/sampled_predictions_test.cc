// Predictions in one call against the two steps one after the other: each sample by itself, in fresh memory, and a pass
// over it.
#include "presampling/sampled_predictions.h"

#include <vector>

#include "inference/forward/sampled_graph_model.h"
#include "presampling/cache/cache_assembly.h"
#include "presampling/view/presampling_view.h"
#include "presampling/view/sample_assembly.h"
#include "presampling/worker_model.h"
#include "testing/testing.h"

namespace livegnn::sampled_predictions_test {

using namespace testing;

namespace {

const std::vector<OneHopRequest> kTwoHops = {{0, true, 4}, {0, true, 3, SampleBy::kUniform, {0}}};

// The row of one id, or nothing if it is refused.
template <class Assembly>
Floats predict_alone(Assembly assembly, const Forward& forward, int64_t id) {
  const Subgraph sample = assembly.sample({&id, 1}, true);
  const auto& nodes = sample.nodes[0];
  const auto& edges = sample.edges[0];
  SampledGraph graph;
  graph.nodes = {{nodes.ids.size(), nodes.features.data()}};
  graph.edges = {{edges.row.size(), edges.row.data(), edges.col.data(), edges.weight.data(), edges.features.data()}};
  try {
    return predict(forward, graph, {0});
  } catch (const BadSampledGraph&) {
    return {};
  }
}

// Returns how many ids were refused.
template <class Assembly>
size_t check_same(const Assembly& assembly, const Forward& forward, const std::vector<int64_t>& ids) {
  Assembly reused = assembly;
  SampledPredictions predictions(forward, 0, {{0}, {0}});
  const size_t width = predictions.width();
  size_t refused = 0;
  for (size_t first = 0; first < ids.size();) {
    Floats out((ids.size() - first) * width);
    const std::span<const int64_t> rest(ids.data() + first, ids.size() - first);
    const size_t done = predictions.predict(&reused, rest, out.data());
    for (size_t i = 0; i < done; ++i) {
      const Floats expected = predict_alone(assembly, forward, rest[i]);
      const auto row = out.begin() + static_cast<ptrdiff_t>(i * width);
      CHECK(same_floats(Floats(row, row + static_cast<ptrdiff_t>(width)), expected));
    }
    if (done < rest.size()) {
      CHECK(predict_alone(assembly, forward, rest[done]).empty());
      ++refused;
    }
    first += done + 1;
  }
  return refused;
}

}  // namespace

TEST(predictions_on_samples_of_a_view_are_those_of_the_two_steps) {
  size_t refused = 0, asked = 0;
  // Now and then no sample of a random graph has several loops at a node, or each one has: then others are tried.
  for (size_t round = 0; round < 20 && (refused == 0 || refused == asked); ++round) {
    for (const Setting& setting : kSettings) {
      for (const size_t nodes : {60, 25}) {
        Graph graph({kFeatures}, {{0, 0, setting.options, setting.edge_features}});
        EventStream stream = EventStream(&graph).branch(round);
        commit(stream.begin(nodes, 250), &graph, {});
        PresamplingView view(graph, 0, kTwoHops, 7, 1);
        std::vector<int64_t> ids;
        for (uint32_t node = 0; node < nodes; ++node)
          ids.insert(ids.end(), 1 + node % 2, graph.nodes[0].ids.id_of(node));
        CHECK_EQ(check_same(SampleAssembly(view), forward_of(setting), ids), 0u);
        CHECK_EQ(check_same(SampleAssembly(view), forward_of(setting), {}), 0u);
        if (!setting.options.keyed) continue;
        // A program that was made for one loop a node refuses samples with several.
        refused += check_same(SampleAssembly(view), Forward(setting.make(), {{0, 0, false}}), ids);
        asked += ids.size();
      }
    }
  }
  CHECK(refused > 0 && refused < asked);
}

TEST(an_unknown_node_is_the_assemblys_to_refuse) {
  const Setting& setting = kSettings[0];
  Graph graph({kFeatures}, {{0, 0, setting.options, 0}});
  EventStream stream(&graph);
  commit(stream.begin(10, 30), &graph, {});
  PresamplingView view(graph, 0, kTwoHops, 7, 1);
  SampleAssembly assembly(view);
  const Forward forward = forward_of(setting);
  SampledPredictions predictions(forward, 0, {{0}, {0}});
  Floats out(2 * predictions.width());
  const int64_t known = graph.nodes[0].ids.id_of(3);
  CHECK_THROWS(predictions.predict(&assembly, std::vector<int64_t>{known, -5}, out.data()), SampleError,
               "no such node");
  CHECK_EQ(predictions.predict(&assembly, std::vector<int64_t>{known}, out.data()), 1u);
}

TEST(predictions_on_samples_of_a_cache_are_those_of_the_two_steps) {
  Random random;
  for (const bool weighted : {false, true}) {
    const Setting& setting = kSettings[weighted ? 0 : 3];
    std::vector<OneHopRequest> hops = kTwoHops;
    for (OneHopRequest& hop : hops) hop.weighted = weighted;
    const std::vector<PlannedEdgeType> types{{0, 0, false, weighted, false}};
    const QueryPlan plan(0, 1, types, hops);
    WorkerNetwork workers(plan, {0, 1, 1, 3, true, {kFeatures}});
    SamplingShard& shard = *workers.shards[0];
    std::vector<uint64_t> nodes(50), sources(200), targets(200);
    for (size_t i = 0; i < nodes.size(); ++i) nodes[i] = 3 * i;
    for (size_t i = 0; i < sources.size(); ++i) {
      sources[i] = 3 * random.below(50);
      targets[i] = 3 * random.below(random.below(50) + 1);
    }
    Floats weights = random.floats(sources.size()), rows = random.floats(nodes.size() * kFeatures);
    shard.set_features(0, nodes, rows);
    shard.add_edges(0, {sources, targets, weighted ? std::span<const float>(weights) : std::span<const float>()});
    do collect_all(&workers);
    while (workers.deliver(&random));
    std::vector<int64_t> ids(nodes.begin(), nodes.end());
    ids.push_back(1000);  // nothing is known of it
    CHECK_EQ(check_same(CacheAssembly(*workers.caches[0]), forward_of(setting), ids), 0u);
  }
}

}  // namespace livegnn::sampled_predictions_test
