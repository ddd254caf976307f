// Magnitudes of messages, on the graph as it is and as a batch leaves it.
#include "inference/rounding/measurement.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "inference/engine_model.h"
#include "inference/rounding/sample_reader.h"
#include "testing/testing.h"

namespace livegnn::measurement_test {

using namespace testing;

namespace {

Floats scales_of(const Measurement& measurement, const WholeSample& sample) {
  return measurement.scales(Floats(measurement.typical().size(), 1.0f), [&] { return sample.many(); });
}

}  // namespace

// What is measured on a prepared batch is what would be measured after its commit.
TEST(measurement_of_a_prepared_batch_is_that_after_its_commit) {
  for (const Setting& setting : kSettings) {
    Graph graph({kFeatures}, {{0, 0, setting.options, setting.edge_features}});
    EventStream stream(&graph);
    commit(stream.begin(60, 250), &graph, {});
    Engine engine(graph, setting.make(), 1);
    engine.initialize();
    const std::vector<PropagateStep>& steps = engine.program().propagations;
    Preparation prepared;
    for (int batch = 0; batch < 12; ++batch) {
      const Delta delta = stream.next(batch % 6 == 5 ? 150 : 8);
      engine.prepare(delta, &prepared);
      std::vector<Floats> before;
      std::vector<float> means;
      for (const PropagateStep& step : steps) {
        if (step.aggregate != Aggregate::kSum) continue;
        const WholeSample sample(engine.state().rows, engine.state().rounding, step, &prepared.batch.changes);
        const Measurement measurement(engine.program(), step, sample.few);
        before.push_back(scales_of(measurement, sample));
        means.push_back(measurement.mean(before.back()));
      }
      commit(delta, &graph, {{&engine, &prepared}});
      size_t at = 0;
      for (const PropagateStep& step : steps) {
        if (step.aggregate != Aggregate::kSum) continue;
        const WholeSample sample(engine.state().rows, engine.state().rounding, step, nullptr);
        const Measurement measurement(engine.program(), step, sample.few);
        const Floats after = scales_of(measurement, sample);
        // Lists are in another order, so that other edges of a target may be among the two that are looked at.
        CHECK_EQ(after.size(), before[at].size());
        for (size_t c = 0; c < after.size(); ++c) {
          CHECK((after[c] > 0) == (before[at][c] > 0));
          if (after[c] > 0) CHECK(std::fabs(std::log2(after[c] / before[at][c])) < 2);
        }
        CHECK((measurement.mean(after) > 0) == (means[at] > 0));
        ++at;
      }
    }
  }
}

// What is confirmed without a median is what the medians say.
TEST(measurement_confirms_what_it_would_measure) {
  constexpr float kFactor = 4;
  const auto near = [](float known, float found) { return found > known / kFactor && found < known * kFactor; };
  size_t confirmed = 0, refused = 0;
  for (const Setting& setting : kSettings) {
    Graph graph({kFeatures}, {{0, 0, setting.options, setting.edge_features}});
    EventStream stream(&graph);
    commit(stream.begin(60, 250), &graph, {});
    Engine engine(graph, setting.make(), 1);
    engine.initialize();
    Preparation prepared;
    const Delta delta = stream.next(50);
    engine.prepare(delta, &prepared);
    for (const PropagateStep& step : engine.program().propagations) {
      if (step.aggregate != Aggregate::kSum) continue;
      const WholeSample sample(engine.state().rows, engine.state().rounding, step, &prepared.batch.changes);
      const Measurement measurement(engine.program(), step, sample.few);
      const Floats typical = measurement.typical();
      for (float factor : {1.0f, 0.3f, 0.2f, 3.5f, 5.0f}) {
        for (size_t c = 0; c < typical.size(); ++c) {
          Floats known = typical;
          known[c] = typical[c] == 0 ? (factor == 1 ? 0 : 1) : typical[c] * factor;
          const float mean = measurement.mean(known);
          const bool same = typical[c] == 0 ? known[c] == 0 : near(known[c], typical[c]);
          CHECK_EQ(measurement.confirms(known, mean, kFactor), same);
          if (same && step.averaged && mean > 0) {
            CHECK_EQ(measurement.confirms(known, mean * factor, kFactor), near(mean * factor, mean));
          }
          if (!step.averaged) CHECK(!measurement.confirms(known, 0.5f, kFactor));
          ++(same ? confirmed : refused);
        }
      }
    }
    commit(delta, &graph, {{&engine, &prepared}});
  }
  CHECK(confirmed > 100 && refused > 100);
}

TEST(a_channel_that_has_had_messages_is_looked_for_further) {
  Graph graph({kFeatures}, {{0, 0, {{true, false}, false, false}}});
  Stage stage(graph);
  Random random;
  constexpr int64_t kNodes = 400;
  for (int64_t id = 0; id < kNodes; ++id) {
    Floats x(kFeatures, 1.0f);
    x[1] = id == kNodes - 1 ? 8.0f : 0.0f;  // one node alone has the second channel
    stage.add_nodes(0, &id, x.data(), kFeatures, 1);
  }
  const float weight = 1;
  for (int64_t id = 0; id < kNodes; ++id) {
    for (int64_t other = 0; other < 40; ++other) {
      const int64_t source = (id + kNodes - 1 - other) % kNodes;
      stage.add_edges(0, &source, &id, &weight, nullptr, nullptr, 0, 1);
    }
  }
  commit(stage.finish(), &graph, {});
  Program program;
  enum : uint32_t { kX, kSum };
  program.values = {{0, kFeatures, true, 0}, {0, kFeatures, false, 0}};
  program.output = kSum;
  propagate(&program, kX, kSum, Aggregate::kSum, true);
  Engine engine(graph, std::move(program), 1);
  engine.initialize();
  const PropagateStep& step = engine.program().propagations[0];
  const WholeSample sample(engine.state().rows, engine.state().rounding, step, nullptr);
  const Measurement measurement(engine.program(), step, sample.few);
  const Floats unknown(kFeatures, 0.0f), known(kFeatures, 1.0f);
  const auto never = []() -> MessageSample { testing::fail(__FILE__, __LINE__, "more messages were asked for"); };
  CHECK_EQ(measurement.scales(unknown, never)[0], 1.0f);
  CHECK_EQ(measurement.scales(known, [&] { return sample.many(); })[1], 8.0f);
}

}  // namespace livegnn::measurement_test
