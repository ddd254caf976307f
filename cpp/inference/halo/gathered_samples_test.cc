// Samples that parts gather, beside those of the undivided graph.
#include "inference/halo/gathered_samples.h"

#include <cstring>

#include "inference/halo/parts_model.h"
#include "testing/testing.h"

namespace livegnn::gathered_samples_test {

using namespace testing;

namespace {

// Whatever a measurement reads of a sample.
std::vector<float> read_all(const MessageSample& sample, size_t width) {
  std::vector<float> all;
  for (const MessageSample::Target& target : sample.targets) {
    all.insert(all.end(), {static_cast<float>(target.turn), static_cast<float>(target.degree),
                           static_cast<float>(target.count), target.sum == nullptr ? 0.0f : 1.0f});
    if (target.sum != nullptr) all.insert(all.end(), target.sum, target.sum + width);
  }
  for (size_t i = 0; i < sample.rows.size(); ++i) {
    all.push_back(sample.weights[i]);
    all.insert(all.end(), sample.rows[i], sample.rows[i] + width);
  }
  return all;
}

bool same_floats(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

}  // namespace

TEST(parts_gather_the_samples_of_the_undivided_graph) {
  const EdgeTypeSpec spec{0, 0, {{true, false}, true, false}};
  const auto make = [] {
    Program program = gcn(true, {});
    program.propagations[1].averaged = true;
    return program;
  };
  Graph graph({kFeatures}, {spec});
  Engine engine(graph, make(), 1);
  engine.initialize();
  Preparation prepared;
  DividedGraph divided(spec, make, Owners(OwnerRule::kModulo, 3));
  SharedStream stream(1, {1, 0.1f});
  for (size_t batch = 0; batch < 12; ++batch) {
    const StagedEvents events = stream.next(batch == 0 ? 300 : 6);
    const Delta delta = stage_all(graph, events);
    engine.prepare(delta, &prepared);
    divided.stage(events);
    divided.prepare();
    std::vector<std::vector<float>> expected, read[3];
    for (const PropagateStep& step : engine.program().propagations) {
      const State& state = engine.state();
      const WholeSample sample(state.rows, state.rounding, step, &prepared.batch.changes);
      const size_t width = engine.program().values[step.output].width;
      expected.push_back(read_all(sample.few, width));
      expected.push_back(read_all(sample.many(), width));
    }
    divided.run([&](size_t number, DividedGraph::Part* part) {
      const State& state = part->engine.state();
      const OwnersAfter owners(*part->graph.part, part->delta);
      GatheredSamples samples(state.rows, state.rounding, &part->prepared.batch.changes, owners,
                              &divided.exchange.of(number));
      for (size_t p = 0; p < engine.program().propagations.size(); ++p) {
        const size_t width = engine.program().values[engine.program().propagations[p].output].width;
        read[number].push_back(read_all(samples.few(p), width));
        read[number].push_back(read_all(samples.many(p), width));
      }
    });
    for (const auto& each : read) {
      CHECK_EQ(each.size(), expected.size());
      for (size_t i = 0; i < expected.size(); ++i) CHECK(same_floats(each[i], expected[i]));
    }
    commit(delta, &graph, {{&engine, &prepared}});
    divided.commit();
  }
}

}  // namespace livegnn::gathered_samples_test
