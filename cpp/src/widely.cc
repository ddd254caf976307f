// Operations on rows that come out not finite: once more, slowly, in float64, and rounded.
//
// A product may fit into float32 where a sum of some of its terms does not, and a framework adds them in another order.
// So what is past the end of float32 here is so in any order.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "combine.h"
#include "engine_scratch.h"
#include "kernels.h"

namespace livegnn {
namespace {

constexpr double kRootHalf = 0.70710678118654752, kRootTwoByPi = 0.79788456080286536;

double gelu(double x) { return 0.5 * x * (1 + std::erf(x * kRootHalf)); }
double gelu_tanh(double x) { return 0.5 * x * (1 + std::tanh(kRootTwoByPi * (x + 0.044715 * x * x * x))); }

void layer_norm(size_t width, const double* a, const float* scale, const float* shift, double epsilon, double* out) {
  double mean = 0, variance = 0;
  for (size_t c = 0; c < width; ++c) mean += a[c] / static_cast<double>(width);
  for (size_t c = 0; c < width; ++c) variance += (a[c] - mean) * (a[c] - mean) / static_cast<double>(width);
  const double factor = 1 / std::sqrt(variance + epsilon);
  for (size_t c = 0; c < width; ++c) {
    out[c] = (a[c] - mean) * factor * (scale == nullptr ? 1.0 : scale[c]) + (shift == nullptr ? 0.0 : shift[c]);
  }
}

void softmax(size_t width, const double* a, bool logarithm, double* out) {
  const double largest = *std::max_element(a, a + width);
  double total = 0;
  for (size_t c = 0; c < width; ++c) total += std::exp(a[c] - largest);
  for (size_t c = 0; c < width; ++c) {
    out[c] = logarithm ? a[c] - largest - std::log(total) : std::exp(a[c] - largest) / total;
  }
}

// `weight` packed by `pack`.
void linear(size_t inner, size_t width, const double* a, const float* weight, const float* bias, double* out) {
  for (size_t c = 0; c < width; ++c) {
    const float* const column = weight + c / kPanel * kPanel * inner + c % kPanel;
    double sum = bias == nullptr ? 0.0 : bias[c];
    for (size_t k = 0; k < inner; ++k) sum += a[k] * column[k * kPanel];
    out[c] = sum;
  }
}

}  // namespace

// What `op` makes of these rows, where `to` is not finite.
void Engine::run_widely(const Op& op, const RowsStep& step, std::span<const float* const> rows, float* to) const {
  const size_t width = step.registers[op.output].width, inner = step.registers[op.inputs[0]].width;
  auto tensor = [&](int32_t t) { return t < 0 ? nullptr : program_.tensors[static_cast<size_t>(t)].data(); };
  const bool has_tensors = op.kind != OpKind::kCombine && op.kind != OpKind::kCall;
  const float* const first = has_tensors ? tensor(op.first) : nullptr;
  const float* const second = has_tensors ? tensor(op.second) : nullptr;
  std::vector<std::vector<double>> copies;
  std::vector<const double*> in;
  std::vector<size_t> widths;
  for (size_t p = 0; p < rows.size(); ++p) {
    widths.push_back(step.registers[op.inputs[p]].width);
    copies.emplace_back(rows[p], rows[p] + widths.back());
  }
  for (const auto& copy : copies) in.push_back(copy.data());
  std::vector<double> result(width);
  const double* const a = in[0];
  const double number = op.number;
  double* const out = result.data();
  auto each = [&](auto&& function) {
    for (size_t c = 0; c < width; ++c) out[c] = function(c);
  };
  switch (op.kind) {
    case OpKind::kLinear:
      linear(inner, width, a, first, second, out);
      break;
    case OpKind::kScaleShift:
      each(
          [&](size_t c) { return a[c] * (first == nullptr ? 1.0 : first[c]) + (second == nullptr ? 0.0 : second[c]); });
      break;
    case OpKind::kScale:
      each([&](size_t c) { return a[c] * number; });
      break;
    case OpKind::kLayerNorm:
      layer_norm(width, a, first, second, number, out);
      break;
    case OpKind::kL2Normalize: {
      double square = 0;
      for (size_t c = 0; c < width; ++c) square += a[c] * a[c];
      each([&](size_t c) { return a[c] / std::max(std::sqrt(square), number); });
      break;
    }
    case OpKind::kRelu:
      each([&](size_t c) { return a[c] <= 0 ? 0 : a[c]; });
      break;
    case OpKind::kLeakyRelu:
      each([&](size_t c) { return a[c] > 0 ? a[c] : a[c] * number; });
      break;
    case OpKind::kElu:
      each([&](size_t c) { return a[c] > 0 ? a[c] : number * std::expm1(a[c]); });
      break;
    case OpKind::kGelu:
      each([&](size_t c) { return gelu(a[c]); });
      break;
    case OpKind::kGeluTanh:
      each([&](size_t c) { return gelu_tanh(a[c]); });
      break;
    case OpKind::kSigmoid:
      each([&](size_t c) { return 1 / (1 + std::exp(-a[c])); });
      break;
    case OpKind::kTanh:
      each([&](size_t c) { return std::tanh(a[c]); });
      break;
    case OpKind::kSoftmax:
    case OpKind::kLogSoftmax:
      softmax(width, a, op.kind == OpKind::kLogSoftmax, out);
      break;
    case OpKind::kAdd:
      each([&](size_t c) { return a[c] + in[1][c]; });
      break;
    case OpKind::kMultiply:
      each([&](size_t c) { return a[c] * in[1][c]; });
      break;
    case OpKind::kMaximum:
      each([&](size_t c) { return std::max(a[c], in[1][c]); });
      break;
    case OpKind::kConcat: {
      double* to = out;
      for (size_t p = 0; p < in.size(); ++p) to = std::copy_n(in[p], widths[p], to);
      break;
    }
    case OpKind::kDivideContext:
      each([&](size_t c) { return *in[1] > 0 ? a[c] * number / *in[1] : 0; });
      break;
    case OpKind::kRsqrtContext:
      each([&](size_t c) { return *in[1] > 0 ? a[c] * number / std::sqrt(*in[1]) : 0; });
      break;
    case OpKind::kAddLoop:
      each([&](size_t c) { return a[c] + *in[1] * in[2][c]; });
      break;
    case OpKind::kExp:  // as far as in float32
      each([&](size_t c) { return std::exp(std::clamp(a[c], -87.0, 88.0)); });
      break;
    case OpKind::kSumChannels: {
      const size_t channels = inner / width;
      each([&](size_t h) {
        double sum = 0;
        for (size_t c = 0; c < channels; ++c) sum += a[h * channels + c];
        return sum;
      });
      break;
    }
    case OpKind::kSumHeads:
      each([&](size_t c) {
        double sum = 0;
        for (size_t h = c; h < inner; h += width) sum += a[h];
        return sum;
      });
      break;
    case OpKind::kScaleHeads:
      each([&](size_t c) { return a[c] * in[1][c / (width / widths[1])]; });
      break;
    case OpKind::kCombine:
      combine(op, width, [&](size_t p) { return in[p]; }, out);
      break;
    case OpKind::kCall:  // which is not ours
      std::copy_n(to, width, out);
      break;
    case OpKind::kMaximumLoop: {
      const bool lacks = *in[1] > 0, alone = *in[2] <= 0;
      each([&](size_t c) {
        const double loop = number * in[3][c];
        return lacks && (alone || loop > a[c]) ? loop : a[c];
      });
      break;
    }
  }
  // Linear layers of one input share an operation here and have one each elsewhere: what is finite stays.
  for (size_t c = 0; c < width; ++c) to[c] = std::isfinite(to[c]) ? to[c] : static_cast<float>(out[c]);
}

}  // namespace livegnn
