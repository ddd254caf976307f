// Maxima along edges and their counts, in the first computation and after batches.
#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "inference/engine_model.h"
#include "inference/plain_steps_model.h"
#include "inference/rows/changes_model.h"
#include "inference/schedule.h"
#include "testing/testing.h"

namespace livegnn::max_propagation_test {

using namespace testing;

namespace {

// Weighted maxima of features, and nothing else.
Program maxima() {
  enum : uint32_t { kX, kMax };
  Program program;
  program.values = {{0, kFeatures, true, 0}, {0, kFeatures, false, 0}};
  program.output = kMax;
  propagate(&program, kX, kMax, Aggregate::kMax, true);
  return program;
}

struct Edge {
  int64_t source, target;
  float weight;
  uint32_t key;
};

// Nodes 0, 1, ... whose features are zeros, and these edges in their order.
void add_all(const std::vector<Edge>& edges, int64_t nodes, Graph* graph) {
  Stage stage(*graph);
  for (int64_t id = 0; id < nodes; ++id) stage.add_nodes(0, &id, Floats(kFeatures, -0.0f).data(), kFeatures, 1);
  for (const Edge& edge : edges) {
    stage.add_edges(0, &edge.source, &edge.target, &edge.weight, nullptr, nullptr, 0, 1, &edge.key);
  }
  commit(stage.finish(), graph, {});
}

}  // namespace

// Zeros of both signs are equal, and the first one stays: that of the first source, and of the first of parallel edges.
// Neither the order in which a batch reaches the sources nor that of the lists shows.
TEST(the_sign_of_a_maximum_of_zeros_follows_from_the_order_of_sources) {
  Random random;
  constexpr int64_t kNodes = 200;
  for (int round = 0; round < 6; ++round) {
    std::vector<Edge> edges;
    for (uint32_t i = 0; i < 1500; ++i) {
      const auto source = static_cast<int64_t>(random.below(round % 2 == 0 ? 5 : kNodes));
      edges.push_back({source, static_cast<int64_t>(random.below(20)), random.between(-1, 1), i});
    }
    std::vector<Edge> others = edges;
    for (size_t i = others.size(); i > 1; --i) std::swap(others[i - 1], others[random.below(i)]);
    Graph graph({kFeatures}, {{0, 0, keyed({{true, false}, false, false})}});
    Graph other_graph({kFeatures}, {{0, 0, keyed({{true, false}, false, false})}});
    add_all(edges, kNodes, &graph);
    add_all(others, kNodes, &other_graph);
    Engine engine(graph, maxima(), 1), other(other_graph, maxima(), 1);
    engine.initialize();
    other.initialize();
    Stage stage(graph);
    for (int64_t id = 0; id < kNodes; ++id) stage.set_features(0, &id, Floats(kFeatures, 0.0f).data(), kFeatures, 1);
    const Delta delta = stage.finish();
    Preparation prepared, shuffled;
    engine.prepare(delta, &prepared);
    prepare_depths(&other, delta, &shuffled,
                   [&](size_t) { shuffle(kFeatures, &random, &shuffled.batch.changes.rows[0]); });
    CHECK_EQ(prepared.recomputed, 0u);
    commit(delta, &graph, {{&engine, &prepared}});
    commit(delta, &other_graph, {{&other, &shuffled}});
    CHECK(Kept(&engine) == Kept(&other));
  }
}

// Against all in-edges of all nodes, bit for bit.
TEST(maxima_are_those_of_all_in_edges) {
  for_each_state([](const Engine& engine) {
    for (const PropagateStep& step : engine.program().propagations) {
      if (step.aggregate != Aggregate::kMax) continue;
      const Rows input = engine.rows(step.input), out = engine.rows(step.output), counts = engine.rows(step.counts);
      for (uint32_t node : nodes_in_use(engine)) {
        const std::vector<InEdge> edges = in_edges(engine, step, node);
        for (size_t c = 0; c < out.width; ++c) {
          std::vector<float> messages;
          for (const InEdge& edge : edges) {
            messages.push_back((step.weighted ? edge.weight : 1.0f) * input.row(edge.source)[c]);
          }
          const float largest = messages.empty() ? 0 : *std::max_element(messages.begin(), messages.end());
          CHECK_EQ(out.row(node)[c], largest);
          const auto ties = static_cast<uint32_t>(std::count(messages.begin(), messages.end(), largest));
          CHECK(std::memcmp(counts.row(node) + c, &ties, sizeof(ties)) == 0);
        }
      }
    }
  });
}

}  // namespace livegnn::max_propagation_test
