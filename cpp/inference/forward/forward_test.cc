// Forward passes over samples: rows are the engine's, from any thread, without memory of their own.
#include "inference/forward/forward.h"

#include <numeric>
#include <thread>
#include <vector>

#include "inference/forward/sampled_graph_model.h"
#include "testing/testing.h"

namespace livegnn::forward_test {

using namespace testing;

TEST(a_pass_over_a_whole_graph_gives_the_rows_of_the_engine) {
  for (const Setting& setting : kSettings) {
    Graph graph({kFeatures}, {{0, 0, setting.options, setting.edge_features}});
    EventStream stream(&graph);
    commit(stream.begin(60, 250), &graph, {});
    Engine engine(graph, setting.make(), 1);
    engine.initialize();
    OwnedSample sample;
    read_whole(engine, &sample);
    // Parallel loops are in programs for parallel edges alone.
    const Forward forward = forward_of(setting);
    const std::vector<uint32_t> nodes = nodes_in_use(engine);
    const Floats rows = predict(forward, sample.graph, {nodes.begin(), nodes.end()});
    check_near({rows}, {all_predictions(engine)});
  }
}

TEST(a_pass_allocates_nothing_once_its_memory_is_there) {
  for (const Setting& setting : kSettings) {
    if (setting.options.keyed) continue;
    Random random;
    const Forward forward = forward_of(setting);
    OwnedSample sample;
    draw(&random, 2, 8, &sample);
    for (size_t i = 0; i < sample.row.size(); ++i) {  // no loops
      if (sample.row[i] == sample.col[i])
        sample.row[i] = (sample.col[i] + 1) % static_cast<int64_t>(sample.x.size() / kFeatures);
    }
    sample.finish(sample.x.size() / kFeatures, setting.options.columns.weighted, setting.edge_features > 0);
    const std::vector<int64_t> positions{0};
    Floats out(forward.program().output_width(0));
    const Forward::Asked asked{0, positions, out.data()};
    forward.run(sample.graph, {&asked, 1});
    check_allocates_nothing([&] { forward.run(sample.graph, {&asked, 1}); });
  }
}

TEST(working_memory_is_counted_and_released) {
  const Setting& setting = kSettings[0];
  const Forward forward = forward_of(setting);
  CHECK_EQ(forward.held_bytes(), 0u);
  Random random;
  OwnedSample sample;
  draw(&random, 2, 8, &sample);
  sample.finish(sample.x.size() / kFeatures, setting.options.columns.weighted, setting.edge_features > 0);
  const std::vector<int64_t> positions{0};
  Floats out(forward.program().output_width(0)), again(out.size());
  Forward::Asked asked{0, positions, out.data()};
  forward.run(sample.graph, {&asked, 1});
  CHECK(forward.last_bytes() > 0);
  CHECK_EQ(forward.held_bytes(), forward.last_bytes());
  forward.release();
  CHECK_EQ(forward.held_bytes(), 0u);
  asked.out = again.data();
  forward.run(sample.graph, {&asked, 1});
  CHECK(out == again);
}

TEST(threads_do_not_see_each_other) {
  const Setting& setting = kSettings[9];  // attention, parallel edges
  const Forward forward = forward_of(setting);
  Random random;
  std::vector<OwnedSample> samples(4);
  std::vector<Floats> alone;
  for (OwnedSample& sample : samples) {
    draw(&random, 2, 10, &sample);
    sample.finish(sample.x.size() / kFeatures, false, true);
    alone.push_back(predict(forward, sample.graph, {0}));
  }
  std::vector<std::thread> threads;
  std::vector<int> same(samples.size(), 0);
  for (size_t t = 0; t < samples.size(); ++t) {
    threads.emplace_back([&, t] {
      for (int round = 0; round < 50; ++round) {
        same[t] += same_floats(predict(forward, samples[t].graph, {0}), alone[t]) ? 1 : 0;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int count : same) CHECK_EQ(count, 50);
}

TEST(wrong_samples_are_refused_and_the_next_pass_is_right) {
  const Forward forward = forward_of(kSettings[0]);  // gcn, weighted
  Random random;
  OwnedSample sample;
  sample.x = random.floats(3 * kFeatures);
  sample.row = {1, 2};
  sample.col = {0, 1};
  sample.weight = {1, 2};
  sample.finish(3, true, false);
  const Floats right = predict(forward, sample.graph, {0});
  const auto kind_of = [&](const std::vector<int64_t>& positions) {
    try {
      predict(forward, sample.graph, positions);
    } catch (const BadSampledGraph& error) {
      return static_cast<int>(error.kind);
    }
    return -1;
  };
  const auto with = [&](auto* place, auto value) {
    const auto before = std::exchange(*place, value);
    const int kind = kind_of({0});
    *place = before;
    CHECK(same_floats(predict(forward, sample.graph, {0}), right));
    return kind;
  };
  CHECK_EQ(with(&sample.row[1], int64_t{3}), BadSampledGraph::kSource);
  CHECK_EQ(with(&sample.col[0], int64_t{-1}), BadSampledGraph::kTarget);
  CHECK_EQ(with(&sample.x[kFeatures], NAN), BadSampledGraph::kNodeFeatures);
  CHECK_EQ(with(&sample.weight[1], INFINITY), BadSampledGraph::kWeight);
  CHECK_EQ(kind_of({0, 3}), BadSampledGraph::kAsked);
  CHECK_EQ(kind_of({-1}), BadSampledGraph::kAsked);
  sample.row = sample.col = {0, 0};
  sample.finish(3, true, false);
  CHECK_EQ(kind_of({0}), BadSampledGraph::kParallelLoops);
}

}  // namespace livegnn::forward_test
