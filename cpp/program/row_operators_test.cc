// The table of operators on rows: what it promises to those who read it, and that a row's result is its own. What each
// operator computes is held against PyTorch in tests/unit/test_row_operators.py.
#include "program/row_operators.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>
#include <stdexcept>

#include "program/kernels.h"
#include "testing/testing.h"

namespace livegnn::row_operators_test {
namespace {

using Floats = std::vector<float>;
using testing::Random;

constexpr size_t kWidth = 12, kRows = 32;

// Settings and tensors with which an operator takes rows of kWidth channels, and how wide its result is.
struct Call {
  std::vector<double> settings;
  Floats first, second;
  size_t width = kWidth;
};

// -1, -0.5, 0, 0.5 and 1 for each channel, in three parts whose second and third are 0.
Floats quantiles_of_channels() {
  Floats all(3 * kWidth * 5);
  for (size_t i = 0; i < kWidth * 5; ++i) all[i] = -1.0f + 0.5f * static_cast<float>(i % 5);
  return all;
}

Call call_of(const RowOperator& made) {
  const std::string& name = made.name;
  if (name == "reduce") return {{1, 2, 3, 2}, {}, {}, 4};
  if (name == "slice") return {{2, 9}, {}, {}, 7};
  if (name == "repeat") return {{3, 4}, {}, {}, 3 * kWidth};
  if (name == "take") return {{}, {11, 0, 3}, {}, 3};
  if (name == "constant") return {{}, Floats(5, 0.5f), {}, 5};
  if (name == "lookup") return {{4}, {1, 2, 3, 4}, {}, kWidth};
  if (name == "sum_channels" || name == "sum_heads") return {{4}, {}, {}, name == "sum_heads" ? size_t{3} : size_t{4}};
  if (name == "matmul") return {{1, 3, 4, 3}, {}, {}, 9};
  if (name == "linear_by_head") {
    Call call{{3, 1}, Floats(3 * packed_size(4, 5), 0.25f), Floats(15, 1.0f), 15};
    return call;
  }
  if (name == "layer_norm" || name == "l2_normalize") return {{1e-3, 3}, {}, {}, kWidth};
  if (name == "softmax" || name == "log_softmax") return {{3}, {}, {}, kWidth};
  if (name == "scale_shift") return {{}, Floats(kWidth, 2.0f), Floats(kWidth, 1.0f), kWidth};
  if (name == "standardize") return {{0}, Floats(3 * kWidth, 0.25f), Floats(3 * kWidth, 0.5f), kWidth};
  if (name == "fill_missing") return {{0.5}, Floats(kWidth, 2.0f), {}, kWidth};
  if (name == "quantile") return {{5}, quantiles_of_channels(), {}, kWidth};
  if (name == "bucketize") return {{2}, Floats(2 * kWidth, 0.25f), {}, kWidth};
  if (name == "ordinal") return {{-1, 2}, Floats(2 * kWidth, 0.25f), {}, kWidth};
  if (name == "one_hot") return {{}, {11, 0, 3}, {0.5f, 0, 0.25f}, 3};
  if (name == "cyclic") return {{7}, {}, {}, 2 * kWidth};
  return {{0.5, 1.5}, {}, {}, kWidth};
}

// The results for some rows of the inputs, which lie anywhere.
template <class Real>
std::vector<Real> run(const RowOperator& made, const std::vector<std::vector<Real>>& inputs,
                      const std::vector<size_t>& widths, size_t first, size_t count) {
  const Call call = call_of(made);
  double settings[kMaxRowSettings] = {};
  std::copy(call.settings.begin(), call.settings.end(), settings);
  std::vector<Real> out(count * call.width);
  RowBlock<Real> block{count,
                       call.width,
                       call.width,
                       out.data(),
                       {},
                       {},
                       settings,
                       call.first.empty() ? nullptr : call.first.data(),
                       call.second.empty() ? nullptr : call.second.data()};
  std::vector<std::vector<const Real*>> rows(inputs.size());
  for (size_t p = 0; p < inputs.size(); ++p) {
    for (size_t i = 0; i < count; ++i) rows[p].push_back(inputs[p].data() + (first + i) * widths[p]);
    block.inputs[p] = rows[p].data();
    block.widths[p] = widths[p];
  }
  if constexpr (sizeof(Real) == sizeof(float)) {
    made.in_float(block);
  } else {
    made.in_double(block);
  }
  return out;
}

TEST(row_operators_are_one_table) {
  std::set<std::string> names;
  for (const RowOperator& made : row_operators()) {
    CHECK(names.insert(made.name).second);
    CHECK(made.settings.size() <= kMaxRowSettings);
    CHECK(made.tensors.size() <= 2);
    CHECK(made.least >= 1 && (made.most == -1 || made.most >= made.least));
    CHECK(made.most <= static_cast<int>(kMaxRowInputs));
    CHECK((made.in_float == nullptr) == (made.in_double == nullptr));
    CHECK(made.kind != OpKind::kRowwise || made.in_float != nullptr);
    CHECK((made.group == RowGroup::kEngine) == made.summary.empty());
    CHECK_EQ(row_operators()[find_row_operator(made.name)].name, made.name);
    Op op{made.kind, {0}, 0};
    if (made.kind != OpKind::kRowwise) CHECK_EQ(row_operator_of(op).name, made.name);
    op.function = find_row_operator(made.name);
    CHECK_EQ(row_operator_of(op).name, made.name);
  }
  CHECK_THROWS(find_row_operator("nothing"), std::out_of_range, "of the name nothing");
}

TEST(a_row_of_an_operator_does_not_depend_on_its_block) {
  Random random;
  for (const RowOperator& made : row_operators()) {
    if (made.in_float == nullptr) continue;
    const auto count = static_cast<size_t>(made.least);
    std::vector<Floats> inputs;
    for (size_t p = 0; p < count; ++p) inputs.push_back(random.floats(kRows * kWidth));
    for (float special : {INFINITY, -INFINITY, NAN, 0.0f, -0.0f, 1e-40f, 1e30f}) {
      for (Floats& input : inputs) input[random.below(input.size())] = special;
    }
    const std::vector<size_t> widths(count, kWidth);
    const Floats all = run(made, inputs, widths, 0, kRows);
    const size_t width = all.size() / kRows;
    for (size_t i = 0; i < kRows; ++i) {
      const Floats alone = run(made, inputs, widths, i, 1);
      CHECK(std::memcmp(alone.data(), all.data() + i * width, width * sizeof(float)) == 0);
    }
  }
}

TEST(an_operator_is_in_float64_what_it_is_in_float32) {
  Random random;
  for (const RowOperator& made : row_operators()) {
    if (made.in_float == nullptr) continue;
    const auto count = static_cast<size_t>(made.least);
    std::vector<Floats> inputs;
    std::vector<std::vector<double>> copies;
    for (size_t p = 0; p < count; ++p) {
      inputs.push_back(random.floats(kRows * kWidth));
      copies.emplace_back(inputs.back().begin(), inputs.back().end());
    }
    const std::vector<size_t> widths(count, kWidth);
    const Floats narrow = run(made, inputs, widths, 0, kRows);
    const std::vector<double> wide = run(made, copies, widths, 0, kRows);
    for (size_t i = 0; i < narrow.size(); ++i) {
      if (std::isnan(narrow[i]) || std::isnan(wide[i])) {
        CHECK(std::isnan(narrow[i]) && std::isnan(wide[i]));
      } else {
        // A quotient of next to nothing may be large, and a remainder near its divisor the other way round.
        const double unsure = 1e-5 * std::max({1.0, std::fabs(wide[i]), std::fabs(static_cast<double>(narrow[i]))});
        CHECK(std::fabs(narrow[i] - wide[i]) <= unsure);
      }
    }
  }
}

TEST(one_channel_of_an_input_counts_for_all) {
  Random random;
  for (const RowOperator& made : row_operators()) {
    if (made.group != RowGroup::kElementwise || made.least == 1) continue;
    const auto count = static_cast<size_t>(made.least);
    for (size_t narrow = 0; narrow < count; ++narrow) {
      std::vector<Floats> inputs, whole;
      std::vector<size_t> widths(count, kWidth);
      widths[narrow] = 1;
      for (size_t p = 0; p < count; ++p) {
        inputs.push_back(random.floats(kRows * widths[p]));
        whole.push_back(inputs.back());
      }
      whole[narrow].clear();
      for (float number : inputs[narrow]) whole[narrow].insert(whole[narrow].end(), kWidth, number);
      const Floats one = run(made, inputs, widths, 0, kRows);
      const Floats all = run(made, whole, std::vector<size_t>(count, kWidth), 0, kRows);
      CHECK(std::memcmp(one.data(), all.data(), one.size() * sizeof(float)) == 0);
    }
  }
}

TEST(products_say_what_they_cost) {
  RowsStep step;
  step.registers = {{0, 0, 12}, {0, 0, 20}, {0, 0, 9}};
  Op op{OpKind::kLinear, {0}, 1};
  CHECK_EQ(multiplications(step, op), 240.0);
  op.kind = OpKind::kAdd;
  CHECK_EQ(multiplications(step, op), 0.0);
  op = {OpKind::kRowwise, {0}, 1};
  op.function = find_row_operator("linear_by_head");
  op.settings = {4, 1};
  CHECK_EQ(multiplications(step, op), 60.0);
  op = {OpKind::kRowwise, {0, 0}, 2};
  op.function = find_row_operator("matmul");
  op.settings = {1, 3, 4, 3};
  CHECK_EQ(multiplications(step, op), 36.0);
  op.function = find_row_operator("sin");
  CHECK_EQ(multiplications(step, op), 0.0);
}

}  // namespace
}  // namespace livegnn::row_operators_test
