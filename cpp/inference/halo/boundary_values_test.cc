#include "inference/halo/boundary_values.h"

#include "inference/engine_model.h"
#include "testing/testing.h"

namespace livegnn::boundary_values_test {

using namespace testing;

namespace {

std::vector<std::vector<uint32_t>> values_of(Program program) {
  const Graph graph({kFeatures}, {{0, 0, {{true, false}, false, false}}});
  return boundary_values(RowState(graph, std::move(program), "", 0));
}

}  // namespace

TEST(values_are_sent_once_before_the_first_depth_that_reads_them) {
  Program program = gcn(true, {});
  const uint32_t first = program.propagations[0].input, second = program.propagations[1].input;
  CHECK(values_of(std::move(program)) == std::vector<std::vector<uint32_t>>({{}, {first}, {second}}));
  Program twice = gcn(true, {});
  twice.propagations[1].input = first;
  CHECK(values_of(std::move(twice)) == std::vector<std::vector<uint32_t>>({{}, {first}, {}}));
  Program features = gcn(true, {});
  features.propagations[0].input = 0;
  CHECK(values_of(std::move(features)) == std::vector<std::vector<uint32_t>>({{}, {0}, {second}}));
}

TEST(values_that_messages_read_of_sources_are_sent) {
  Program program = attention(true, {});
  std::vector<std::vector<uint32_t>> expected(1);
  std::vector<bool> seen(program.values.size());
  for (const PropagateStep& step : program.propagations) {
    std::vector<uint32_t>& values = expected.emplace_back();
    for (const MessageSource& source : program.messages[step.message].sources) {
      if (source.side != MessageSource::kSource || seen[source.value]) continue;
      seen[source.value] = true;
      values.push_back(source.value);
    }
  }
  CHECK(expected.back().size() >= 1);
  CHECK(values_of(std::move(program)) == expected);
  Program loops = attention(true, {});
  for (PropagateStep& step : loops.propagations) step.only_loops = true;
  CHECK(values_of(std::move(loops)) == std::vector<std::vector<uint32_t>>(expected.size()));
}

TEST(features_are_held_of_the_nodes_that_send_if_messages_need_them) {
  const Graph graph({kFeatures}, {{0, 0, {{true, false}, false, true}}});
  const auto directions = [&](Program program) {
    return feature_directions(RowState(graph, std::move(program), "", 0));
  };
  CHECK(directions(gcn(true, {})) == std::vector<bool>({false, false}));
  Program features = gcn(true, {});
  features.propagations[0].input = 0;
  CHECK(directions(std::move(features)) == std::vector<bool>({true, false}));
  // Readers counts the messages of both directions together, so both are held.
  Program both = gcn(true, {});
  both.propagations[0].input = 0;
  both.propagations[1].reversed = true;
  CHECK(directions(std::move(both)) == std::vector<bool>({true, true}));
}

TEST(programs_that_parts_cannot_run_are_refused) {
  CHECK_THROWS(values_of(keeping_aggregates(gcn(true, {}))), std::invalid_argument, "must keep what others read");
  Program calls = gcn(true, {});
  calls.functions.emplace_back();
  CHECK_THROWS(values_of(std::move(calls)), std::invalid_argument, "cannot call functions");
}

}  // namespace livegnn::boundary_values_test
