#include "inference/evaluation/row_evaluation.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "inference/evaluation/float64_retry.h"
#include "program/combine.h"
#include "program/kernels.h"
#include "program/row_operators.h"

namespace livegnn {
namespace {

// Runs the operations of a step over one block, one after the other.
class BlockRun {
 public:
  BlockRun(const Program& program, const RowsStep& step, size_t count, const float* const* sources,
           float* const* buffers)
      : program_(program), step_(step), count_(count), sources_(sources), buffers_(buffers) {}

  const float* row(uint32_t reg, size_t i) const { return row_in(step_, reg, i, sources_, buffers_); }
  float* out(uint32_t reg, size_t i) const {
    return buffers_[step_.registers[reg].buffer] + i * stride(reg) + step_.registers[reg].column;
  }
  size_t stride(uint32_t reg) const { return row_stride(step_.buffers[step_.registers[reg].buffer]); }
  uint32_t width(uint32_t reg) const { return step_.registers[reg].width; }

  void run(const Op& op) const {
    const float* inputs[kMaxRowInputs][kBlockRows];
    for (size_t p = 0; p < op.inputs.size() && p < kMaxRowInputs; ++p) {
      rows_in(step_, op.inputs[p], count_, sources_, buffers_, inputs[p]);
    }
    switch (op.kind) {
      case OpKind::kConcat:
        return concatenate(op);
      case OpKind::kCombine:
        return combine_parts(op);
      case OpKind::kCall:
        return call(op);
      case OpKind::kRowwise:
        return run_rowwise(op, inputs);
      case OpKind::kMaximumLoop:
        return take_loops(op, inputs);
      case OpKind::kDivideContext:
      case OpKind::kRsqrtContext:
      case OpKind::kAddLoop:
        return use_context(op, inputs);
      default:
        run_kernel(op, inputs);
    }
  }

 private:
  using Inputs = const float* [kMaxRowInputs][kBlockRows];

  const float* tensor(int32_t t) const { return t < 0 ? nullptr : program_.tensors[static_cast<size_t>(t)].data(); }

  void run_kernel(const Op& op, Inputs& inputs) const {
    const Kernels& k = kernels();
    const float* const* a = inputs[0];
    const size_t count = count_, width = this->width(op.output), stride = this->stride(op.output);
    const size_t inner = this->width(op.inputs[0]);
    float* const out = this->out(op.output, 0);
    float factors[kBlockRows];
    switch (op.kind) {
      case OpKind::kLinear:
        return k.multiply(count, inner, width, a, tensor(op.first), tensor(op.second), out, stride);
      case OpKind::kScaleShift:
        return k.scale_shift(count, width, a, tensor(op.first), tensor(op.second), out, stride);
      case OpKind::kScale:
        std::fill_n(factors, count, op.number);
        return k.scale(count, width, a, factors, out, stride);
      case OpKind::kRelu:
        return k.relu(count, width, a, out, stride);
      case OpKind::kLeakyRelu:
        return k.leaky_relu(count, width, a, op.number, out, stride);
      case OpKind::kSigmoid:
        return k.sigmoid(count, width, a, out, stride);
      case OpKind::kAdd:
        return k.add(count, width, a, inputs[1], out, stride);
      case OpKind::kMultiply:
        return k.multiply_elements(count, width, a, inputs[1], out, stride);
      case OpKind::kMaximum:
        return k.maximum(count, width, a, inputs[1], out, stride);
      case OpKind::kExp:
        return k.exponential(count, width, a, out, stride);
      case OpKind::kSumChannels:
        return k.sum_channels(count, width, inner / width, a, out, stride);
      default: {  // kScaleHeads
        const size_t heads = this->width(op.inputs[1]);
        return k.scale_heads(count, heads, width / heads, a, inputs[1], out, stride);
      }
    }
  }

  void use_context(const Op& op, Inputs& inputs) const {
    const Kernels& k = kernels();
    const size_t width = this->width(op.output), stride = this->stride(op.output);
    float* const out = this->out(op.output, 0);
    float factors[kBlockRows];
    for (size_t i = 0; i < count_; ++i) {
      const float context = *inputs[1][i];
      if (op.kind == OpKind::kAddLoop) {
        factors[i] = context;
      } else if (op.kind == OpKind::kDivideContext) {
        factors[i] = context > 0 ? op.number / context : 0.0f;
      } else {
        factors[i] = context == 0 ? 0.0f : op.number / std::sqrt(context);
      }
    }
    if (op.kind == OpKind::kAddLoop) {
      k.add_scaled(count_, width, inputs[0], inputs[2], factors, out, stride);
    } else {
      k.scale(count_, width, inputs[0], factors, out, stride);
    }
  }

  void take_loops(const Op& op, Inputs& inputs) const {
    for (size_t i = 0; i < count_; ++i) {
      const float *from = inputs[0][i], *message = inputs[3][i];
      const bool lacks = *inputs[1][i] > 0, alone = *inputs[2][i] <= 0;
      float* const to = out(op.output, i);
      for (size_t c = 0; c < width(op.output); ++c) {
        const float loop = op.number * message[c];
        to[c] = lacks && (alone || loop > from[c]) ? loop : from[c];
      }
    }
  }

  void concatenate(const Op& op) const {
    size_t column = 0;
    for (uint32_t part : op.inputs) {
      for (size_t i = 0; i < count_; ++i) {
        std::memcpy(out(op.output, i) + column, row(part, i), width(part) * sizeof(float));
      }
      column += width(part);
    }
  }

  void combine_parts(const Op& op) const {
    const size_t width = this->width(op.output);
    for (size_t i = 0; i < count_; ++i) {
      const auto part = [&](size_t p) { return row(op.inputs[p], i); };
      if (combines_wide(op, part)) {
        std::vector<double> quotient(width);
        combine(op, width, part, quotient.data());
        std::copy(quotient.begin(), quotient.end(), out(op.output, i));
      } else {
        combine(op, width, part, out(op.output, i));
      }
    }
  }

  void run_rowwise(const Op& op, Inputs& inputs) const {
    RowBlock<float> block{count_, width(op.output),   stride(op.output), out(op.output, 0), {},
                          {},     op.settings.data(), tensor(op.first),  tensor(op.second)};
    for (size_t p = 0; p < op.inputs.size(); ++p) {
      block.inputs[p] = inputs[p];
      block.widths[p] = width(op.inputs[p]);
    }
    row_operators()[op.function].in_float(block);
  }

  void call(const Op& op) const {
    const size_t width = this->width(op.output);
    std::vector<std::vector<float>> copies;
    std::vector<const float*> inputs;
    std::vector<size_t> widths;
    for (uint32_t in : op.inputs) {
      widths.push_back(this->width(in));
      copies.emplace_back(count_ * widths.back());
      for (size_t i = 0; i < count_; ++i) {
        std::memcpy(copies.back().data() + i * widths.back(), row(in, i), widths.back() * sizeof(float));
      }
      inputs.push_back(copies.back().data());
    }
    std::vector<float> result(count_ * width);
    program_.functions[static_cast<size_t>(op.first)](count_, inputs, widths, width, result.data());
    for (size_t i = 0; i < count_; ++i) {
      std::memcpy(out(op.output, i), result.data() + i * width, width * sizeof(float));
    }
  }

  const Program& program_;
  const RowsStep& step_;
  size_t count_;
  const float* const* sources_;
  float* const* buffers_;
};

// Repeats a row that was not finite; each operation that needs it runs `widely`. The row depends on no other row.
void run_lost_row(const Program& program, const RowsStep& step, uint32_t output, size_t row,
                  const float* const* sources, float* to) {
  std::vector<const float*> inputs(step.sources.size() * kBlockRows);
  for (size_t s = 0; s < step.sources.size(); ++s) inputs[s * kBlockRows] = sources[s * kBlockRows + row];
  RowBuffers memory;
  float* const* const buffers = memory.open(step);
  run_rows(program, step, 1, inputs.data(), buffers, true);
  std::copy_n(row_in(step, output, 0, inputs.data(), buffers), step.registers[output].width, to);
}

}  // namespace

bool run_rows(const Program& program, const RowsStep& step, size_t count, const float* const* sources,
              float* const* buffers, bool widely) {
  const Kernels& k = kernels();
  const BlockRun block(program, step, count, sources, buffers);
  for (const Op& op : step.ops) {
    block.run(op);
    for (size_t i = 0; widely && i < count; ++i) {
      if (k.finite(block.width(op.output), block.out(op.output, i))) continue;
      std::vector<const float*> rows;
      for (uint32_t reg : op.inputs) rows.push_back(block.row(reg, i));
      retry_in_float64(program, op, step, rows, block.out(op.output, i));
    }
  }
  bool finite = !widely;
  for (const Sink& sink : step.sinks) {
    finite &= sink.reg >= step.sources.size();
    if (widely || sink.reg < step.sources.size()) continue;
    // Check everything at once, including padding and neighbouring columns, because all of it is nearly always finite.
    if (k.finite(count * block.stride(sink.reg), buffers[step.registers[sink.reg].buffer])) continue;
    for (size_t i = 0; i < count; ++i) {
      float* const row = block.out(sink.reg, i);
      if (k.finite(block.width(sink.reg), row)) continue;
      run_lost_row(program, step, sink.reg, i, sources, row);
      finite &= k.finite(block.width(sink.reg), row);
    }
  }
  return finite;
}

void run_block(const Program& program, const RowsStep& step, size_t count, const float* const* sources, float* out,
               size_t stride) {
  static thread_local RowBuffers memory;
  float* const* const buffers = memory.open(step);
  run_rows(program, step, count, sources, buffers);
  const uint32_t sink = step.sinks[0].reg;
  for (size_t i = 0; i < count; ++i, out += stride) {
    std::memcpy(out, row_in(step, sink, i, sources, buffers), step.registers[sink].width * sizeof(float));
  }
}

double row_cost_of(const RowsStep& step) {
  double cost = kRowCost;
  for (const Op& op : step.ops) cost += 2 * kFlopCost * multiplications(step, op);
  return cost;
}

}  // namespace livegnn
