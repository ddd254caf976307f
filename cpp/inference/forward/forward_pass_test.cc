// What one pass computes: no more than what the rows that are asked for need, with degrees of the sample or given ones.
#include "inference/forward/forward_pass.h"

#include <cmath>
#include <limits>
#include <vector>

#include "inference/forward/sampled_graph_model.h"
#include "testing/testing.h"

namespace livegnn::forward_pass_test {

using namespace testing;

TEST(rows_do_not_depend_on_what_else_is_computed) {
  for (const Setting& setting : kSettings) {
    if (!setting.options.keyed) continue;
    const Forward forward = forward_of(setting);
    for (int round = 0; round < 20; ++round) {
      Random random;
      for (int skipped = 0; skipped < round; ++skipped) random.below(2);
      OwnedSample sample;
      draw(&random, 3, 6, &sample);
      const size_t nodes = sample.x.size() / kFeatures;
      sample.finish(nodes, setting.options.columns.weighted, setting.edge_features > 0);
      std::vector<int64_t> everything(nodes);
      for (size_t i = 0; i < nodes; ++i) everything[i] = static_cast<int64_t>(i);
      Floats all = predict(forward, sample.graph, everything);
      all.resize(forward.program().output_width(0));
      CHECK(same_floats(predict(forward, sample.graph, {0}), all));
    }
  }
}

// The features of nodes farther away than the program reads may be anything: nobody looks at them.
TEST(a_pass_reads_no_farther_than_it_must) {
  const Setting& setting = kSettings[7];  // gcn, parallel edges
  const Forward forward = forward_of(setting);
  OwnedSample sample;
  Random random;
  sample.row = {1, 2, 3};
  sample.col = {0, 1, 2};
  sample.weight = {1, 1, 1};
  sample.x = random.floats(4 * kFeatures);
  sample.finish(4, true, false);
  const Floats before = predict(forward, sample.graph, {0});
  sample.x[3 * kFeatures] = NAN;
  CHECK(same_floats(predict(forward, sample.graph, {0}), before));
  CHECK_THROWS(predict(forward, sample.graph, {1}), BadSampledGraph, "position 3");
}

TEST(given_degrees_take_the_place_of_those_in_the_sample) {
  const Setting& setting = kSettings[7];  // gcn, parallel edges: sums of weights, and one loop for each node
  const Forward forward = forward_of(setting);
  Random random;
  OwnedSample sample;
  draw(&random, 2, 6, &sample);
  const size_t nodes = sample.x.size() / kFeatures;
  sample.finish(nodes, true, false);
  // The sample's own degrees, given, change nothing; loops are then those of the sample, or told.
  std::vector<int64_t> count(nodes), loops(nodes);
  std::vector<double> weight(nodes), loop_weight(nodes);
  for (size_t i = 0; i < sample.row.size(); ++i) {
    const auto node = static_cast<size_t>(sample.col[i]);
    ++count[node];
    weight[node] += static_cast<double>(sample.weight[i]);
    if (sample.row[i] != sample.col[i]) continue;
    ++loops[node];
    loop_weight[node] += static_cast<double>(sample.weight[i]);
  }
  const Floats expected = predict(forward, sample.graph, {0});
  sample.graph.degrees = {{count.data(), weight.data(), nullptr, nullptr}, {}};
  check_near({predict(forward, sample.graph, {0})}, {expected});
  sample.graph.degrees = {{count.data(), weight.data(), loops.data(), loop_weight.data()}, {}};
  check_near({predict(forward, sample.graph, {0})}, {expected});
  for (double& each : weight) each = 4 * each + 3;
  const Floats other = predict(forward, sample.graph, {0});
  CHECK(!same_floats(other, expected));
}

}  // namespace livegnn::forward_pass_test
