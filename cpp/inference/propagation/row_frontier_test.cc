// The messages that a batch sends along edges, beside those of a walk over all edges.
#include "inference/propagation/row_frontier.h"

#include <map>
#include <utility>
#include <vector>

#include "inference/engine_model.h"
#include "inference/plain_steps_model.h"
#include "testing/testing.h"
#include "threads/parallel.h"

namespace livegnn::row_frontier_test {

using namespace testing;

namespace {

// A layer of sums of features, with or without loops.
Program sums(bool weighted, bool skip_loops) {
  enum : uint32_t { kX, kSum };
  Program program;
  program.values = {{0, kFeatures, true, 0}, {0, kFeatures, false, 0}};
  program.output = kSum;
  propagate(&program, kX, kSum, Aggregate::kSum, weighted);
  program.propagations[0].skip_loops = skip_loops;
  return program;
}

// What is added to each target, channel by channel, from the frontier.
std::map<uint32_t, PlainRow> added(const RowFrontier& s, size_t width) {
  std::map<uint32_t, PlainRow> all;
  for (size_t t = 0; t < s.targets.size(); ++t) {
    PlainRow& sum = all[s.targets[t]];
    sum.resize(width);
    for (size_t m = s.offsets[t]; m < s.offsets[t + 1]; ++m) {
      for (size_t c = 0; c < width; ++c) sum[c] += static_cast<double>(s.weight_of[m]) * s.rows[s.row_of[m]][c];
    }
  }
  return all;
}

// The sums of every target as the graph is.
std::map<uint32_t, PlainRow> sums_of_all(const Engine& engine) {
  const PropagateStep& step = engine.program().propagations[0];
  std::map<uint32_t, PlainRow> all;
  for (uint32_t node : nodes_in_use(engine)) {
    PlainRow& sum = all[node];
    sum.resize(kFeatures);
    for (const InEdge& edge : in_edges(engine, step, node)) {
      if (step.skip_loops && edge.source == node) continue;
      const PlainRow row = plain_row(engine, step.input, edge.source);
      for (size_t c = 0; c < kFeatures; ++c) sum[c] += (step.weighted ? edge.weight : 1.0f) * row[c];
    }
  }
  return all;
}

}  // namespace

// Whatever the frontier adds makes the sums after a batch of those before it; who is not in it has the same sum.
TEST(frontier_adds_what_a_batch_changes) {
  for (const bool weighted : {false, true}) {
    for (const bool skip_loops : {false, true}) {
      for (const bool undirected : {false, true}) {
        Graph graph({kFeatures}, {{0, 0, {{weighted, false}, undirected, false}}});
        EventStream stream(&graph);
        commit(stream.begin(60, 250), &graph, {});
        Engine engine(graph, sums(weighted, skip_loops), 1);
        engine.initialize();
        ThreadPool pool(1);
        Preparation prepared, whole;
        for (int batch = 0; batch < 15; ++batch) {
          const Delta delta = stream.next(batch % 5 == 4 ? 100 : 6);
          std::map<uint32_t, PlainRow> expected = sums_of_all(engine);
          engine.begin(delta, &prepared);
          const RoundingScale& scale = engine.state().rounding.scales[0];
          find_row_frontier(engine.state().rows, engine.program().propagations[0], scale.inverses.data(), &pool,
                            &prepared.batch);
          const std::map<uint32_t, PlainRow> changes = added(prepared.batch.workspace->row_frontier, kFeatures);
          engine.prepare(delta, &whole);
          commit(delta, &graph, {{&engine, &whole}});
          for (const auto& [node, sum] : changes) {
            PlainRow& row = expected[node];
            row.resize(kFeatures);
            for (size_t c = 0; c < kFeatures; ++c) row[c] += sum[c];
          }
          for (const auto& [node, sum] : sums_of_all(engine)) {
            PlainRow& row = expected[node];
            row.resize(kFeatures);
            for (size_t c = 0; c < kFeatures; ++c) CHECK_NEAR(row[c], sum[c], 1e-3);
          }
        }
      }
    }
  }
}

}  // namespace livegnn::row_frontier_test
