// The units of rounding: typical magnitudes of messages, channel by channel.
#include <algorithm>
#include <cmath>
#include <vector>

#include "inference/engine_model.h"
#include "testing/testing.h"

namespace livegnn::rounding_scales_test {

using namespace testing;

namespace {

// Sums of features along edges, and nothing else.
Program sums_of_features(bool weighted) {
  enum : uint32_t { kX, kSum };
  Program program;
  program.values = {{0, kFeatures, true, 0}, {0, kFeatures, false, 0}};
  program.output = kSum;
  propagate(&program, kX, kSum, Aggregate::kSum, weighted);
  return program;
}

// The magnitudes of all messages of a channel, those that are 0 left aside.
Floats magnitudes(const Engine& engine, size_t channel) {
  const PropagateStep& step = engine.program().propagations[0];
  const Rows input = engine.rows(step.input);
  Floats all;
  for (uint32_t node : nodes_in_use(engine)) {
    view_of(engine.graph(), step).scan_in(node, [&](NeighborSpan span) {
      for (size_t i = 0; i < span.size; ++i) {
        const float weight = step.weighted ? span.weights[i] : 1.0f;
        const float magnitude = std::fabs(weight * input.row(span.ids[i])[channel]);
        if (magnitude > 0) all.push_back(magnitude);
      }
    });
  }
  return all;
}

struct Scaled {
  Graph graph{{kFeatures}, {{0, 0, {{true, false}, false, false}}}};
  EventStream stream{&graph};
  Engine engine{graph, sums_of_features(true), 1};
  Preparation prepared;

  // Features of all nodes, each channel of another magnitude.
  void set_features(float factor, Random* random) {
    apply([&](uint32_t, size_t c) { return std::ldexp(factor * random->between(-1, 1), 3 * static_cast<int>(c)); });
  }
  // None moves by more than a third.
  void vary_features(const std::vector<Floats>& first, Random* random) {
    apply([&](uint32_t node, size_t c) { return first[node][c] * random->between(0.75f, 1.3f); });
  }
  template <class Feature>
  void apply(const Feature& feature) {
    Stage stage(graph);
    for (uint32_t node : nodes_in_use(engine)) {
      const int64_t id = graph.nodes[0].ids.id_of(node);
      Floats x(kFeatures);
      for (size_t c = 0; c < kFeatures; ++c) x[c] = feature(node, c);
      stage.set_features(0, &id, x.data(), kFeatures, 1);
    }
    const Delta delta = stage.finish();
    engine.prepare(delta, &prepared);
    commit(delta, &graph, {{&engine, &prepared}});
  }
};

}  // namespace

TEST(scales_are_typical_magnitudes_of_messages) {
  Random random;
  Scaled scaled;
  commit(scaled.stream.begin(100, 600), &scaled.graph, {});
  scaled.set_features(1, &random);
  scaled.engine.initialize();
  const std::vector<float> scales = scaled.engine.state().rounding.scales[0].saved();
  CHECK_EQ(scales.size(), kFeatures + 2);
  for (size_t c = 0; c < kFeatures; ++c) {
    Floats all = magnitudes(scaled.engine, c);
    std::sort(all.begin(), all.end());
    // The median of a sample of some hundred.
    CHECK(scales[c] >= all[all.size() / 5] && scales[c] <= all[all.size() - all.size() / 5]);
  }
}

// Messages that differ by less than they have in common are told from others, as soon as some are there.
TEST(messages_far_from_0_are_noticed) {
  Random random;
  Scaled scaled;
  commit(scaled.stream.begin(100, 600), &scaled.graph, {});
  const auto around = [&](float centre, size_t channel) {
    scaled.apply([&](uint32_t, size_t c) { return (c == channel ? centre : 0) + random.between(-1, 1); });
    return scaled.engine.state().rounding.scales[0].offset;
  };
  scaled.engine.initialize();
  CHECK(!around(0, 0));
  for (size_t channel = 0; channel < kFeatures; channel += 4) {
    CHECK(around(1000, channel));
    CHECK(!around(1, channel));
    CHECK(around(-50, channel));
    CHECK(!around(0, channel));
  }
  scaled.apply([](uint32_t, size_t) { return 3.0f; });  // which all have in common, and nothing else
  CHECK(!scaled.engine.state().rounding.scales[0].offset);
}

// They are looked at after 1, 4, 16, ... batches, and when many messages have changed, as here each time.
TEST(scales_fall_at_once_and_rise_in_steps) {
  Random random;
  Scaled scaled;
  commit(scaled.stream.begin(100, 600), &scaled.graph, {});
  scaled.set_features(1, &random);
  scaled.engine.initialize();
  for (float factor : {1.0f, 0x1p-20f, 1.5f, 1.0f, 1.0f, 1.0f, 1.0f, 1.0f, 1.0f, 1.0f, 1.0f, 1.0f, 1.0f, 1.0f}) {
    const std::vector<float> before = scaled.engine.state().rounding.scales[0].saved();
    scaled.set_features(factor, &random);
    const std::vector<float> scales = scaled.engine.state().rounding.scales[0].saved();
    for (size_t c = 0; c < kFeatures; ++c) {
      const Floats all = magnitudes(scaled.engine, c);
      const float largest = *std::max_element(all.begin(), all.end());
      CHECK(scales[c] > 0 && scales[c] <= largest);
      CHECK(scales[c] <= 4 * before[c]);
    }
  }
  const std::vector<float> scales = scaled.engine.state().rounding.scales[0].saved();
  for (size_t c = 0; c < kFeatures; ++c) CHECK(scales[c] > std::ldexp(0.01f, 3 * static_cast<int>(c)));
}

// Where nothing but noise changes, they stay what they are, to the bit.
TEST(scales_stay_while_messages_vary) {
  Random random;
  Scaled scaled;
  commit(scaled.stream.begin(100, 600), &scaled.graph, {});
  scaled.set_features(1, &random);
  scaled.engine.initialize();
  const std::vector<float> before = scaled.engine.state().rounding.scales[0].saved();
  std::vector<Floats> first;
  const Rows features = scaled.engine.rows(0);
  for (size_t i = 0; i < features.count; ++i) first.emplace_back(features.row(i), features.row(i) + kFeatures);
  for (int batch = 0; batch < 10; ++batch) scaled.vary_features(first, &random);
  const std::vector<float> scales = scaled.engine.state().rounding.scales[0].saved();
  CHECK(std::equal(before.begin(), before.begin() + kFeatures, scales.begin()));
}

// Whether they are measured follows from counts of the whole, which those of parts add up to.
TEST(totals_of_parts_decide_like_those_of_the_whole) {
  Random random;
  Scaled scaled;
  commit(scaled.stream.begin(100, 600), &scaled.graph, {});
  scaled.engine.initialize();
  const RoundingState& rounding = scaled.engine.state().rounding;
  size_t measured = 0;
  for (int batch = 0; batch < 40; ++batch) {
    const Delta delta = scaled.stream.next(5);
    scaled.engine.prepare(delta, &scaled.prepared);
    const Totals& whole = scaled.prepared.batch.totals;
    CHECK_EQ(whole.touched, scaled.prepared.edges_touched);
    CHECK_EQ(whole.affected, scaled.prepared.affected);
    CHECK_EQ(whole.messages, scaled.graph.edges[0].store->num_edges() + delta.edges[0].size());
    Totals rest = whole, sum;
    for (size_t part = 0; part < random.below(4); ++part) {
      const Totals one{random.below(rest.affected + 1), random.below(rest.touched + 1),
                       random.below(rest.messages + 1)};
      rest = {rest.affected - one.affected, rest.touched - one.touched, rest.messages - one.messages};
      sum += one;
    }
    sum += rest;
    CHECK_EQ(is_measured_after(rounding, sum), is_measured_after(rounding, whole));
    const NewScales& scales = scaled.prepared.batch.scales;  // measured on the batch as it was prepared first
    CHECK(scales.in_use || is_measured_after(rounding, sum) == scales.measured);
    measured += is_measured_after(rounding, sum);
    commit(delta, &scaled.graph, {{&scaled.engine, &scaled.prepared}});
  }
  CHECK(measured > 2 && measured < 38);
}

}  // namespace livegnn::rounding_scales_test
