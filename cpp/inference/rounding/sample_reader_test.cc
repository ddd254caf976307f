// Samples that parts of the nodes read, beside that of all nodes.
#include "inference/rounding/sample_reader.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <vector>

#include "hashing/mix_hash.h"
#include "inference/engine_model.h"
#include "inference/rounding/measurement.h"
#include "testing/testing.h"

namespace livegnn::sample_reader_test {

using namespace testing;

namespace {

void check_same(const MessageSample& sample, const MessageSample& expected, size_t width) {
  CHECK_EQ(sample.targets.size(), expected.targets.size());
  for (size_t t = 0; t < sample.targets.size(); ++t) {
    const MessageSample::Target &target = sample.targets[t], &other = expected.targets[t];
    CHECK_EQ(target.turn, other.turn);
    CHECK_EQ(target.degree, other.degree);
    CHECK_EQ(target.count, other.count);
    CHECK_EQ(target.sum == nullptr, other.sum == nullptr);
    CHECK(target.sum == nullptr || std::memcmp(target.sum, other.sum, width * sizeof(float)) == 0);
  }
  CHECK_EQ(sample.rows.size(), expected.rows.size());
  CHECK(sample.weights == expected.weights);
  for (size_t i = 0; i < sample.rows.size(); ++i) {
    CHECK(std::memcmp(sample.rows[i], expected.rows[i], width * sizeof(float)) == 0);
  }
}

// Some parts of all nodes: each node is in a random one.
struct Parts {
  Parts(const SampleReader& from, size_t count, Random* random) : reader(from) {
    const uint64_t salt = random->below(uint64_t{1} << 62);
    const auto owner = [salt, count](uint32_t node) { return MixHash{}(node ^ salt) % count; };
    std::vector<SampledTarget> found;
    for (size_t part = 0; part < count; ++part) {
      const std::vector<SampledTarget> own = reader.find([&](uint32_t node) { return owner(node) == part; });
      found.insert(random->chance(0.5) ? found.begin() : found.end(), own.begin(), own.end());
    }
    targets = choose_targets(found);
    of_part.resize(count);
    for (const SampledTarget& target : targets) of_part[owner(target.node)].push_back(target);
  }

  std::vector<const MessageSample*> few() const {
    return collect([&](const auto& part) { return reader.few(part); });
  }
  std::vector<const MessageSample*> many() const {
    return collect([&](const auto& part) { return reader.many(part); });
  }

  std::vector<SampledTarget> targets;  // chosen from those of all parts

 private:
  template <class Read>
  std::vector<const MessageSample*> collect(const Read& read) const {
    std::vector<const MessageSample*> samples;
    for (const auto& part : of_part) samples.push_back(&read_.emplace_back(read(part)));
    return samples;
  }

  const SampleReader& reader;
  std::vector<std::vector<SampledTarget>> of_part;
  mutable std::deque<MessageSample> read_;
};

}  // namespace

// The units that follow from the samples of parts are those of the whole, to the bit, whatever the parts.
TEST(parts_read_and_measure_what_the_whole_does) {
  Random random;
  size_t renewed = 0;
  for (const Setting& setting : kSettings) {
    Graph graph({kFeatures}, {{0, 0, setting.options, setting.edge_features}});
    EventStream stream(&graph);
    commit(stream.begin(random.chance(0.5) ? 80 : 1500, 3000), &graph, {});
    Engine engine(graph, setting.make(), 1);
    engine.initialize();
    Preparation prepared;
    for (int batch = 0; batch < 4; ++batch) {
      const Delta delta = stream.next(batch % 2 == 0 ? 300 : 8);
      engine.prepare(delta, &prepared);
      for (const PropagateStep& step : engine.program().propagations) {
        if (step.aggregate != Aggregate::kSum) continue;
        const BatchChanges* const changes = random.chance(0.5) ? &prepared.batch.changes : nullptr;
        const WholeSample whole(engine.state().rows, engine.state().rounding, step, changes);
        const Parts parts(whole.reader, 1 + random.below(5), &random);
        CHECK(parts.targets == whole.targets);
        if (changes == nullptr && graph.nodes[0].ids.capacity() <= kTried) {
          // All nodes are tried, and most have in-edges.
          const std::vector<uint32_t> nodes = nodes_in_use(engine);
          const EdgeView store = view_of(graph, step);
          const auto sent =
              std::count_if(nodes.begin(), nodes.end(), [&](uint32_t n) { return store.degree_in(n) > 0; });
          CHECK_EQ(whole.targets.size(), std::min(static_cast<size_t>(sent), kChosen));
        }
        const MessageSample few = merge_samples(parts.few()), many = merge_samples(parts.many());
        check_same(few, whole.few, engine.program().values[step.output].width);
        check_same(many, whole.many(), engine.program().values[step.output].width);
        // Where units move: by more messages, up and down, or not at all.
        RoundingScale now;
        now.begin(engine.program().values[step.output].width);
        const Measurement measurement(engine.program(), step, whole.few), merged(engine.program(), step, few);
        Floats scales = measurement.typical();
        for (float& scale : scales) scale = random.chance(0.2) ? 1 : scale * random.between(0.1f, 8);
        now.set(scales, step.averaged ? random.between(0, 1) : 0, random.chance(0.5));
        NewScale expected, found;
        CHECK_EQ(renew_scale(
                     now, measurement, [&] { return whole.many(); }, &expected),
                 renew_scale(now, merged, [&] { return merge_samples(parts.many()); }, &found));
        CHECK(found.scales == expected.scales);
        CHECK_EQ(found.mean, expected.mean);
        CHECK_EQ(found.offset, expected.offset);
        CHECK_EQ(found.shrunk, expected.shrunk);
        renewed += !found.scales.empty();
      }
      commit(delta, &graph, {{&engine, &prepared}});
    }
  }
  CHECK(renewed > 10);
}

}  // namespace livegnn::sample_reader_test
