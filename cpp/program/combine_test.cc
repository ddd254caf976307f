#include "program/combine.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "program/row_sum.h"
#include "testing/testing.h"

namespace livegnn::combine_test {

using namespace testing;

namespace {

struct Messages {
  size_t heads, channels;
  bool softmax;
  std::vector<std::vector<float>> logits, rows;  // of each message: by head; by head and channel

  void add(float spread, Random* random) {
    logits.emplace_back();
    for (size_t h = 0; h < heads; ++h) {
      logits.back().push_back(softmax ? random->between(-spread, spread) : random->between(0.1f, 2));
    }
    rows.push_back(random->floats(heads * channels));
  }

  // Of each head the sum of all messages by their weights, and the sum of the weights, relative to the largest logit.
  struct Sums {
    std::vector<double> rows, weights, references;
  };
  Sums sums() const {
    Sums sums{std::vector<double>(heads * channels), std::vector<double>(heads),
              std::vector<double>(heads, std::numeric_limits<float>::lowest())};
    if (rows.empty()) sums.references.assign(heads, 0);  // as they are kept
    for (size_t h = 0; h < heads; ++h) {
      for (const auto& logit : logits) sums.references[h] = std::max<double>(sums.references[h], logit[h]);
      for (size_t i = 0; i < rows.size(); ++i) {
        const double weight = softmax ? std::exp(logits[i][h] - sums.references[h]) : logits[i][h];
        sums.weights[h] += weight;
        for (size_t c = 0; c < channels; ++c) sums.rows[h * channels + c] += weight * rows[i][h * channels + c];
      }
    }
    return sums;
  }
};

std::vector<float> narrow(const std::vector<double>& values) { return {values.begin(), values.end()}; }

}  // namespace

// Messages fall to several propagations, each of which knows its own largest logit alone; one is the node's own.
TEST(combine_agrees_with_one_quotient_of_all_messages) {
  Random random;
  for (int run = 0; run < 500; ++run) {
    const bool softmax = random.chance(0.5), own = random.chance(0.5);
    const size_t heads = 1 + random.below(4), channels = 1 + random.below(5), parts = 1 + random.below(3);
    const float spread = random.chance(0.5) ? 2 : 60;
    Messages all{heads, channels, softmax, {}, {}};
    std::vector<std::vector<float>> inputs;
    for (size_t p = 0; p < parts; ++p) {
      Messages part{heads, channels, softmax, {}, {}};
      for (size_t i = random.below(5); i > 0; --i) part.add(spread, &random);
      all.logits.insert(all.logits.end(), part.logits.begin(), part.logits.end());
      all.rows.insert(all.rows.end(), part.rows.begin(), part.rows.end());
      const Messages::Sums sums = part.sums();
      inputs.push_back(narrow(sums.rows));
      inputs.push_back(narrow(sums.weights));
      inputs.back().insert(inputs.back().end(), sums.references.begin(), sums.references.end());
    }
    if (own) {
      all.add(spread, &random);
      inputs.push_back(all.rows.back());
      inputs.push_back(all.logits.back());
    }
    Op op{};
    op.number = static_cast<float>(heads);
    op.first = static_cast<int32_t>(parts);
    op.second = softmax ? 1 : 0;
    op.inputs.resize(inputs.size());
    const auto row = [&](size_t i) { return inputs[i].data(); };
    std::vector<float> in_float(heads * channels);
    std::vector<double> in_double(heads * channels);
    combine(op, heads * channels, row, in_float.data());
    combine(op, heads * channels, row, in_double.data());
    CHECK(!combines_wide(op, row));
    const Messages::Sums sums = all.sums();
    for (size_t i = 0; i < heads * channels; ++i) {
      const double weight = sums.weights[i / channels], expected = weight > 0 ? sums.rows[i] / weight : 0;
      CHECK_NEAR(in_float[i], expected, 1e-5);
      CHECK_NEAR(in_double[i], expected, 1e-6);
    }
  }
}

// A sum that was taken widely, of weights scaled down, weighs as much as it would have.
TEST(combine_takes_wide_sums_for_what_they_are) {
  for (bool own : {false, true}) {
    std::vector<std::vector<float>> inputs{{3 * kWide}, {kWide, 0.5f}, {8}, {1, 0.5f}};
    if (own) inputs.insert(inputs.end(), {{5}, {0.5f}});
    Op op{};
    op.number = 1;
    op.first = 2;
    op.second = 1;
    op.inputs.resize(inputs.size());
    const auto row = [&](size_t i) { return inputs.at(i).data(); };
    CHECK(combines_wide(op, row));
    double out = 0;
    combine(op, 1, row, &out);
    CHECK_NEAR(out, own ? (3.0 + 8 + 5) / 3 : (3.0 + 8) / 2, 1e-12);
  }
}

// A softmax of logits that are all minus infinity is no number; one other logit has all the weight.
TEST(combine_tells_weights_that_vanish_from_no_messages) {
  const float lowest = std::numeric_limits<float>::lowest();
  for (bool vanishes : {false, true}) {
    for (bool other : {false, true}) {
      std::vector<std::vector<float>> inputs{{0}, {0, vanishes ? lowest : 0}};
      if (other) inputs.insert(inputs.end(), {{8}, {2, 0.5f}});
      Op op{};
      op.number = 1;
      op.first = other ? 2 : 1;
      op.second = 1;
      op.inputs.resize(inputs.size());
      float out = -1;
      combine(op, 1, [&](size_t i) { return inputs.at(i).data(); }, &out);
      if (vanishes && !other) {
        CHECK(std::isnan(out));
      } else {
        CHECK_NEAR(out, other ? 4 : 0, 0);
      }
    }
  }
}

}  // namespace livegnn::combine_test
