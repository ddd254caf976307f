// Kept rows computed anew: right ones are found right, and wrong ones wrong by as much as they are.
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "inference/engine_model.h"
#include "testing/testing.h"

namespace livegnn::propagation_test {

using namespace testing;

namespace {

// The same rows with one number of one node changed, by so many times the largest of all.
void corrupt(Engine* engine, uint32_t value, uint32_t node, size_t channel, float times) {
  const Rows rows = engine->rows(value);
  Floats all;
  for (size_t i = 0; i < rows.count; ++i) all.insert(all.end(), rows.row(i), rows.row(i) + rows.width);
  float largest = 1;
  for (float one : all) largest = std::max(largest, std::fabs(one));
  all[node * rows.width + channel] += times * largest;
  CHECK(engine->load_rows(value, all.data(), rows.count, rows.width));
}

// A node that somebody else sends something: what is kept of others is not read.
uint32_t random_target(const Engine& engine, const PropagateStep& step, Random* random) {
  const std::vector<uint32_t> nodes = nodes_in_use(engine);
  while (true) {
    const uint32_t node = nodes[random->below(nodes.size())];
    bool reached = false;
    view_of(engine.graph(), step).scan_in(node, [&](NeighborSpan span) {
      for (size_t i = 0; i < span.size; ++i) reached = reached || span.ids[i] != node;
    });
    if (reached) return node;
  }
}

}  // namespace

TEST(scrub_finds_right_what_batches_leave) {
  for (const Setting& setting : kSettings) {
    Graph graph({kFeatures}, {{0, 0, setting.options, setting.edge_features}});
    EventStream stream(&graph);
    commit(stream.begin(60, 250), &graph, {});
    Engine engine(graph, setting.make(), 1);
    engine.initialize();
    Preparation prepared;
    for (int batch = 0; batch < 20; ++batch) {
      const Delta delta = stream.next(10);
      engine.prepare(delta, &prepared);
      commit(delta, &graph, {{&engine, &prepared}});
      const Kept before(&engine);
      const std::vector<uint32_t> nodes = nodes_in_use(engine);
      for (size_t p = 0; p < engine.program().propagations.size(); ++p) check_scrub(engine.scrub(p, nodes));
      for (size_t c = 0; c < engine.program().contexts.size(); ++c) check_scrub(engine.scrub_context(c, nodes));
      CHECK(Kept(&engine) == before);
    }
  }
}

TEST(scrub_finds_what_is_wrong_where_it_is) {
  Random random;
  for (const Setting& setting : kSettings) {
    Graph graph({kFeatures}, {{0, 0, setting.options, setting.edge_features}});
    EventStream stream(&graph);
    commit(stream.begin(60, 250), &graph, {});
    Engine engine(graph, setting.make(), 1);
    const std::vector<uint32_t> nodes = nodes_in_use(engine);
    for (size_t p = 0; p < engine.program().propagations.size(); ++p) {
      const PropagateStep& step = engine.program().propagations[p];
      const uint32_t value = step.output, node = random_target(engine, step, &random);
      const size_t channel = random.below(engine.program().values[value].width);
      const auto of_all = [&] { return engine.scrub(p, nodes); };
      const auto of_node = [&](uint32_t one) { return engine.scrub(p, std::vector<uint32_t>{one}); };
      engine.initialize();
      corrupt(&engine, value, node, channel, 1000);
      CHECK(of_all().difference > 1);
      CHECK_EQ(of_all().difference, of_node(node).difference);
      check_scrub(of_node(nodes[node == nodes[0] ? 1 : 0]));
      engine.initialize();
      corrupt(&engine, value, node, channel, std::numeric_limits<float>::infinity());
      CHECK_EQ(of_node(node).not_finite, 1u);
      CHECK(std::isinf(of_node(node).difference));
    }
    for (size_t c = 0; c < engine.program().contexts.size(); ++c) {
      engine.initialize();
      const uint32_t node = nodes[random.below(nodes.size())];
      corrupt(&engine, engine.program().contexts[c].output, node, 0, 2);
      CHECK(engine.scrub_context(c, nodes).difference >= 1);
      CHECK(engine.scrub_context(c, std::vector<uint32_t>{node}).difference >= 1);
      check_scrub(engine.scrub_context(c, std::vector<uint32_t>{nodes[node == nodes[0] ? 1 : 0]}));
    }
  }
}

}  // namespace livegnn::propagation_test
