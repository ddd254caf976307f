// Steps that work on one node's row at a time: linear layers, activations, norms, and what a node's context does to its row.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "engine_scratch.h"
#include "kernels.h"
#include "parallel.h"

namespace livegnn {
namespace {

template <class Function>
void map_row(size_t width, const float* a, float* out, const Function& function) {
  for (size_t i = 0; i < width; ++i) out[i] = function(a[i]);
}

float gelu(float x) { return 0.5f * x * (1.0f + std::erf(x * 0.70710678118654752f)); }
float gelu_tanh(float x) { return 0.5f * x * (1.0f + std::tanh(0.79788456080286536f * (x + 0.044715f * x * x * x))); }

// With the largest element taken out first, so that no exponential overflows.
void softmax(size_t width, const float* a, bool logarithm, float* out) {
  float largest = *std::max_element(a, a + width);
  double total = 0;
  for (size_t i = 0; i < width; ++i) total += std::exp(static_cast<double>(a[i] - largest));
  auto shift = static_cast<float>(std::log(total));
  for (size_t i = 0; i < width; ++i) {
    out[i] = logarithm ? a[i] - largest - shift : static_cast<float>(std::exp(static_cast<double>(a[i] - largest)) / total);
  }
}

}  // namespace

void Engine::run_rows(const RowsStep& step, size_t count, const float* const* sources, float* const* buffers) const {
  const Kernels& k = kernels();
  const size_t num_sources = step.sources.size();
  auto stride_of = [&](uint32_t r) { return row_stride(step.buffers[step.registers[r].buffer]); };
  auto out_of = [&](uint32_t r, size_t i) {
    return buffers[step.registers[r].buffer] + i * stride_of(r) + step.registers[r].column;
  };
  auto row_of = [&](uint32_t r, size_t i) -> const float* {
    return r < num_sources ? sources[r * kBlockRows + i] : out_of(r, i);
  };
  auto tensor = [&](int32_t t) { return t < 0 ? nullptr : program_.tensors[static_cast<size_t>(t)].data(); };
  for (const Op& op : step.ops) {
    const uint32_t in = op.inputs[0];
    const size_t width = step.registers[op.output].width;
    const float* first = tensor(op.first);
    const float* second = tensor(op.second);
    auto each = [&](auto&& body) {
      for (size_t i = 0; i < count; ++i) body(row_of(in, i), out_of(op.output, i), i);
    };
    auto pairs = [&](auto function) {
      each([&](const float* a, float* out, size_t i) { function(width, a, row_of(op.inputs[1], i), out); });
    };
    switch (op.kind) {
      case OpKind::kLinear: {
        const float* inputs[kBlockRows];
        for (size_t i = 0; i < count; ++i) inputs[i] = row_of(in, i);
        k.multiply(count, step.registers[in].width, width, inputs, first, second, out_of(op.output, 0),
                   stride_of(op.output));
        break;
      }
      case OpKind::kScaleShift:
        each([&](const float* a, float* out, size_t) { k.scale_shift(width, a, first, second, out); });
        break;
      case OpKind::kScale:
        each([&](const float* a, float* out, size_t) { k.scale(width, a, op.number, out); });
        break;
      case OpKind::kLayerNorm:
        each([&](const float* a, float* out, size_t) { k.normalize_layer(width, a, first, second, op.number, out); });
        break;
      case OpKind::kL2Normalize:
        each([&](const float* a, float* out, size_t) { k.normalize_l2(width, a, op.number, out); });
        break;
      case OpKind::kRelu:
        each([&](const float* a, float* out, size_t) { k.relu(width, a, out); });
        break;
      case OpKind::kLeakyRelu:
        each([&](const float* a, float* out, size_t) { k.leaky_relu(width, a, op.number, out); });
        break;
      case OpKind::kElu:
        each([&](const float* a, float* out, size_t) {
          map_row(width, a, out, [&](float x) { return x > 0 ? x : op.number * std::expm1(x); });
        });
        break;
      case OpKind::kGelu:
        each([&](const float* a, float* out, size_t) { map_row(width, a, out, gelu); });
        break;
      case OpKind::kGeluTanh:
        each([&](const float* a, float* out, size_t) { map_row(width, a, out, gelu_tanh); });
        break;
      case OpKind::kSigmoid:
        each([&](const float* a, float* out, size_t) {
          map_row(width, a, out, [](float x) { return 1.0f / (1.0f + std::exp(-x)); });
        });
        break;
      case OpKind::kTanh:
        each([&](const float* a, float* out, size_t) { map_row(width, a, out, [](float x) { return std::tanh(x); }); });
        break;
      case OpKind::kSoftmax:
      case OpKind::kLogSoftmax:
        each([&](const float* a, float* out, size_t) { softmax(width, a, op.kind == OpKind::kLogSoftmax, out); });
        break;
      case OpKind::kAdd: pairs(k.add); break;
      case OpKind::kMultiply: pairs(k.multiply_elements); break;
      case OpKind::kMaximum: pairs(k.maximum); break;
      case OpKind::kConcat: {
        size_t column = 0;
        for (uint32_t part : op.inputs) {
          size_t part_width = step.registers[part].width;
          for (size_t i = 0; i < count; ++i) {
            std::memcpy(out_of(op.output, i) + column, row_of(part, i), part_width * sizeof(float));
          }
          column += part_width;
        }
        break;
      }
      case OpKind::kDivideContext:
        each([&](const float* a, float* out, size_t i) {
          float context = *row_of(op.inputs[1], i);
          k.scale(width, a, context > 0 ? 1.0f / context : 0.0f, out);
        });
        break;
      case OpKind::kRsqrtContext:
        each([&](const float* a, float* out, size_t i) {
          float context = *row_of(op.inputs[1], i);
          k.scale(width, a, context > 0 ? 1.0f / std::sqrt(context) : 0.0f, out);
        });
        break;
      case OpKind::kAddLoop:
        each([&](const float* a, float* out, size_t i) {
          k.add_scaled(width, a, row_of(op.inputs[2], i), *row_of(op.inputs[1], i), out);
        });
        break;
    }
  }
}

void Engine::prepare_rows(const RowsStep& step, double row_cost, const Delta& delta, Prepared* prepared) {
  Scratches& scratch = *scratches_;
  auto& slots = scratch.slots[0][step.node_type];
  auto& nodes = scratch.nodes;
  nodes.clear();
  if (scratch.positions.size() < step.sources.size()) scratch.positions.resize(step.sources.size());
  const NodeDelta& node_delta = delta.nodes[step.node_type];

  // The union of what changed in the sources, and where each source's new row is. An added node has no row yet,
  // so it is computed whether or not anything points at it.
  auto enter = [&](uint32_t node) {
    if (slots[node] == kNoIndex) {
      slots[node] = static_cast<uint32_t>(nodes.size());
      nodes.push_back(node);
    }
    return slots[node];
  };
  for (size_t i = 0; i < node_delta.added.size(); ++i) {
    if (node_delta.added_ids[i] != kNoId) enter(node_delta.added[i]);
  }
  size_t num_added = nodes.size();
  for (size_t s = 0; s < step.sources.size(); ++s) {
    const Changes& source = prepared->changes[step.sources[s]];
    auto& positions = scratch.positions[s];
    positions.assign(nodes.size(), kNoIndex);
    for (size_t i = 0; i < source.nodes.size(); ++i) {
      uint32_t slot = enter(source.nodes[i]);
      if (slot >= positions.size()) positions.resize(slot + 1, kNoIndex);
      positions[slot] = static_cast<uint32_t>(i);
    }
  }
  for (uint32_t node : nodes) slots[node] = kNoIndex;
  for (size_t s = 0; s < step.sources.size(); ++s) scratch.positions[s].resize(nodes.size(), kNoIndex);
  bool writes_output = false;
  for (const Sink& sink : step.sinks) {
    Changes& changes = prepared->changes[sink.value];
    changes.rows.reserve(nodes.size() * changes.stride);
    writes_output |= sink.value == program_.output;
  }
  if (writes_output) prepared->affected = nodes.size();
  if (nodes.empty()) return;

  std::vector<std::vector<uint8_t>> keep(step.sinks.size(), std::vector<uint8_t>(nodes.size()));
  std::vector<Rows> stored, old;
  for (uint32_t source : step.sources) stored.push_back(rows(source));
  for (const Sink& sink : step.sinks) old.push_back(rows(sink.value));
  auto stored_or_zero = [&](const Rows& from, uint32_t node) {
    return node < from.count ? from.row(node) : zeros_.data();
  };
  auto fetch = [](const Rows& from, uint32_t node) {
    if (node >= from.count) return;
    for (size_t c = 0; c < from.width; c += 16) __builtin_prefetch(from.row(node) + c);
  };
  constexpr size_t kAhead = 8;
  const size_t blocks = (nodes.size() + kBlockRows - 1) / kBlockRows;
  pool_->run(blocks, row_cost * static_cast<double>(nodes.size()), [&](size_t block) {
    const size_t first = block * kBlockRows, count = std::min(kBlockRows, nodes.size() - first);
    static thread_local std::vector<Scratch> memory;
    static thread_local std::vector<float*> buffers;
    static thread_local std::vector<const float*> sources;
    memory.resize(std::max(memory.size(), step.buffers.size()));
    buffers.resize(step.buffers.size());
    for (size_t b = 0; b < step.buffers.size(); ++b) {
      buffers[b] = memory[b].reserve(kBlockRows * row_stride(step.buffers[b]));
    }
    // A sink that fills a whole buffer is computed in its place.
    for (const Sink& sink : step.sinks) {
      const Register& reg = step.registers[sink.reg];
      Changes& changes = prepared->changes[sink.value];
      if (sink.reg >= step.sources.size() && reg.width == step.buffers[reg.buffer]) {
        buffers[reg.buffer] = changes.rows.data() + first * changes.stride;
      }
    }
    sources.resize(step.sources.size() * kBlockRows);
    for (size_t s = 0; s < step.sources.size(); ++s) {
      for (size_t i = 0; i < count; ++i) {
        uint32_t position = scratch.positions[s][first + i];
        if (position == kNoIndex) {
          sources[s * kBlockRows + i] = stored_or_zero(stored[s], nodes[first + i]);
          fetch(stored[s], nodes[first + i]);
        } else {
          sources[s * kBlockRows + i] = prepared->changes[step.sources[s]].row(position);
        }
      }
    }
    run_rows(step, count, sources.data(), buffers.data());
    for (size_t s = 0; s < step.sinks.size(); ++s) {
      const Register& reg = step.registers[step.sinks[s].reg];
      Changes& changes = prepared->changes[step.sinks[s].value];
      float* out = changes.rows.data() + first * changes.stride;
      for (size_t i = 0; i < std::min(kAhead, count); ++i) fetch(old[s], nodes[first + i]);
      for (size_t i = 0; i < count; ++i, out += changes.stride) {
        if (i + kAhead < count) fetch(old[s], nodes[first + i + kAhead]);
        const float* from = step.sinks[s].reg < step.sources.size()
                                ? sources[step.sinks[s].reg * kBlockRows + i]
                                : buffers[reg.buffer] + i * row_stride(step.buffers[reg.buffer]) + reg.column;
        if (from != out) std::memcpy(out, from, reg.width * sizeof(float));
        keep[s][first + i] =
            first + i < num_added || kernels().differs(reg.width, stored_or_zero(old[s], nodes[first + i]), out);
      }
    }
  });
  for (size_t s = 0; s < step.sinks.size(); ++s) {
    keep_changed(&prepared->changes[step.sinks[s].value], nodes, keep[s]);
  }
}

}  // namespace livegnn
