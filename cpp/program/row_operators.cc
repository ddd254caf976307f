#include "program/row_operators.h"

#include <concepts>
#include <stdexcept>
#include <utility>

#include "program/row_functions.h"
#include "program/transforms.h"

namespace livegnn {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

const RowSetting kHeads{RowSetting::kCount, "heads", {}, true, 1};

RowSetting number(const char* name) { return {RowSetting::kNumber, name}; }
RowSetting positive(const char* name) { return {RowSetting::kPositive, name}; }
RowSetting counted(const char* name) { return {RowSetting::kCount, name}; }
RowSetting indexed(const char* name) { return {RowSetting::kIndex, name}; }

// An operator with both functions, of any group.
template <class Function>
RowOperator made(const char* name, RowGroup group, int inputs, const char* summary, Function,
                 std::vector<RowSetting> settings = {}, std::vector<RowTensor> tensors = {}) {
  return {name,
          group,
          OpKind::kRowwise,
          inputs,
          inputs,
          std::move(settings),
          std::move(tensors),
          summary,
          [](const RowBlock<float>& block) { Function{}(block); },
          [](const RowBlock<double>& block) { Function{}(block); }};
}

template <class Function>
RowOperator one(const char* name, const char* summary, Function, std::vector<RowSetting> settings = {}) {
  const auto map = [](const auto& block) { map_one(block, Function{}); };
  return made(name, RowGroup::kElementwise, 1, summary, map, std::move(settings));
}

template <class Function>
RowOperator two(const char* name, const char* summary, Function) {
  return made(name, RowGroup::kElementwise, 2, summary, [](const auto& block) { map_two(block, Function{}); });
}

// An operator with a tuned kernel; the functions here serve inputs that are one channel wide, and float64.
RowOperator tuned(OpKind kind, RowOperator like) {
  like.kind = kind;
  return like;
}

RowOperator engines(const char* name, OpKind kind) {
  return {name, RowGroup::kEngine, kind, 1, -1, {{RowSetting::kNumber, "number"}}, {}, ""};
}

template <class Test>
auto as_number(Test) {
  return [](std::floating_point auto... x) {
    using Real = std::common_type_t<decltype(x)...>;
    return Test{}(x...) ? Real(1) : Real(0);
  };
}

void add_functions_of_one(std::vector<RowOperator>* all) {
  auto add = [&](RowOperator made) { all->push_back(std::move(made)); };
  add(tuned(OpKind::kScale, one("scale", "x * value", [](auto x, auto s) { return x * s[0]; }, {number("value")})));
  add(tuned(OpKind::kRelu, one("relu", "max(x, 0)", [](auto x) { return x <= 0 ? decltype(x)(0) : x; })));
  add(tuned(OpKind::kLeakyRelu, one("leaky_relu", "x where x > 0, else slope * x",
                                    [](auto x, auto s) { return x > 0 ? x : x * s[0]; }, {number("slope")})));
  add(tuned(OpKind::kSigmoid, one("sigmoid", "1 / (1 + exp(-x))", [](auto x) { return 1 / (1 + std::exp(-x)); })));
  add(tuned(OpKind::kExp, one("exp", "exp(x)", [](auto x) {
              using Real = decltype(x);  // the same range as in float32
              return std::exp(clamp<Real>(x, -87, 88));
            })));
  add(one("elu", "x where x > 0, else alpha * (exp(x) - 1)",
          [](auto x, auto s) { return x > 0 ? x : s[0] * std::expm1(x); }, {number("alpha")}));
  add(one("gelu", "x * Phi(x) with the normal distribution function Phi, or its tanh approximation",
          [](auto x, auto s) { return s[0] == 0 ? gelu(x) : gelu_tanh(x); },
          {{RowSetting::kChoice, "approximate", {"none", "tanh"}}}));
  add(one("tanh", "tanh(x)", [](auto x) { return std::tanh(x); }));
  add(one("neg", "-x", [](auto x) { return -x; }));
  add(one("abs", "|x|", [](auto x) { return std::fabs(x); }));
  add(one("sign", "-1, 0 or 1; of NaN 0", [](auto x) { return sign_of(x); }));
  add(one("expm1", "exp(x) - 1", [](auto x) { return std::expm1(x); }));
  add(one("log", "the natural logarithm", [](auto x) { return std::log(x); }));
  add(one("log1p", "log(1 + x)", [](auto x) { return std::log1p(x); }));
  add(one("sqrt", "the square root", [](auto x) { return std::sqrt(x); }));
  add(one("rsqrt", "1 / sqrt(x)", [](auto x) { return 1 / std::sqrt(x); }));
  add(one("reciprocal", "1 / x", [](auto x) { return 1 / x; }));
  add(one("sin", "sin(x)", [](auto x) { return std::sin(x); }));
  add(one("cos", "cos(x)", [](auto x) { return std::cos(x); }));
  add(one("tan", "tan(x)", [](auto x) { return std::tan(x); }));
  add(one("asin", "the inverse of the sine", [](auto x) { return std::asin(x); }));
  add(one("acos", "the inverse of the cosine", [](auto x) { return std::acos(x); }));
  add(one("atan", "the inverse of the tangent", [](auto x) { return std::atan(x); }));
  add(one("sinh", "the hyperbolic sine", [](auto x) { return std::sinh(x); }));
  add(one("cosh", "the hyperbolic cosine", [](auto x) { return std::cosh(x); }));
  add(one("asinh", "the inverse of the hyperbolic sine", [](auto x) { return std::asinh(x); }));
  add(one("acosh", "the inverse of the hyperbolic cosine", [](auto x) { return std::acosh(x); }));
  add(one("atanh", "the inverse of the hyperbolic tangent", [](auto x) { return std::atanh(x); }));
  add(one("exp2", "2 to the power x", [](auto x) { return std::exp2(x); }));
  add(one("log2", "the logarithm to the base 2", [](auto x) { return std::log2(x); }));
  add(one("log10", "the logarithm to the base 10", [](auto x) { return std::log10(x); }));
  add(one("erf", "the error function", [](auto x) { return std::erf(x); }));
  add(one("erfc", "1 - erf(x)", [](auto x) { return std::erfc(x); }));
  add(one("floor", "the greatest whole number not above x", [](auto x) { return std::floor(x); }));
  add(one("ceil", "the least whole number not below x", [](auto x) { return std::ceil(x); }));
  add(one("round", "the nearest whole number, of two the even one", [](auto x) { return std::nearbyint(x); }));
  add(one("trunc", "x without what is behind its point", [](auto x) { return std::trunc(x); }));
  add(made("silu", RowGroup::kElementwise, 1, "x * sigmoid(x)", [](const auto& block) { map_silu(block); }));
  add(one("softplus", "log(1 + exp(beta * x)) / beta, and x where beta * x > threshold",
          [](auto x, auto s) { return softplus(x, s[0], s[1]); }, {positive("beta"), number("threshold")}));
  add(one("log_sigmoid", "log(sigmoid(x))",
          [](auto x) { return (x > 0 ? decltype(x)(0) : x) - std::log1p(std::exp(-std::fabs(x))); }));
  add(one("mish", "x * tanh(log(1 + exp(x)))", [](auto x) {
    using Real = decltype(x);
    return x * std::tanh(softplus<Real>(x, 1, std::numeric_limits<Real>::infinity()));
  }));
  add(one("hardsigmoid", "min(max(x + 3, 0), 6) / 6",
          [](auto x) { return clamp<decltype(x)>(x + 3, 0, 6) / decltype(x)(6); }));
  add(one("hardswish", "x * hardsigmoid(x)",
          [](auto x) { return x * clamp<decltype(x)>(x + 3, 0, 6) / decltype(x)(6); }));
  add(one("not", "1 where x is 0, else 0", as_number([](auto x) { return x == 0; })));
  add(one("isfinite", "1 where x is a finite number, else 0", as_number([](auto x) { return x - x == 0; })));
  add(one("isnan", "1 where x is NaN, else 0", as_number([](auto x) { return x != x; })));
  add(one("isinf", "1 where x is infinite, else 0",
          as_number([](auto x) { return std::fabs(x) == std::numeric_limits<decltype(x)>::infinity(); })));
  add(one("clamp", "x, but not below least nor above most", [](auto x, auto s) { return clamp(x, s[0], s[1]); },
          {{RowSetting::kBound, "least", {}, true, -kInfinity}, {RowSetting::kBound, "most", {}, true, kInfinity}}));
  add(made("power_of", RowGroup::kElementwise, 1, "x to the power exponent", [](const auto& block) { power_of(block); },
           {number("exponent")}));
}

void add_functions_of_several(std::vector<RowOperator>* all) {
  auto add = [&](RowOperator made) { all->push_back(std::move(made)); };
  add(tuned(OpKind::kAdd, two("add", "a + b", [](auto a, auto b) { return a + b; })));
  add(tuned(OpKind::kMultiply, two("multiply", "a * b", [](auto a, auto b) { return a * b; })));
  add(tuned(OpKind::kMaximum,
            two("maximum", "the larger of a and b", [](auto a, auto b) { return (a > b) | (a != a) ? a : b; })));
  add(two("minimum", "the smaller of a and b", [](auto a, auto b) { return (a < b) | (a != a) ? a : b; }));
  add(two("subtract", "a - b", [](auto a, auto b) { return a - b; }));
  add(two("divide", "a / b", [](auto a, auto b) { return a / b; }));
  add(two("power", "a to the power b", [](auto a, auto b) { return std::pow(a, b); }));
  add(two("atan2", "the angle of the point (b, a)", [](auto a, auto b) { return std::atan2(a, b); }));
  add(two("hypot", "sqrt(a * a + b * b)", [](auto a, auto b) { return std::hypot(a, b); }));
  add(two("fmod", "a - trunc(a / b) * b", [](auto a, auto b) { return std::fmod(a, b); }));
  add(two("remainder", "a - floor(a / b) * b", [](auto a, auto b) { return remainder(a, b); }));
  add(two("floor_divide", "floor(a / b)", [](auto a, auto b) { return floor_divide(a, b); }));
  add(two("equal", "1 where a = b, else 0", as_number([](auto a, auto b) { return a == b; })));
  add(two("not_equal", "1 where a is not b, else 0", as_number([](auto a, auto b) { return a != b; })));
  add(two("less", "1 where a < b, else 0", as_number([](auto a, auto b) { return a < b; })));
  add(two("less_equal", "1 where a <= b, else 0", as_number([](auto a, auto b) { return a <= b; })));
  add(two("greater", "1 where a > b, else 0", as_number([](auto a, auto b) { return a > b; })));
  add(two("greater_equal", "1 where a >= b, else 0", as_number([](auto a, auto b) { return a >= b; })));
  add(two("and", "1 where neither is 0, else 0", as_number([](auto a, auto b) { return (a != 0) & (b != 0); })));
  add(two("or", "1 where one of them is not 0, else 0", as_number([](auto a, auto b) { return (a != 0) | (b != 0); })));
  add(made("where", RowGroup::kElementwise, 3, "a where the condition is not 0, else b", [](const auto& block) {
    map_three(block, [](auto condition, auto a, auto b) { return condition != 0 ? a : b; });
  }));
}

void add_others(std::vector<RowOperator>* all) {
  auto add = [&](RowOperator made) { all->push_back(std::move(made)); };
  add(tuned(OpKind::kScaleShift,
            made("scale_shift", RowGroup::kByHead, 1, "x * scale + shift, channel by channel",
                 [](const auto& block) { scale_shift(block); }, {}, {{"scale", true}, {"shift", true}})));
  add(made("layer_norm", RowGroup::kByHead, 1,
           "(x - mean(x)) / sqrt(var(x) + eps) * weight + bias, over a row's channels, or those of each head",
           [](const auto& block) { layer_norm(block); }, {positive("eps"), kHeads},
           {{"weight", true}, {"bias", true}}));
  add(made("l2_normalize", RowGroup::kByHead, 1, "x / max(|x|, eps), |x| over a row's channels, or those of each head",
           [](const auto& block) { l2_normalize(block); }, {positive("eps"), kHeads}));
  add(made("softmax", RowGroup::kByHead, 1, "exp(x) / sum(exp(x)) over a row's channels, or those of each head",
           []<class Real>(const RowBlock<Real>& block) { softmax<Real, false>(block); }, {kHeads}));
  add(made("log_softmax", RowGroup::kByHead, 1, "log(softmax(x))",
           []<class Real>(const RowBlock<Real>& block) { softmax<Real, true>(block); }, {kHeads}));
  add(tuned(OpKind::kScaleHeads,
            made("scale_heads", RowGroup::kByHead, 2, "each head's channels of a, times that head's number in b",
                 [](const auto& block) { scale_heads(block); })));
  add(tuned(OpKind::kSumChannels,
            made("sum_channels", RowGroup::kReduction, 1, "the sum of each head's channels: [heads]",
                 [](const auto& block) { sum_channels(block); }, {counted("heads")})));
  add(made("sum_heads", RowGroup::kReduction, 1, "the sum over the heads, channel by channel: [channels]",
           [](const auto& block) { sum_heads(block); }, {counted("heads")}));
  add(made("reduce", RowGroup::kReduction, 1,
           "the sum, maximum, minimum or product: [before, size, after] -> [before, after]",
           [](const auto& block) { reduce(block); },
           {{RowSetting::kChoice, "kind", {"sum", "max", "min", "product"}},
            counted("before"),
            counted("size"),
            counted("after")}));
  add(RowOperator{
      "concat", RowGroup::kMove, OpKind::kConcat, 2, -1, {}, {}, "the channels of all inputs, one after the other"});
  add(made("slice", RowGroup::kMove, 1, "the channels from start on, before stop",
           [](const auto& block) { slice(block); }, {indexed("start"), counted("stop")}));
  add(made("repeat", RowGroup::kMove, 1, "each run of inner channels so many times: [a, inner] -> [a, times, inner]",
           [](const auto& block) { repeat(block); }, {counted("times"), counted("inner")}));
  add(made("take", RowGroup::kMove, 1, "the channels with these numbers", [](const auto& block) { take(block); }, {},
           {{"channels", false}}));
  add(made("constant", RowGroup::kMove, 1, "the same row, whatever the input, or one number",
           [](const auto& block) { constant(block); }, {{RowSetting::kNumber, "value", {}, true, 0}}, {{"row", true}}));
  add(made(
      "lookup", RowGroup::kMove, 1,
      "the rows of a table with these numbers, side by side; a negative number counts from the end, one that is out of "
      "range gives NaN",
      [](const auto& block) { lookup(block); }, {}, {{"table", false}}));
  add(RowOperator{"linear",
                  RowGroup::kProduct,
                  OpKind::kLinear,
                  1,
                  1,
                  {kHeads},
                  {{"weight", false}, {"bias", true}},
                  "x @ weight.T + bias, or each head's channels by one matrix, or each by its own"});
  add(made("matmul", RowGroup::kProduct, 2,
           "[batch, rows, inner] times [batch, inner, columns]; one matrix in place of a batch counts for all",
           [](const auto& block) { multiply_matrices(block); },
           {counted("batch"), counted("rows"), counted("inner"), counted("columns")}));
  add(made("linear_by_head", RowGroup::kEngine, 1, "", [](const auto& block) { linear_by_head(block); },
           {counted("heads"), number("own")}));
  add(engines("divide_context", OpKind::kDivideContext));
  add(engines("rsqrt_context", OpKind::kRsqrtContext));
  add(engines("add_loop", OpKind::kAddLoop));
  add(engines("combine", OpKind::kCombine));
  add(engines("call", OpKind::kCall));
  add(engines("maximum_loop", OpKind::kMaximumLoop));
}

void add_transforms(std::vector<RowOperator>* all) {
  auto add = [&](RowOperator made) { all->push_back(std::move(made)); };
  add(made("standardize", RowGroup::kByHead, 1, "(x - mean) / scale, of x or its logarithm",
           [](const auto& block) { standardize(block); },
           {{RowSetting::kChoice, "function", {"identity", "log", "log1p"}, true, 0}},
           {{"mean", false}, {"scale", false}}));
  add(made("fill_missing", RowGroup::kByHead, 1, "the channel's value where x is the number that stands for none",
           [](const auto& block) { fill_missing(block); }, {{RowSetting::kNumber, "missing", {}, true, kMissing}},
           {{"values", false}}));
  add(made("quantile", RowGroup::kByHead, 1, "the place of x among the channel's quantiles, from 0 to 1",
           [](const auto& block) { quantile(block); }, {}, {{"quantiles", false}}));
  add(made("bucketize", RowGroup::kByHead, 1, "the number of the channel's boundaries that are at most x",
           [](const auto& block) { bucketize(block); }, {}, {{"boundaries", false}}));
  add(made("ordinal", RowGroup::kByHead, 1, "the place of x among the channel's categories, or `unknown`",
           [](const auto& block) { ordinal(block); }, {number("unknown")}, {{"categories", false}}));
  add(made("one_hot", RowGroup::kMove, 1, "1 where the channel with this number is this category, else 0",
           [](const auto& block) { one_hot(block); }, {}, {{"channels", false}, {"categories", false}}));
  add(made("cyclic", RowGroup::kMove, 1, "the sine and cosine of each channel's place in its period",
           [](const auto& block) { cyclic(block); }, {positive("period")}));
}

}  // namespace

const std::vector<RowOperator>& row_operators() {
  static const std::vector<RowOperator> all = [] {
    std::vector<RowOperator> made;
    add_functions_of_one(&made);
    add_functions_of_several(&made);
    add_others(&made);
    add_transforms(&made);
    return made;
  }();
  return all;
}

uint32_t find_row_operator(std::string_view name) {
  const auto& all = row_operators();
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i].name == name) return static_cast<uint32_t>(i);
  }
  throw std::out_of_range("there is no operator on rows of the name " + std::string(name));
}

const RowOperator& row_operator_of(const Op& op) {
  const auto& all = row_operators();
  if (op.function != kNoIndex) return all[op.function];
  for (const RowOperator& made : all) {
    if (made.kind == op.kind) return made;
  }
  throw std::out_of_range("an operation on rows must name its function");
}

double multiplications(const RowsStep& step, const Op& op) {
  const double outputs = step.registers[op.output].width;
  if (op.kind == OpKind::kLinear) return outputs * step.registers[op.inputs[0]].width;
  if (op.kind != OpKind::kRowwise) return 0;
  static const uint32_t by_head = find_row_operator("linear_by_head"), matmul = find_row_operator("matmul");
  if (op.function == by_head) return outputs * step.registers[op.inputs[0]].width / op.settings[0];
  return op.function == matmul ? outputs * op.settings[2] : 0;
}

}  // namespace livegnn
