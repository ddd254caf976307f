// Maxima along edges and their counts, in the first computation and after batches.
#include <algorithm>
#include <cstring>
#include <vector>

#include "inference/engine_model.h"
#include "inference/plain_steps_model.h"
#include "testing/testing.h"

namespace livegnn::max_propagation_test {

using namespace testing;

// Against all in-edges of all nodes, bit for bit.
TEST(maxima_are_those_of_all_in_edges) {
  for_each_state([](const Engine& engine) {
    for (const PropagateStep& step : engine.program().propagations) {
      if (step.aggregate != Aggregate::kMax) continue;
      const Rows input = engine.rows(step.input), out = engine.rows(step.output), counts = engine.rows(step.counts);
      for (uint32_t node : nodes_in_use(engine)) {
        const std::vector<InEdge> edges = in_edges(engine, step, node);
        for (size_t c = 0; c < out.width; ++c) {
          std::vector<float> messages;
          for (const InEdge& edge : edges) {
            messages.push_back((step.weighted ? edge.weight : 1.0f) * input.row(edge.source)[c]);
          }
          const float largest = messages.empty() ? 0 : *std::max_element(messages.begin(), messages.end());
          CHECK_EQ(out.row(node)[c], largest);
          const auto ties = static_cast<uint32_t>(std::count(messages.begin(), messages.end(), largest));
          CHECK(std::memcmp(counts.row(node) + c, &ties, sizeof(ties)) == 0);
        }
      }
    }
  });
}

}  // namespace livegnn::max_propagation_test
