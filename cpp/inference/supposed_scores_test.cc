// Answers to requests for scores after events, beside an engine that has committed them.
#include "inference/supposed_scores.h"

#include <string>
#include <vector>

#include "inference/engine_model.h"
#include "inference/evaluation/edge_scores.h"
#include "testing/testing.h"

namespace livegnn::supposed_scores_test {

using namespace testing;

namespace {

constexpr uint32_t kScores = 3;
constexpr RequestLimits kLimits = {4096, 100, 1 << 20};
const RequestNames kNames = {{{"node", 0}}, {{{"node", "to", "node"}, 0}}, {{"risk", {"node", "to", "node"}}}};

// An edge output on the predictions at both ends.
Program with_scores(const Setting& setting) {
  Program program = setting.make();
  Random random;
  EdgeOutput output{0, 0, 0, {{MessageSource::kSource, 0}, {MessageSource::kTarget, 0}}, {}};
  output.step = RowsBuilder::on_edges(&program, {kClasses, kClasses}, [&](RowsBuilder* rows) {
    rows->linear(rows->apply(OpKind::kConcat, {0, 1}, 2 * kClasses), kScores, &random);
  });
  output.step.sinks = {{static_cast<uint32_t>(output.step.registers.size()) - 1, 0}};
  program.edge_outputs.push_back(std::move(output));
  return program;
}

std::string request_of(int64_t source, int64_t target, const std::string& events, const std::string& more = "") {
  const std::string from = std::to_string(source), to = std::to_string(target);
  return "{\"sources\":[" + from + "],\"targets\":[" + to + "],\"events\":[" + events + "]" + more + "}";
}

std::string edge_of(const char* event, int64_t source, int64_t target) {
  return std::string("{\"event\":\"") + event + "\",\"src\":" + std::to_string(source) +
         ",\"dst\":" + std::to_string(target) + "}";
}

// The answer of an engine at the state of its graph.
std::string answer_now(const Engine& engine, int64_t seq, int64_t source, int64_t target) {
  const IdMap& ids = engine.graph().nodes[0].ids;
  const uint32_t from = ids.index_of(source), to = ids.index_of(target);
  std::vector<float> scores(kScores);
  const ReadOutput read = [&](std::span<const uint32_t> nodes, size_t output, float* out) {
    engine.predict(nodes, out, output);
  };
  score_pairs(engine.program(), 0, {{&from, 1}, {&to, 1}}, read, scores.data());
  return write_scores(seq, scores, 1);
}

}  // namespace

TEST(answers_are_those_of_an_engine_that_has_committed_the_events) {
  for (const Setting& setting : kSettings) {
    Graph graph({kFeatures}, {{0, 0, setting.options, setting.edge_features}});
    EventStream stream(&graph);
    commit(stream.begin(60, 250), &graph, {});
    Engine engine(graph, with_scores(setting), 1);
    engine.initialize();
    SupposedScores supposed(&engine, kNames);
    Preparation prepared;
    for (int64_t i = 0; i < 12; ++i) {
      const auto node = [&](int64_t at) { return graph.nodes[0].ids.id_of(static_cast<uint32_t>(at % 60)); };
      const int64_t source = node(7 * i), target = node(11 * i + 5), other = node(i + 30);
      const std::string before = answer_now(engine, i, source, target);
      const auto answer = supposed.answer(
          request_of(source, target, edge_of("add_edge", source, target) + "," + edge_of("remove_edge", other, target)),
          i, kLimits);
      CHECK(answer.has_value());
      CHECK_EQ(answer_now(engine, i, source, target), before);
      Stage stage(graph);
      stage.add_edges(0, &source, &target, nullptr, nullptr, nullptr, 0, 1);
      stage.remove_edges(0, &other, &target, 1);
      const Delta delta = stage.finish();
      engine.prepare(delta, &prepared);
      commit(delta, &graph, {{&engine, &prepared}});
      CHECK_EQ(*answer, answer_now(engine, i, source, target));
    }
  }
}

TEST(requests_that_are_wrong_or_reach_too_much_have_no_answer) {
  Graph graph({kFeatures}, {{0, 0, kSettings[0].options, kSettings[0].edge_features}});
  EventStream stream(&graph);
  commit(stream.begin(60, 250), &graph, {});
  Engine engine(graph, with_scores(kSettings[0]), 1);
  engine.initialize();
  SupposedScores supposed(&engine, kNames);
  const int64_t a = graph.nodes[0].ids.id_of(1), b = graph.nodes[0].ids.id_of(2);
  const std::string edge = edge_of("add_edge", a, b), right = request_of(a, b, edge), node = std::to_string(b);
  CHECK(supposed.answer(right, 5, kLimits).has_value());
  CHECK(supposed.answer(request_of(a, b, edge, ",\"output\":\"risk\",\"min_seq\":5"), 5, kLimits).has_value());
  CHECK(!supposed.answer(right, 5, {right.size() - 1, 100, 1 << 20}));
  CHECK(!supposed.answer(right, 5, {4096, kScores - 1, 1 << 20}));
  CHECK(!supposed.answer(right, 5, {4096, 100, 1}));
  for (const std::string& other :
       {request_of(a, b, edge, ",\"output\":\"other\""), request_of(a, b, edge, ",\"min_seq\":6"),
        request_of(a, b, edge, ",\"edge_attr\":[[1]]"), request_of(a, b, edge, ",\"edge_weight\":[1]"),
        request_of(a, b, edge, R"(,"edge_type":["a","to","b"])"), request_of(a, 2000, edge),
        request_of(a, b, edge_of("add_edge", a, 2000)),
        request_of(a, b, R"({"event":"remove_node","id":)" + node + "}"),
        request_of(a, b, R"({"event":"set_features","x":[1,2],"id":)" + node + "}"), std::string("{}")}) {
    CHECK(!supposed.answer(other, 5, kLimits));
  }
  engine.retire();
  CHECK(!supposed.answer(right, 5, kLimits));
}

}  // namespace livegnn::supposed_scores_test
