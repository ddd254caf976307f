// What a batch does to messages that depend on more than their source, beside a walk over all edges.
#include "inference/propagation/message_frontier.h"

#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "inference/engine_model.h"
#include "inference/plain_steps_model.h"
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

}  // namespace

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
