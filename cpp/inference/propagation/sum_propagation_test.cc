// Sums along edges, in the first computation and after batches.
#include <algorithm>
#include <cmath>
#include <vector>

#include "inference/engine_model.h"
#include "inference/plain_steps_model.h"
#include "inference/rounding/rounding.h"
#include "testing/testing.h"

namespace livegnn::sum_propagation_test {

using namespace testing;

// What a sum has drifted is at most a rounding of typical messages (rounding.h), whatever is left of it.
TEST(sums_are_those_of_all_in_edges) {
  for_each_state([](const Engine& engine) {
    const std::vector<PropagateStep>& steps = engine.program().propagations;
    for (const PropagateStep& step : steps) {
      if (step.aggregate != Aggregate::kSum || step.message != kNoIndex) continue;
      const size_t width = engine.rows(step.output).width;
      const std::vector<float>& scales =
          engine.state().rounding.scales[static_cast<size_t>(&step - steps.data())].scales;
      for (uint32_t node : nodes_in_use(engine)) {
        PlainRow sum(width), reach(width);
        const std::vector<InEdge> edges = in_edges(engine, step, node);
        for (const InEdge& edge : edges) {
          const PlainRow message = plain_row(engine, step.input, edge.source);
          for (size_t c = 0; c < width; ++c) {
            const double term = (step.weighted ? edge.weight : 1.0f) * message[c];
            sum[c] += term;
            reach[c] += std::fabs(term);
          }
        }
        const PlainRow row = plain_row(engine, step.output, node);
        const double drift = kDriftTolerance * std::sqrt(std::max<size_t>(edges.size(), 1));
        for (size_t c = 0; c < width; ++c) CHECK_NEAR(row[c], sum[c], 1e-5 * reach[c] + drift * scales[c]);
      }
    }
  });
}

// A batch costs what it reaches: one new edge between two nodes reaches one sum of the first layer, and what follows.
TEST(sums_are_touched_where_a_batch_reaches) {
  Graph graph({kFeatures}, {{0, 0, {{true, false}, false, false}}});
  EventStream stream(&graph);
  commit(stream.begin(400, 400), &graph, {});
  Engine engine(graph, gcn(true, Random()), 1);
  engine.initialize();
  Preparation prepared;
  Stage stage(graph);
  const int64_t source = graph.nodes[0].ids.id_of(7), target = graph.nodes[0].ids.id_of(390);
  const float weight = 0.5f;
  stage.add_edges(0, &source, &target, &weight, nullptr, nullptr, 0, 1);
  const Delta delta = stage.finish();
  engine.prepare(delta, &prepared);
  const uint32_t sum = engine.program().propagations[0].output;
  std::vector<uint32_t> reached{390};  // and those that it sends to, since its degree has changed
  PropagateStep back = engine.program().propagations[0];
  back.reversed = true;
  for (const InEdge& edge : in_edges(engine, back, 390)) reached.push_back(edge.source);
  for (uint32_t node : prepared.batch.of(sum).nodes()) {
    CHECK(std::find(reached.begin(), reached.end(), node) != reached.end());
  }
  CHECK(prepared.affected < 100);
  commit(delta, &graph, {{&engine, &prepared}});
}

}  // namespace livegnn::sum_propagation_test
