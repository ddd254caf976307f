// What a batch does to messages that depend on more than their source, beside a walk over all edges.
#include "inference/propagation/message_frontier.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "inference/engine_model.h"
#include "inference/plain_steps_model.h"
#include "inference/rows/changes_model.h"
#include "inference/schedule.h"
#include "testing/testing.h"
#include "threads/parallel.h"

namespace livegnn::message_frontier_test {

using namespace testing;

namespace {

using Message = std::vector<float>;  // what it is computed from: weight, features, and rows of both ends
using Messages = std::map<std::pair<uint32_t, uint32_t>, Message>;  // by source and key

// The messages of a node as the graph is.
Messages messages_to(const Engine& engine, const PropagateStep& step, uint32_t node) {
  const MessageProgram& program = engine.program().messages[step.message];
  Messages all;
  for (const InEdge& edge : in_edges(engine, step, node)) {
    if (step.skip_loops && edge.source == node) continue;
    Message& message = all[{edge.source, edge.key}];
    message.push_back(edge.weight);
    if (edge.features != nullptr) message.insert(message.end(), edge.features, edge.features + kEdgeFeatures);
    for (const MessageSource& source : program.sources) {
      if (source.side != MessageSource::kSource && source.side != MessageSource::kTarget) continue;
      const PlainRow row = plain_row(engine, source.value, source.side == MessageSource::kSource ? edge.source : node);
      message.insert(message.end(), row.begin(), row.end());
    }
  }
  return all;
}

// The terms of each target in their order, without where they lie; checks that it is the order of their sources.
using Terms = std::vector<std::tuple<uint32_t, uint32_t, float, float, bool, bool>>;

std::map<uint32_t, Terms> terms_by_target(const MessageFrontier& s) {
  CHECK(std::is_sorted(s.sources.begin(), s.sources.end()));
  std::map<uint32_t, Terms> all;
  for (size_t t = 0; t < s.targets.size(); ++t) {
    uint64_t before = 0;
    bool along_changed = false;
    for (size_t m = s.offsets[t]; m < s.offsets[t + 1]; ++m) {
      const MessageFrontier::Term& term = s.terms[m];
      const uint64_t now = (uint64_t{term.source} << 32) | term.key;
      if (now < before) {
        CHECK(!along_changed);  // once: where those of changed edges begin
        along_changed = true;
      }
      before = now;
      CHECK(term.slot == kNoIndex || s.sources[term.slot] == term.source);
      all[s.targets[t]].emplace_back(term.source, term.key, term.old_weight, term.new_weight, term.before, term.after);
    }
  }
  return all;
}

}  // namespace

// In whatever order a batch has reached the sources: the terms of each target are the same ones, in the same order.
TEST(terms_of_a_target_are_in_the_order_of_their_sources) {
  Random random;
  size_t compared = 0;
  for (const Setting& setting : kSettings) {
    if (setting.make().messages.empty()) continue;
    Graph graph({kFeatures}, {{0, 0, setting.options, setting.edge_features}});
    EventStream stream(&graph);
    commit(stream.begin(150, 1200), &graph, {});
    Engine engine(graph, setting.make(), 1);
    engine.initialize();
    const PropagateStep& step = engine.program().propagations[0];
    ThreadPool pool(1);
    for (int batch = 0; batch < 8; ++batch) {
      const Delta delta = stream.next(batch % 2 == 0 ? 400 : 20);
      struct Enough {};
      std::map<uint32_t, Terms> expected, found;
      Preparation prepared;
      for (std::map<uint32_t, Terms>* terms : {&expected, &found}) {
        try {
          prepare_depths(&engine, delta, &prepared, [&](size_t) {
            for (uint32_t v = 0; v < engine.program().values.size() && terms == &found; ++v) {
              shuffle(engine.program().values[v].width, &random, &prepared.batch.changes.rows[v]);
            }
            find_message_frontier(engine.state().rows, step, &pool, &prepared.batch);
            *terms = terms_by_target(prepared.batch.workspace->message_frontier);
            throw Enough();
          });
        } catch (const Enough&) {
        }
      }
      CHECK(found == expected);
      for (const auto& [target, terms] : found) compared += terms.size() > 1;
      engine.prepare(delta, &prepared);
      commit(delta, &graph, {{&engine, &prepared}});
    }
  }
  CHECK(compared > 100);
}

// A target that is not in the frontier has the messages that it had. One whose own rows have changed is computed anew;
// any other's terms are enough: so many messages go and come as they say.
TEST(message_frontier_finds_whoever_gets_another_message) {
  for (const Setting& setting : kSettings) {
    if (setting.make().messages.empty()) continue;
    Graph graph({kFeatures}, {{0, 0, setting.options, setting.edge_features}});
    EventStream stream(&graph);
    commit(stream.begin(60, 250), &graph, {});
    Engine engine(graph, setting.make(), 1);
    engine.initialize();
    const PropagateStep& step = engine.program().propagations[0];
    ThreadPool pool(1);
    Preparation prepared, whole;
    for (int batch = 0; batch < 15; ++batch) {
      std::map<uint32_t, Messages> before;
      for (uint32_t node : nodes_in_use(engine)) before[node] = messages_to(engine, step, node);
      const Delta delta = stream.next(batch % 5 == 4 ? 100 : 5);
      // What the first propagation reads is complete before it.
      struct Enough {};
      std::set<uint32_t> reached, anew;
      std::map<uint32_t, std::pair<size_t, size_t>> gone_and_come;
      try {
        prepare_depths(&engine, delta, &prepared, [&](size_t) {
          find_message_frontier(engine.state().rows, step, &pool, &prepared.batch);
          const MessageFrontier& s = prepared.batch.workspace->message_frontier;
          for (size_t t = 0; t < s.targets.size(); ++t) {
            CHECK(reached.insert(s.targets[t]).second);
            if (t < s.constrained) anew.insert(s.targets[t]);
            auto& [gone, come] = gone_and_come[s.targets[t]];
            for (size_t m = s.offsets[t]; m < s.offsets[t + 1]; ++m) {
              gone += s.terms[m].before;
              come += s.terms[m].after;
            }
          }
          throw Enough();
        });
      } catch (const Enough&) {
      }
      engine.prepare(delta, &whole);
      commit(delta, &graph, {{&engine, &whole}});
      for (uint32_t node : nodes_in_use(engine)) {
        const Messages now = messages_to(engine, step, node);
        if (!reached.contains(node)) {
          CHECK(now == before[node]);
        } else if (!anew.contains(node)) {
          const auto [gone, come] = gone_and_come[node];
          CHECK_EQ(before[node].size() + come - gone, now.size());
          size_t others = 0;
          for (const auto& [edge, message] : now) {
            const auto found = before[node].find(edge);
            others += found == before[node].end() || found->second != message;
          }
          CHECK(others <= come);
        }
      }
    }
  }
}

}  // namespace livegnn::message_frontier_test
