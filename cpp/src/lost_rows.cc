// Rows that are not finite though all that they are made of is: once more, slowly, in float64.
//
// A product or a sum may fit into float32 where a part of it does not, and a framework adds the parts in another order.
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

void call_once(const RowFunction& function, const std::vector<const double*>& a, const std::vector<size_t>& widths,
               size_t width, double* out) {
  std::vector<std::vector<float>> rows;
  std::vector<const float*> inputs;
  for (size_t i = 0; i < a.size(); ++i) {
    rows.emplace_back(a[i], a[i] + widths[i]);
    inputs.push_back(rows.back().data());
  }
  std::vector<float> result(width);
  function(1, inputs, widths, width, result.data());
  std::copy(result.begin(), result.end(), out);
}

}  // namespace

// As `run_rows`, of those rows whose `outputs`, which are registers, are not finite.
void Engine::run_lost_rows(const RowsStep& step, std::span<const uint32_t> outputs, size_t count,
                           const float* const* sources, float* const* buffers) const {
  const size_t num_sources = step.sources.size();
  auto tensor = [&](int32_t t) { return t < 0 ? nullptr : program_.tensors[static_cast<size_t>(t)].data(); };
  auto is_finite = [&](size_t i) {
    return std::all_of(outputs.begin(), outputs.end(), [&](uint32_t reg) {
      const Register& r = step.registers[reg];
      return reg < num_sources ||
             kernels().finite(r.width, buffers[r.buffer] + i * row_stride(step.buffers[r.buffer]) + r.column);
    });
  };
  std::vector<std::vector<double>> read(num_sources), made(step.buffers.size());
  auto row_of = [&](uint32_t reg) -> double* {
    const Register& r = step.registers[reg];
    return reg < num_sources ? read[reg].data() : made[r.buffer].data() + r.column;
  };
  for (size_t i = 0; i < count; ++i) {
    if (is_finite(i)) continue;
    bool whole = true;
    for (size_t s = 0; s < num_sources && whole; ++s) {
      const float* const row = sources[s * kBlockRows + i];
      whole = kernels().finite(step.registers[s].width, row);
      read[s].assign(row, row + step.registers[s].width);
    }
    if (!whole) continue;  // what comes of that, the same in float64
    for (size_t b = 0; b < made.size(); ++b) made[b].assign(step.buffers[b], 0.0);
    for (const Op& op : step.ops) {
      const size_t width = step.registers[op.output].width, inner = step.registers[op.inputs[0]].width;
      const bool has_tensors = op.kind != OpKind::kCombine && op.kind != OpKind::kCall;
      const float* const first = has_tensors ? tensor(op.first) : nullptr;
      const float* const second = has_tensors ? tensor(op.second) : nullptr;
      std::vector<const double*> in;
      std::vector<size_t> widths;
      for (uint32_t reg : op.inputs) {
        in.push_back(row_of(reg));
        widths.push_back(step.registers[reg].width);
      }
      const double* const a = in[0];
      const double number = op.number;
      double* const out = row_of(op.output);
      auto each = [&](auto&& function) {
        for (size_t c = 0; c < width; ++c) out[c] = function(c);
      };
      switch (op.kind) {
        case OpKind::kLinear:
          linear(inner, width, a, first, second, out);
          break;
        case OpKind::kScaleShift:
          each([&](size_t c) {
            return a[c] * (first == nullptr ? 1.0 : first[c]) + (second == nullptr ? 0.0 : second[c]);
          });
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
          each([&](size_t c) { return *in[1] > 0 ? a[c] / *in[1] : 0; });
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
        case OpKind::kCall:
          call_once(program_.functions[static_cast<size_t>(op.first)], in, widths, width, out);
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
    }
    for (uint32_t reg : outputs) {
      if (reg < num_sources) continue;
      const Register& r = step.registers[reg];
      std::copy_n(row_of(reg), r.width, buffers[r.buffer] + i * row_stride(step.buffers[r.buffer]) + r.column);
    }
  }
}

}  // namespace livegnn
