#include "inference/evaluation/float64_retry.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "program/combine.h"
#include "program/row_functions.h"

namespace livegnn {

void retry_in_float64(const Program& program, const Op& op, const RowsStep& step, std::span<const float* const> rows,
                      float* to) {
  const size_t width = step.registers[op.output].width, inner = step.registers[op.inputs[0]].width;
  auto tensor = [&](int32_t t) { return t < 0 ? nullptr : program.tensors[static_cast<size_t>(t)].data(); };
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
      multiply_widely(inner, width, a, first, second, out);
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
      each([&](size_t c) { return a[c] * (*in[1] == 0 ? 0 : number / std::sqrt(*in[1])); });
      break;
    case OpKind::kAddLoop:
      each([&](size_t c) { return a[c] + *in[1] * in[2][c]; });
      break;
    case OpKind::kCombine:
      combine(op, width, [&](size_t p) { return in[p]; }, out);
      break;
    case OpKind::kCall:  // a function of the user
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
    default: {
      const double scaled[kMaxRowSettings] = {number};  // if only the kind defines the operation
      RowBlock<double> block{1,     width, width, out, {}, {}, op.function == kNoIndex ? scaled : op.settings.data(),
                             first, second};
      for (size_t p = 0; p < in.size(); ++p) {
        block.inputs[p] = &in[p];
        block.widths[p] = widths[p];
      }
      row_operator_of(op).in_double(block);
    }
  }
  // Linear layers with the same input share an operation here but not in a framework: finite results are kept.
  for (size_t c = 0; c < width; ++c) to[c] = std::isfinite(to[c]) ? to[c] : static_cast<float>(out[c]);
}

}  // namespace livegnn
