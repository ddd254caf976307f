// The aggregate of one node from all its in-neighbours.
#include "inference/rows/aggregate.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "inference/engine_model.h"
#include "inference/plain_steps_model.h"
#include "testing/testing.h"

namespace livegnn::aggregate_test {

using namespace testing;

namespace {

// The messages of a node, in float64.
std::vector<PlainRow> messages_to(const Engine& engine, const PropagateStep& step, uint32_t node) {
  std::vector<PlainRow> messages;
  for (const InEdge& edge : in_edges(engine, step, node)) {
    if (step.skip_loops && edge.source == node) continue;
    messages.push_back(plain_row(engine, step.input, edge.source));
    for (double& value : messages.back()) value *= step.weighted ? edge.weight : 1.0f;
  }
  return messages;
}

void check_aggregate(const std::vector<PlainRow>& messages, bool is_sum, const Floats& row, const Floats& counts) {
  for (size_t c = 0; c < counts.size(); ++c) {
    double sum = 0, reach = 0, largest = -std::numeric_limits<double>::infinity();
    uint32_t ties = 0;
    for (const PlainRow& message : messages) {
      sum += message[c];
      reach += std::fabs(message[c]);
      if (static_cast<float>(message[c]) == static_cast<float>(largest)) ++ties;
      if (static_cast<float>(message[c]) > static_cast<float>(largest)) largest = message[c], ties = 1;
    }
    if (is_sum) {
      CHECK_NEAR(row[c], sum, 1e-5 * reach);
      continue;
    }
    uint32_t counted;
    std::memcpy(&counted, &counts[c], sizeof(counted));
    CHECK_EQ(row[c], messages.empty() ? 0.0f : static_cast<float>(largest));
    CHECK_EQ(counted, messages.empty() ? 0u : ties);
  }
}

}  // namespace

TEST(aggregates_of_one_node_are_those_of_all_its_messages) {
  for_each_state([](const Engine& engine) {
    for (const PropagateStep& step : engine.program().propagations) {
      if (step.message != kNoIndex) continue;
      const bool is_sum = step.aggregate == Aggregate::kSum;
      const Rows input = engine.rows(step.input);
      Floats row(row_stride(input.width)), other(row.size()), counts(input.width), others(input.width);
      for (uint32_t node : nodes_in_use(engine)) {
        const std::vector<PlainRow> messages = messages_to(engine, step, node);
        aggregate_all(engine.state().rows, step, input, node, row.data(), is_sum ? nullptr : counts.data());
        check_aggregate(messages, is_sum, row, counts);
        // From rows that are located one by one: the same bits.
        aggregate_computed(engine.state().rows, step, node, other.data(), is_sum ? nullptr : others.data());
        CHECK(std::equal(row.begin(), row.begin() + input.width, other.begin()));
        CHECK(is_sum || std::memcmp(counts.data(), others.data(), counts.size() * sizeof(float)) == 0);
        aggregate_in_order(engine.state().rows, step, input, node, row.data(), is_sum ? nullptr : counts.data());
        check_aggregate(messages, is_sum, row, counts);
      }
    }
  });
}

TEST(pulled_rows_are_those_of_neighbours_in_order) {
  for_each_state([](const Engine& engine) {
    for (const PropagateStep& step : engine.program().propagations) {
      if (step.message != kNoIndex) continue;
      const Rows input = engine.rows(step.input);
      const std::vector<uint32_t> nodes = nodes_in_use(engine);
      std::vector<const float*> pulled(nodes.size());
      RowArena arena;
      pull(engine.state().rows, step, nodes, &arena, pulled.data());
      Floats row(row_stride(input.width));
      for (size_t i = 0; i < nodes.size(); ++i) {
        aggregate_in_order(engine.state().rows, step, input, nodes[i], row.data(), nullptr);
        CHECK(std::memcmp(row.data(), pulled[i], input.width * sizeof(float)) == 0);
      }
    }
  });
}

}  // namespace livegnn::aggregate_test
