// Sums of messages, whatever the order of targets and however many there are.
#include "inference/evaluation/message_sums.h"

#include <cmath>
#include <vector>

#include "inference/engine_model.h"
#include "inference/plain_steps_model.h"
#include "testing/testing.h"

namespace livegnn::message_sums_test {

using namespace testing;

namespace {

// Attention of rows of the source by logits of the source, as they come.
Program plain_attention() {
  enum : uint32_t { kX, kLogit, kSum, kContext };
  Program program;
  program.values = {{0, kHidden, true, 0}, {0, kHeads, false, 0}, {0, kHidden, false, 1}, {0, 2 * kHeads, false, 1}};
  program.output = kSum;
  MessageProgram softmax{{{MessageSource::kSource, kX}, {MessageSource::kSource, kLogit}},
                         RowsBuilder::on_edges(&program, {kHidden, kHeads}, [](RowsBuilder*) {}),
                         0};
  softmax.coefficient = 1;
  softmax.softmax = true;
  propagate(&program, std::move(softmax), kSum, kContext, true, false);
  return program;
}

}  // namespace

// Sums are taken back as they were added, and are those of float64, whatever the logits are.
TEST(message_sums_are_those_of_float64) {
  Random random;
  Graph graph({kHidden}, {{0, 0, {{true, false}, false, false}}});
  const State state(graph, plain_attention(), "", 0);
  const PropagateStep& step = state.rows.program.propagations[0];
  constexpr size_t kChannels = kHidden / kHeads;
  for (int round = 0; round < 60; ++round) {
    const float spread = std::ldexp(1.0f, static_cast<int>(random.below(8)));
    const size_t targets = 1 + random.below(kBlockRows);
    MessageSums& sums = sums_of(state.rows.program, state.rows.serial, step, state.rounding.scales[0].inverses.data());
    sums.open(targets);
    std::vector<std::vector<Floats>> rows(targets), logits(targets);
    std::vector<Floats> weights(targets);
    for (size_t t = 0; t < targets; ++t) {
      const size_t count = random.below(20);
      for (size_t m = 0; m < count; ++m) {
        rows[t].push_back(random.floats(row_stride(kHidden)));
        logits[t].push_back(random.floats(row_stride(kHeads)));
        for (float& logit : logits[t].back()) logit *= spread;
        weights[t].push_back(random.between(0.1f, 2));
        sums.add(t, 1, {weights[t].back(), nullptr},
                 [&](size_t source) { return source == 0 ? rows[t].back().data() : logits[t].back().data(); });
      }
    }
    sums.finish();
    for (size_t t = 0; t < targets; ++t) {
      CHECK_EQ(sums.messages(t), rows[t].size());
      if (rows[t].empty()) continue;
      CHECK(sums.fits(t));
      for (size_t h = 0; h < kHeads; ++h) {
        double total = 0;
        PlainRow expected(kChannels);
        for (size_t m = 0; m < rows[t].size(); ++m) {
          const double weight = weights[t][m] * std::exp(static_cast<double>(logits[t][m][h]) - sums.references(t)[h]);
          total += weight;
          for (size_t c = 0; c < kChannels; ++c) expected[c] += weight * rows[t][m][h * kChannels + c];
        }
        CHECK_NEAR(sums.context(t)[h], total, 1e-4 * total);
        for (size_t c = 0; c < kChannels; ++c) CHECK_NEAR(sums.sum(t)[h * kChannels + c], expected[c], 1e-4 * total);
      }
    }
  }
}

// A function of the model may fail between two messages; what was added before must not come into the next sums.
TEST(sums_that_were_given_up_leave_nothing) {
  Graph graph({kHidden}, {{0, 0, {{true, false}, false, false}}});
  const State state(graph, plain_attention(), "", 0);
  MessageSums& sums = sums_of(state.rows.program, state.rows.serial, state.rows.program.propagations[0],
                              state.rounding.scales[0].inverses.data());
  const auto add = [&](size_t target, const Floats& row, const Floats& logits) {
    sums.add(target, 1, {1.0f, nullptr}, [&](size_t source) { return source == 0 ? row.data() : logits.data(); });
  };
  const Floats row(row_stride(kHidden), 3.0f), other(row_stride(kHidden), 5.0f), logits(row_stride(kHeads));
  sums.open(kBlockRows);
  add(0, other, logits);
  add(kBlockRows - 1, other, logits);
  sums.open(1);
  add(0, row, logits);
  sums.finish();
  CHECK_EQ(sums.messages(0), 1u);
  CHECK_EQ(sums.sum(0)[0], 3.0f);
}

// The thread's sums of one state are not those of another that lies where it lay.
TEST(message_sums_belong_to_a_state) {
  Graph graph({kHidden}, {{0, 0, {{true, false}, false, false}}});
  const float* last = nullptr;
  for (int i = 0; i < 20; ++i) {
    const State state(graph, plain_attention(), "", 0);
    const PropagateStep& step = state.rows.program.propagations[0];
    MessageSums& sums = sums_of(state.rows.program, state.rows.serial, step, state.rounding.scales[0].inverses.data());
    CHECK(&sums == &sums_of(state.rows.program, state.rows.serial, step, state.rounding.scales[0].inverses.data()));
    sums.open(1);
    const Floats row(row_stride(kHidden), static_cast<float>(i)), logits(row_stride(kHeads));
    sums.add(0, 1, {1.0f, nullptr}, [&](size_t source) { return source == 0 ? row.data() : logits.data(); });
    sums.finish();
    CHECK_EQ(sums.sum(0)[0], static_cast<float>(i));
    last = sums.sum(0);
  }
  CHECK(last != nullptr);
}

}  // namespace livegnn::message_sums_test
