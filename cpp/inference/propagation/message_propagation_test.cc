// Messages of both ends of an edge and of its features, in the first computation and after batches.
#include <cmath>
#include <vector>

#include "inference/engine_model.h"
#include "inference/plain_steps_model.h"
#include "testing/testing.h"

namespace livegnn::message_propagation_test {

using namespace testing;

namespace {

// Sums of messages by their coefficients, and of the coefficients; those that are exponentials relative to the logits
// that the engine refers to. What was added up over batches may differ by a part of a typical message (rounding.h),
// also in a node whose own messages are much smaller.
void check_messages(const Engine& engine, const PropagateStep& step, uint32_t node) {
  const Program& program = engine.program();
  const MessageProgram& messages = program.messages[step.message];
  const PlainRow row = plain_row(engine, step.output, node);
  const PlainRow context = step.context == kNoIndex ? PlainRow() : plain_row(engine, step.context, node);
  const size_t heads = step.context == kNoIndex ? 1 : context.size() / (messages.softmax ? 2 : 1);
  PlainRow sum(row.size()), reach(row.size()), weights(heads);
  double unsure = 1e-4, terms = 0;
  for (const InEdge& edge : in_edges(engine, step, node)) {
    if (step.skip_loops && edge.source == node) continue;
    ++terms;
    std::vector<PlainRow> sources;
    for (const MessageSource& source : messages.sources) {
      if (source.side == MessageSource::kFeatures) {
        sources.emplace_back(edge.features, edge.features + kEdgeFeatures);
      } else {
        sources.push_back(plain_row(engine, source.value, source.side == MessageSource::kSource ? edge.source : node));
      }
    }
    const std::vector<PlainRow> registers = plain_registers(program, messages.step, sources);
    for (size_t c = 0; c < row.size(); ++c) {
      const size_t h = c / (row.size() / heads);
      double weight = step.weighted ? edge.weight : 1.0f;
      if (messages.softmax) {
        const double logit = registers[messages.coefficient][h];
        weight *= std::exp(logit - context[heads + h]);
        unsure = std::max(unsure, 1e-4 + 4e-7 * std::fabs(logit));  // a logit's rounding is a factor of its weight
      }
      const double term = weight * registers[messages.message][c];
      sum[c] += term;
      reach[c] += std::fabs(term);
      if (c % (row.size() / heads) == 0) weights[h] += weight;
    }
  }
  const std::vector<float>& units = engine.state().rounding.scales[&step - program.propagations.data()].scales;
  auto drift = [&](size_t c) { return units.empty() ? 0.0 : 4e-5 * units[c]; };
  for (size_t c = 0; c < row.size(); ++c) {
    const double typical = step.context == kNoIndex ? std::sqrt(terms) : weights[c / (row.size() / heads)];
    CHECK_NEAR(row[c], sum[c], unsure * (reach[c] + 1e-2) + drift(c) * typical);
  }
  for (size_t h = 0; step.context != kNoIndex && h < heads; ++h) {
    CHECK_NEAR(context[h], weights[h], unsure * (weights[h] + 1e-2));
    if (!(weights[h] > 0)) continue;
    // As it is read: divided, however small the weights are.
    for (size_t c = h * row.size() / heads; c < (h + 1) * row.size() / heads; ++c) {
      CHECK_NEAR(row[c] / context[h], sum[c] / weights[h], unsure * (reach[c] / weights[h] + 1e-2) + drift(c));
    }
  }
}

// Attention whose logits are far apart, so that the largest of a node comes, goes, and outweighs all others.
Program steep_attention(Random random) {
  enum : uint32_t { kX, kValue, kSourceLogit, kTargetLogit, kSum, kContext };
  Program program;
  program.values = {{0, kFeatures, true, 0}, {0, kHidden, false, 0}, {0, kHeads, false, 0},
                    {0, kHeads, false, 1},   {0, kHidden, false, 2}, {0, 2 * kHeads, false, 2}};
  program.output = kSum;
  RowsBuilder rows(&program, {kX});
  rows.finish({{rows.linear(0, kHidden, &random), kValue},
               {rows.linear(0, kHeads, &random), kSourceLogit},
               {rows.linear(0, kHeads, &random), kTargetLogit}});
  MessageProgram softmax{{{MessageSource::kSource, kValue},
                          {MessageSource::kSource, kSourceLogit},
                          {MessageSource::kTarget, kTargetLogit}},
                         RowsBuilder::on_edges(&program, {kHidden, kHeads, kHeads},
                                               [](RowsBuilder* on_edge) {
                                                 uint32_t logit = on_edge->apply(OpKind::kAdd, {1, 2});
                                                 for (int i = 0; i < 4; ++i) {
                                                   logit = on_edge->apply(OpKind::kAdd, {logit, logit});
                                                 }
                                               }),
                         0};
  softmax.coefficient = static_cast<uint32_t>(softmax.step.registers.size() - 1);
  softmax.softmax = true;
  propagate(&program, std::move(softmax), kSum, kContext, false, false);
  return program;
}

}  // namespace

TEST(messages_are_summed_over_all_in_edges) {
  size_t checked = 0;
  for_each_state([&](const Engine& engine) {
    for (const PropagateStep& step : engine.program().propagations) {
      if (step.message == kNoIndex) continue;
      for (uint32_t node : nodes_in_use(engine)) check_messages(engine, step, node);
      ++checked;
    }
  });
  CHECK(checked > 100);
}

TEST(messages_are_summed_whichever_logit_is_the_largest) {
  Graph graph({kFeatures}, {{0, 0, {}}});
  EventStream stream(&graph);
  commit(stream.begin(60, 1200), &graph, {});  // more than the few that are summed anew
  Engine engine(graph, steep_attention(Random()), 1);
  engine.initialize();
  Preparation prepared;
  size_t added = 0;
  for (int batch = 0; batch < 100; ++batch) {
    const Delta delta = stream.next(3);
    engine.prepare(delta, &prepared);
    added += prepared.batch.of(engine.program().output).size() - prepared.recomputed;
    commit(delta, &graph, {{&engine, &prepared}});
    for (uint32_t node : nodes_in_use(engine)) check_messages(engine, engine.program().propagations[0], node);
  }
  CHECK(added > 100);  // not all of them were computed from all in-edges
}

}  // namespace livegnn::message_propagation_test
