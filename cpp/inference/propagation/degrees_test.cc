// Degrees, sums of weights and loops, in the first computation and after batches.
#include <cmath>
#include <optional>
#include <vector>

#include "inference/engine_model.h"
#include "inference/plain_steps_model.h"
#include "testing/testing.h"

namespace livegnn::degrees_test {

using namespace testing;

namespace {

// Every kind of context that there is, and nothing else.
Program contexts_alone(bool weighted, bool reversed) {
  Program program;
  program.values = {{0, kFeatures, true, 0}};
  for (ContextKind kind : {ContextKind::kCount, ContextKind::kSum, ContextKind::kLoop}) {
    for (bool skip_loops : {false, true}) {
      for (std::optional<float> fill : {std::optional<float>(), std::optional<float>(0.75f)}) {
        if (kind == ContextKind::kLoop && !fill) continue;
        const auto output = static_cast<uint32_t>(program.values.size());
        program.values.push_back({0, 1, false, output});
        program.order.push_back({Step::kContext, static_cast<uint32_t>(program.contexts.size())});
        program.contexts.push_back({0, output, kind, fill, skip_loops, weighted, reversed});
      }
    }
  }
  program.output = 1;
  return program;
}

double plain_context(const Engine& engine, const ContextStep& step, uint32_t node) {
  const bool keyed = engine.graph().edges[0].spec.options.keyed;
  std::optional<InEdge> loop;  // of parallel ones the one with the greatest key
  double count = 0, sum = 0;   // of the others
  double loops = 0;
  for (const InEdge& edge : in_edges(engine, step, node)) {
    if (edge.source != node) {
      ++count, sum += static_cast<double>(edge.weight);
      continue;
    }
    loops += static_cast<double>(edge.weight);
    if (!step.fill && !step.skip_loops) ++count;
    if (!loop || edge.key > loop->key) loop = edge;
  }
  const bool one_loop = keyed && step.fill && !step.skip_loops;
  const double fill = loop ? 0 : static_cast<double>(step.fill.value_or(0));
  switch (step.kind) {
    case ContextKind::kCount:
      return count + (step.fill ? 1 : 0);
    case ContextKind::kSum:
      return sum + fill + (step.skip_loops ? 0 : one_loop ? (loop ? double{loop->weight} : 0) : loops);
    case ContextKind::kLoop:
      return fill + (one_loop && loop ? (step.weighted ? double{loop->weight} : 1) : 0);
  }
  return 0;
}

void check_contexts(const Engine& engine) {
  for (const ContextStep& step : engine.program().contexts) {
    for (uint32_t node : nodes_in_use(engine)) {
      const double expected = plain_context(engine, step, node);
      CHECK_NEAR(*engine.rows(step.output).row(node), expected, 1e-6 * std::fabs(expected));
    }
  }
}

}  // namespace

TEST(contexts_of_programs_are_those_of_all_in_edges) { for_each_state(check_contexts); }

TEST(contexts_of_every_kind_are_those_of_all_in_edges) {
  Random random;
  for (EdgeOptions options : {EdgeOptions{{true, false}, false, false}, EdgeOptions{{true, false}, true, false},
                              keyed({{true, false}, false, false}), keyed({{true, false}, true, false})}) {
    for (bool reversed : {false, true}) {
      for (bool weighted : {false, true}) {
        Graph graph({kFeatures}, {{0, 0, options}});
        EventStream stream(&graph);
        commit(stream.begin(12, 120), &graph, {});  // few nodes, many loops
        Engine engine(graph, contexts_alone(weighted, reversed), 1);
        engine.initialize();
        check_contexts(engine);
        Preparation prepared;
        for (int batch = 0; batch < 30; ++batch) {
          const Delta delta = stream.next(1 + random.below(30));
          engine.prepare(delta, &prepared);
          commit(delta, &graph, {{&engine, &prepared}});
          check_contexts(engine);
        }
      }
    }
  }
}

// 1e16 and 10 do not fit into one double: what is left when the former goes is 10.
TEST(contexts_do_not_keep_what_a_large_weight_rounded_off) {
  Graph graph({kFeatures}, {{0, 0, {{true, false}, false, false}}});
  EventStream stream(&graph);
  commit(stream.begin(10, 0), &graph, {});
  Engine engine(graph, contexts_alone(true, false), 1);
  engine.initialize();
  Preparation prepared;
  auto apply = [&](int64_t from, std::optional<float> weight) {
    Stage stage(graph);
    const int64_t source = graph.nodes[0].ids.id_of(static_cast<uint32_t>(from)), target = graph.nodes[0].ids.id_of(0);
    if (weight) {
      stage.add_edges(0, &source, &target, &*weight, nullptr, nullptr, 0, 1);
    } else {
      stage.remove_edges(0, &source, &target, 1);
    }
    const Delta delta = stage.finish();
    engine.prepare(delta, &prepared);
    commit(delta, &graph, {{&engine, &prepared}});
    check_contexts(engine);
  };
  apply(1, 10.0f);
  apply(2, 1e16f);
  apply(3, 3.0f);
  apply(2, std::nullopt);
  apply(3, std::nullopt);
}

}  // namespace livegnn::degrees_test
