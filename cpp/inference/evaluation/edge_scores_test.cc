// Scores of pairs of nodes: any number of them, each as if it were alone.
#include "inference/evaluation/edge_scores.h"

#include <map>
#include <utility>
#include <vector>

#include "inference/engine_model.h"
#include "inference/evaluation/blocks.h"
#include "inference/plain_steps_model.h"
#include "testing/testing.h"

namespace livegnn::edge_scores_test {

using namespace testing;

namespace {

constexpr uint32_t kNodes = 20, kWide = 12, kNarrow = 5, kColumns = 3, kScores = 4;

// A layer and an activation on rows of two outputs at the source, one at the target, and both columns of the edge.
Program decoder(Random* random) {
  using Source = MessageSource;
  Program program;
  program.values = {{0, kWide, true, 0}, {0, kNarrow, false, 0}};
  program.output = 0;
  program.others.push_back({true, 1});
  EdgeOutput output{0, 0, 0, {}, {}};
  output.sources = {{Source::kSource, 0},   {Source::kTarget, 0}, {Source::kSource, 1},
                    {Source::kFeatures, 0}, {Source::kWeight, 0}, {Source::kSource, 0}};
  const std::vector<uint32_t> widths = {kWide, kWide, kNarrow, kColumns, 1, kWide};
  output.step = RowsBuilder::on_edges(&program, widths, [&](RowsBuilder* rows) {
    uint32_t row = rows->apply(OpKind::kMultiply, {0, 1});
    row = rows->apply(OpKind::kAdd, {row, 5});
    row = rows->apply(OpKind::kConcat, {row, 2, 3, 4}, kWide + kNarrow + kColumns + 1);
    row = rows->linear(row, kScores, random);
    row = rows->apply("tanh", {row});
  });
  output.step.sinks = {{static_cast<uint32_t>(output.step.registers.size()) - 1, 0}};
  program.edge_outputs.push_back(std::move(output));
  return program;
}

struct Case {
  explicit Case(size_t count, Random* random)
      : features(random->floats(count * kColumns)), weights(random->floats(count)) {
    for (size_t i = 0; i < count; ++i) {
      sources.push_back(static_cast<uint32_t>(random->below(kNodes)));
      targets.push_back(static_cast<uint32_t>(random->below(kNodes)));
    }
  }
  ScoredPairs pairs() const { return {sources, targets, features.data(), weights.data()}; }

  std::vector<uint32_t> sources, targets;
  Floats features, weights;
};

}  // namespace

TEST(scores_of_any_number_of_pairs_are_those_of_each_alone) {
  Random random;
  const Program program = decoder(&random);
  const RowsStep& step = program.edge_outputs[0].step;
  const Floats rows[] = {random.floats(kNodes * kWide), random.floats(kNodes * kNarrow)};
  size_t reads = 0;
  const ReadOutput read = [&](std::span<const uint32_t> nodes, size_t output, float* out) {
    ++reads;
    const size_t width = program.output_width(output);
    for (uint32_t node : nodes) out = std::copy_n(rows[output].data() + node * width, width, out);
  };
  for (size_t count : {size_t{0}, size_t{1}, kBlockRows - 1, kBlockRows + 1, 16 * kBlockRows, 40 * kBlockRows + 7}) {
    const Case some(count, &random);
    Floats out(count * kScores, -1.0f);
    reads = 0;
    score_pairs(program, 0, some.pairs(), read, out.data());
    CHECK_EQ(reads, 3 * ((count + 16 * kBlockRows - 1) / (16 * kBlockRows)));  // each output once at each end
    for (size_t i = 0; i < count; ++i) {
      const auto at = [&](size_t output, uint32_t node) {
        const size_t width = program.output_width(output);
        return PlainRow(rows[output].data() + node * width, rows[output].data() + (node + 1) * width);
      };
      const float* const features = some.features.data() + i * kColumns;
      const PlainRow source = at(0, some.sources[i]);
      const std::vector<PlainRow> plain = {
          source, at(0, some.targets[i]), at(1, some.sources[i]), {features, features + kColumns}, {some.weights[i]},
          source};
      const PlainRow expected = plain_registers(program, step, plain)[step.sinks[0].reg];
      Floats alone(kScores);
      score_pairs(program, 0, {{&some.sources[i], 1}, {&some.targets[i], 1}, features, &some.weights[i]}, read,
                  alone.data());
      for (size_t c = 0; c < kScores; ++c) {
        CHECK_NEAR(out[i * kScores + c], expected[c], 1e-4);
        CHECK_EQ(out[i * kScores + c], alone[c]);
      }
    }
  }
}

TEST(edges_without_weights_weigh_1) {
  Random random;
  const Program program = decoder(&random);
  const ReadOutput read = [&](std::span<const uint32_t> nodes, size_t output, float* out) {
    std::fill_n(out, nodes.size() * program.output_width(output), 0.5f);
  };
  Case some(50, &random);
  some.weights.assign(50, 1.0f);
  Floats given(50 * kScores), absent(50 * kScores);
  score_pairs(program, 0, some.pairs(), read, given.data());
  ScoredPairs pairs = some.pairs();
  pairs.weights = nullptr;
  score_pairs(program, 0, pairs, read, absent.data());
  CHECK(given == absent);
}

TEST(an_edge_output_says_what_it_reads) {
  Random random;
  Program program = decoder(&random);
  EdgeOutput& output = program.edge_outputs[0];
  CHECK(reads(output, MessageSource::kFeatures) && reads(output, MessageSource::kTarget));
  output.sources.resize(3);
  CHECK(!reads(output, MessageSource::kFeatures) && !reads(output, MessageSource::kWeight));
  CHECK_EQ(edge_output_width(program, 0), size_t{kScores});
}

}  // namespace livegnn::edge_scores_test
