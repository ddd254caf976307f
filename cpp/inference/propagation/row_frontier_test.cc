// The messages that a batch sends along edges, beside those of a walk over all edges.
#include "inference/propagation/row_frontier.h"

#include <map>
#include <utility>
#include <vector>

#include "inference/engine_model.h"
#include "inference/plain_steps_model.h"
#include "inference/rows/changes_model.h"
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

// The messages of each target in their order: their weights, and their rows.
std::map<uint32_t, std::vector<Floats>> sequences(const RowFrontier& s, size_t width) {
  std::map<uint32_t, std::vector<Floats>> all;
  for (size_t t = 0; t < s.targets.size(); ++t) {
    std::vector<Floats>& messages = all[s.targets[t]];
    for (size_t m = s.offsets[t]; m < s.offsets[t + 1]; ++m) {
      const float* const row = s.rows[s.row_of[m]];
      messages.push_back({s.weight_of[m]});
      messages.back().insert(messages.back().end(), row, row + width);
    }
  }
  return all;
}

// First those of changed sources, by source and, if edges that may be parallel have weights, by key.
void check_order(const RowFrontier& s, bool by_key) {
  for (size_t t = 0; t < s.targets.size(); ++t) {
    uint64_t before = 0;
    for (size_t m = s.offsets[t]; m < s.offsets[t + 1]; ++m) {
      const uint32_t row = s.row_of[m];
      // Those of changed edges have rows of their own, in the order of the edges.
      const bool of_source = row < s.order.size();
      const uint64_t source = of_source ? s.order.node(row) : UINT32_MAX;
      const uint64_t now = source << 32 | (!of_source ? row : by_key ? s.key_of[m] : 0);
      CHECK(before <= now);
      before = now;
    }
  }
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

// In whatever order a batch has reached the sources: the messages of each target are the same ones, in the same order.
TEST(messages_of_a_target_are_in_the_order_of_their_sources) {
  Random random;
  for (const bool weighted : {false, true}) {
    for (const bool parallel : {false, true}) {
      for (const bool undirected : {false, true}) {
        EdgeOptions options{{weighted, false}, undirected, false};
        if (parallel) options = keyed(options);
        Graph graph({kFeatures}, {{0, 0, options}});
        EventStream stream(&graph);
        commit(stream.begin(200, 1500), &graph, {});
        Engine engine(graph, sums(weighted, random.chance(0.5)), 1);
        engine.initialize();
        const PropagateStep& step = engine.program().propagations[0];
        ThreadPool pool(1);
        Preparation plainly, shuffled;
        for (int batch = 0; batch < 6; ++batch) {
          const Delta delta = stream.next(batch % 2 == 0 ? 600 : 20);  // many sources, and few
          std::map<uint32_t, std::vector<Floats>> expected;
          for (Preparation* prepared : {&plainly, &shuffled}) {
            engine.begin(delta, prepared);
            if (prepared == &shuffled) {
              shuffle(engine.program().values[step.input].width, &random, &prepared->batch.changes.rows[step.input]);
            }
            find_row_frontier(engine.state().rows, step, engine.state().rounding.scales[0].inverses.data(), &pool,
                              &prepared->batch);
            const RowFrontier& s = prepared->batch.workspace->row_frontier;
            check_order(s, weighted && parallel);
            if (prepared == &plainly) {
              expected = sequences(s, kFeatures);
            } else {
              const std::map<uint32_t, std::vector<Floats>> found = sequences(s, kFeatures);
              CHECK_EQ(found.size(), expected.size());
              for (const auto& [target, messages] : expected) CHECK(same_bits(found.at(target), messages));
            }
          }
          engine.prepare(delta, &plainly);
          commit(delta, &graph, {{&engine, &plainly}});
        }
      }
    }
  }
}

}  // namespace livegnn::row_frontier_test
