// Steps that work on one node's row at a time: linear layers, activations, norms, and what a node's context does to its
// row.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "inference/engine_scratch.h"
#include "program/combine.h"
#include "program/kernels.h"
#include "program/row_operators.h"
#include "threads/parallel.h"

namespace livegnn {
template <class Row>
void Engine::call(const Op& op, size_t count, const RowsStep& step, const Row& row_of, float* out,
                  size_t stride) const {
  const size_t width = step.registers[op.output].width;
  std::vector<std::vector<float>> copies;
  std::vector<const float*> inputs;
  std::vector<size_t> widths;
  for (uint32_t in : op.inputs) {
    widths.push_back(step.registers[in].width);
    copies.emplace_back(count * widths.back());
    for (size_t i = 0; i < count; ++i) {
      std::memcpy(copies.back().data() + i * widths.back(), row_of(in, i), widths.back() * sizeof(float));
    }
    inputs.push_back(copies.back().data());
  }
  std::vector<float> result(count * width);
  program_.functions[static_cast<size_t>(op.first)](count, inputs, widths, width, result.data());
  for (size_t i = 0; i < count; ++i) {
    std::memcpy(out + i * stride, result.data() + i * width, width * sizeof(float));
  }
}

bool Engine::run_rows(const RowsStep& step, size_t count, const float* const* sources, float* const* buffers,
                      bool widely) const {
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
    const bool has_tensors = op.kind != OpKind::kCombine && op.kind != OpKind::kCall;
    const float* first = has_tensors ? tensor(op.first) : nullptr;
    const float* second = has_tensors ? tensor(op.second) : nullptr;
    float* const out = out_of(op.output, 0);
    const size_t stride = stride_of(op.output);
    const float* inputs[kMaxRowInputs][kBlockRows];
    for (size_t p = 0; p < op.inputs.size() && p < kMaxRowInputs; ++p) {
      for (size_t i = 0; i < count; ++i) inputs[p][i] = row_of(op.inputs[p], i);
    }
    const float* const* a = inputs[0];
    float factors[kBlockRows];
    switch (op.kind) {
      case OpKind::kLinear:
        k.multiply(count, step.registers[in].width, width, a, first, second, out, stride);
        break;
      case OpKind::kScaleShift:
        k.scale_shift(count, width, a, first, second, out, stride);
        break;
      case OpKind::kScale:
        std::fill_n(factors, count, op.number);
        k.scale(count, width, a, factors, out, stride);
        break;
      case OpKind::kRelu:
        k.relu(count, width, a, out, stride);
        break;
      case OpKind::kLeakyRelu:
        k.leaky_relu(count, width, a, op.number, out, stride);
        break;
      case OpKind::kSigmoid:
        k.sigmoid(count, width, a, out, stride);
        break;
      case OpKind::kAdd:
        k.add(count, width, a, inputs[1], out, stride);
        break;
      case OpKind::kMultiply:
        k.multiply_elements(count, width, a, inputs[1], out, stride);
        break;
      case OpKind::kMaximum:
        k.maximum(count, width, a, inputs[1], out, stride);
        break;
      case OpKind::kConcat: {
        size_t column = 0;
        for (uint32_t part : op.inputs) {
          const size_t part_width = step.registers[part].width;
          for (size_t i = 0; i < count; ++i) {
            std::memcpy(out + i * stride + column, row_of(part, i), part_width * sizeof(float));
          }
          column += part_width;
        }
        break;
      }
      case OpKind::kDivideContext:
        for (size_t i = 0; i < count; ++i) factors[i] = *inputs[1][i] > 0 ? op.number / *inputs[1][i] : 0.0f;
        k.scale(count, width, a, factors, out, stride);
        break;
      case OpKind::kRsqrtContext:
        for (size_t i = 0; i < count; ++i) factors[i] = *inputs[1][i] > 0 ? op.number / std::sqrt(*inputs[1][i]) : 0.0f;
        k.scale(count, width, a, factors, out, stride);
        break;
      case OpKind::kAddLoop:
        for (size_t i = 0; i < count; ++i) factors[i] = *inputs[1][i];
        k.add_scaled(count, width, a, inputs[2], factors, out, stride);
        break;
      case OpKind::kExp:
        k.exponential(count, width, a, out, stride);
        break;
      case OpKind::kSumChannels:
        k.sum_channels(count, width, step.registers[in].width / width, a, out, stride);
        break;
      case OpKind::kScaleHeads: {
        const size_t heads = step.registers[op.inputs[1]].width;
        k.scale_heads(count, heads, width / heads, a, inputs[1], out, stride);
        break;
      }
      case OpKind::kCombine:
        for (size_t i = 0; i < count; ++i) {
          const auto row = [&](size_t p) { return row_of(op.inputs[p], i); };
          if (combines_wide(op, row)) {
            std::vector<double> quotient(width);
            combine(op, width, row, quotient.data());
            std::copy(quotient.begin(), quotient.end(), out + i * stride);
          } else {
            combine(op, width, row, out + i * stride);
          }
        }
        break;
      case OpKind::kCall:
        call(op, count, step, row_of, out, stride);
        break;
      case OpKind::kMaximumLoop:
        for (size_t i = 0; i < count; ++i) {
          const float *from = a[i], *message = inputs[3][i];
          const bool lacks = *inputs[1][i] > 0, alone = *inputs[2][i] <= 0;
          for (size_t c = 0; c < width; ++c) {
            const float loop = op.number * message[c];
            out[i * stride + c] = lacks && (alone || loop > from[c]) ? loop : from[c];
          }
        }
        break;
      case OpKind::kRowwise: {
        RowBlock<float> block{count, width, stride, out, {}, {}, op.settings.data(), first, second};
        for (size_t p = 0; p < op.inputs.size(); ++p) {
          block.inputs[p] = inputs[p];
          block.widths[p] = step.registers[op.inputs[p]].width;
        }
        row_operators()[op.function].in_float(block);
        break;
      }
    }
    if (!widely) continue;
    for (size_t i = 0; i < count; ++i) {
      if (k.finite(width, out + i * stride)) continue;
      std::vector<const float*> rows;
      for (uint32_t reg : op.inputs) rows.push_back(row_of(reg, i));
      run_widely(op, step, rows, out + i * stride);
    }
  }
  bool finite = !widely;
  for (const Sink& sink : step.sinks) {
    finite &= sink.reg >= num_sources;
    if (widely || sink.reg < num_sources) continue;
    // All at once, with the padding and what lies beside them, since that is nearly always enough.
    if (k.finite(count * stride_of(sink.reg), buffers[step.registers[sink.reg].buffer])) continue;
    for (size_t i = 0; i < count; ++i) {
      float* const row = out_of(sink.reg, i);
      if (k.finite(step.registers[sink.reg].width, row)) continue;
      run_lost_row(step, sink.reg, i, sources, row);
      finite &= k.finite(step.registers[sink.reg].width, row);
    }
  }
  return finite;
}

// A row that was not finite, each operation that makes it `widely`, if it need be. It depends on no other row.
void Engine::run_lost_row(const RowsStep& step, uint32_t output, size_t row, const float* const* sources,
                          float* to) const {
  std::vector<const float*> inputs(step.sources.size() * kBlockRows);
  for (size_t s = 0; s < step.sources.size(); ++s) inputs[s * kBlockRows] = sources[s * kBlockRows + row];
  std::vector<FloatBlock> blocks;
  std::vector<float*> buffers;
  for (uint32_t width : step.buffers) blocks.emplace_back(row_stride(width));
  for (FloatBlock& block : blocks) buffers.push_back(block.data());
  run_rows(step, 1, inputs.data(), buffers.data(), true);
  const Register& r = step.registers[output];
  std::copy_n(buffers[r.buffer] + r.column, r.width, to);
}

// The union of what changed in the sources of a step, and for each source where a node's new row is: into the scratch
// memory's reach. An added node has no row yet, so it is in the union whatever points at it. The targets of a
// propagation that runs together with the step come first, in their order: row t of `aggregate` is that of target t.
void Engine::find_reach(const RowsStep& step, const Delta& delta, const Prepared& prepared, uint32_t aggregate) {
  Scratches& scratch = *scratches_;
  Reach& reach = scratch.reach;
  const bool fused = aggregate != kNoIndex;
  // The frontier has left the places of its targets in the second slots.
  auto& slots = scratch.slots[fused ? 1 : 0][step.node_type];
  reach.nodes.clear();
  if (fused) reach.nodes = scratch.targets;
  if (reach.positions.size() < step.sources.size()) reach.positions.resize(step.sources.size());
  auto enter = [&](uint32_t node) {
    if (slots[node] == kNoIndex) {
      slots[node] = static_cast<uint32_t>(reach.nodes.size());
      reach.nodes.push_back(node);
    }
    return slots[node];
  };
  const NodeDelta& node_delta = delta.nodes[step.node_type];
  reach.added.assign(reach.nodes.size(), 0);
  for (size_t i = 0; i < node_delta.added.size(); ++i) {
    if (node_delta.added_ids[i] == kNoId) continue;
    const uint32_t slot = enter(node_delta.added[i]);
    if (slot >= reach.added.size()) reach.added.resize(slot + 1, 0);
    reach.added[slot] = 1;
  }
  for (size_t s = 0; s < step.sources.size(); ++s) {
    auto& positions = reach.positions[s];
    positions.assign(reach.nodes.size(), kNoIndex);
    if (step.sources[s] == aggregate) {
      for (uint32_t t = 0; t < scratch.targets.size(); ++t) positions[t] = t;
      continue;
    }
    const Changes& source = prepared.changes[step.sources[s]];
    positions.reserve(reach.nodes.size() + source.nodes.size());
    for (size_t i = 0; i < source.nodes.size(); ++i) {
      if (i + 16 < source.nodes.size()) __builtin_prefetch(&slots[source.nodes[i + 16]]);
      const uint32_t slot = enter(source.nodes[i]);
      if (slot == positions.size()) {
        positions.push_back(source.positions[i]);
      } else {
        positions[slot] = source.positions[i];
      }
    }
  }
  for (uint32_t node : reach.nodes) slots[node] = kNoIndex;
  for (size_t s = 0; s < step.sources.size(); ++s) reach.positions[s].resize(reach.nodes.size(), kNoIndex);
  reach.added.resize(reach.nodes.size(), 0);

  reach.stored.clear();
  for (uint32_t source : step.sources) reach.stored.push_back(rows(source));
}

Output Engine::output_at(size_t output) const {
  return output == 0 ? Output{program_.output_kept, program_.output} : program_.others[output - 1];
}

uint32_t Engine::output_type(size_t output) const {
  const auto [kept, position] = output_at(output);
  return kept ? program_.values[position].node_type : program_.on_demand[position].node_type;
}

size_t Engine::output_width(size_t output) const {
  const auto [kept, position] = output_at(output);
  if (kept) return program_.values[position].width;
  const RowsStep& step = program_.on_demand[position];
  return step.registers[step.sinks[0].reg].width;
}

void Engine::open_rows(const RowsStep& step, bool output, Prepared* prepared) {
  Reach& reach = scratches_->reach;
  const size_t count = reach.nodes.size();
  reach.keep.resize(std::max(reach.keep.size(), step.sinks.size()));
  for (size_t s = 0; s < step.sinks.size(); ++s) {
    reach.keep[s].assign(count, 0);
    if (output) break;
    Changes& changes = prepared->changes[step.sinks[s].value];
    changes.rows.reserve(count * changes.stride);
    if (program_.output_kept && step.sinks[s].value == program_.output) prepared->affected = count;
  }
  if (output) prepared->affected = count;
}

void Engine::close_rows(const RowsStep& step, bool output, Prepared* prepared) {
  Reach& reach = scratches_->reach;
  if (output) {
    for (size_t i = 0; i < reach.nodes.size(); ++i) {
      if (reach.keep[0][i]) prepared->changed.push_back(reach.nodes[i]);
    }
    return;
  }
  for (size_t s = 0; s < step.sinks.size(); ++s) {
    keep_changed(&prepared->changes[step.sinks[s].value], reach.nodes, reach.keep[s]);
  }
}

// A prediction that is not kept is computed from the old rows and from the new ones, to see whether it is another.
void Engine::run_output_block(const RowsStep& step, size_t first, size_t count, const Prepared& prepared) {
  Reach& reach = scratches_->reach;
  static thread_local std::vector<Scratch> memory;
  static thread_local std::vector<float*> before, after;
  static thread_local std::vector<const float*> old_rows, new_rows;
  const size_t num_sources = step.sources.size();
  memory.resize(std::max(memory.size(), 2 * step.buffers.size()));
  before.resize(step.buffers.size());
  after.resize(step.buffers.size());
  for (size_t b = 0; b < step.buffers.size(); ++b) {
    before[b] = memory[2 * b].reserve(kBlockRows * row_stride(step.buffers[b]));
    after[b] = memory[2 * b + 1].reserve(kBlockRows * row_stride(step.buffers[b]));
  }
  old_rows.resize(num_sources * kBlockRows);
  new_rows.resize(num_sources * kBlockRows);
  static thread_local RowArena arena;
  arena.clear();
  for (size_t s = 0; s < num_sources; ++s) {
    if (!is_stored(step.sources[s])) {
      stored_rows(step.sources[s], {reach.nodes.data() + first, count}, &arena, old_rows.data() + s * kBlockRows);
      for (size_t i = 0; i < count; ++i) {
        const uint32_t position = reach.positions[s][first + i];
        new_rows[s * kBlockRows + i] =
            position == kNoIndex ? old_rows[s * kBlockRows + i] : prepared.changes[step.sources[s]].at(position);
      }
      continue;
    }
    const Rows& stored = reach.stored[s];
    const Changes& changes = prepared.changes[step.sources[s]];
    for (size_t i = 0; i < count; ++i) {
      const uint32_t node = reach.nodes[first + i], position = reach.positions[s][first + i];
      fetch(stored, node);
      const float* old = node < stored.count ? stored.row(node) : zeros_.data();
      old_rows[s * kBlockRows + i] = old;
      new_rows[s * kBlockRows + i] = position == kNoIndex ? old : changes.at(position);
    }
  }
  const bool guarded = !run_rows(step, count, new_rows.data(), after.data()) && guard_;
  run_rows(step, count, old_rows.data(), before.data());
  const uint32_t sink = step.sinks[0].reg;
  const Register& reg = step.registers[sink];
  const Kernels& k = kernels();
  for (size_t i = 0; i < count; ++i) {
    const float *was, *is;
    if (sink < num_sources) {
      was = old_rows[sink * kBlockRows + i];
      is = new_rows[sink * kBlockRows + i];
    } else {
      const size_t at = i * row_stride(step.buffers[reg.buffer]) + reg.column;
      was = before[reg.buffer] + at;
      is = after[reg.buffer] + at;
    }
    reach.keep[0][first + i] = reach.added[first + i] || k.differs(reg.width, was, is);
    if (guarded && !k.finite(reg.width, is) && k.finite(reg.width, was)) {
      lose(step.node_type, reach.nodes[first + i]);
    }
  }
}

// The rows of a block of the reach as they will be, for a source that is not stored.
void Engine::locate_reach(uint32_t value, size_t source, size_t first, size_t count, const Prepared& prepared,
                          RowArena* arena, const float** out) const {
  const Reach& reach = scratches_->reach;
  uint32_t unchanged[kBlockRows];
  const float* rows[kBlockRows];
  size_t missing = 0;
  for (size_t i = 0; i < count; ++i) {
    if (reach.positions[source][first + i] == kNoIndex) unchanged[missing++] = reach.nodes[first + i];
  }
  stored_rows(value, {unchanged, missing}, arena, rows);
  missing = 0;
  for (size_t i = 0; i < count; ++i) {
    const uint32_t position = reach.positions[source][first + i];
    out[i] = position == kNoIndex ? rows[missing++] : prepared.changes[value].at(position);
  }
}

void Engine::run_rows_block(const RowsStep& step, size_t first, size_t count, Prepared* prepared) {
  Reach& reach = scratches_->reach;
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
  static thread_local RowArena arena;
  arena.clear();
  sources.resize(step.sources.size() * kBlockRows);
  for (size_t s = 0; s < step.sources.size(); ++s) {
    if (!is_stored(step.sources[s])) {
      locate_reach(step.sources[s], s, first, count, *prepared, &arena, sources.data() + s * kBlockRows);
      continue;
    }
    const Rows& stored = reach.stored[s];
    for (size_t i = 0; i < count; ++i) {
      const uint32_t position = reach.positions[s][first + i], node = reach.nodes[first + i];
      if (position != kNoIndex) {
        sources[s * kBlockRows + i] = prepared->changes[step.sources[s]].at(position);
      } else {
        sources[s * kBlockRows + i] = node < stored.count ? stored.row(node) : zeros_.data();
        fetch(stored, node);
      }
    }
  }
  const bool guarded = !run_rows(step, count, sources.data(), buffers.data()) && guard_;
  for (size_t s = 0; s < step.sinks.size(); ++s) {
    const Register& reg = step.registers[step.sinks[s].reg];
    const Rows old = rows(step.sinks[s].value);
    Changes& changes = prepared->changes[step.sinks[s].value];
    float* out = changes.rows.data() + first * changes.stride;
    const bool computed = !is_stored(step.sinks[s].value);
    const float* olds[kBlockRows];
    if (computed) stored_rows(step.sinks[s].value, {reach.nodes.data() + first, count}, &arena, olds);
    constexpr size_t kAhead = 8;
    for (size_t i = 0; i < count; ++i) {
      if (reach.nodes[first + i] < old.count) touch(old.row(reach.nodes[first + i]));
    }
    for (size_t i = 0; i < std::min(kAhead, count); ++i) fetch(old, reach.nodes[first + i]);
    for (size_t i = 0; i < count; ++i, out += changes.stride) {
      if (i + kAhead < count) fetch(old, reach.nodes[first + i + kAhead]);
      const float* from = step.sinks[s].reg < step.sources.size()
                              ? sources[step.sinks[s].reg * kBlockRows + i]
                              : buffers[reg.buffer] + i * row_stride(step.buffers[reg.buffer]) + reg.column;
      if (from != out) std::memcpy(out, from, reg.width * sizeof(float));
      const uint32_t node = reach.nodes[first + i];
      const float* before = computed ? olds[i] : node < old.count ? old.row(node) : zeros_.data();
      reach.keep[s][first + i] = reach.added[first + i] || kernels().differs(reg.width, before, out);
      if (guarded && reach.keep[s][first + i] && !kernels().finite(reg.width, out) &&
          kernels().finite(reg.width, before)) {
        lose(step.node_type, node);
      }
    }
  }
}

void Engine::prepare_rows(const RowsStep& step, bool output, double row_cost, const Delta& delta, Prepared* prepared) {
  find_reach(step, delta, *prepared, kNoIndex);
  open_rows(step, output, prepared);
  const size_t total = scratches_->reach.nodes.size();
  pool_->run(blocks_of(total), row_cost * static_cast<double>(total), [&](size_t block) {
    const size_t first = block * kBlockRows, count = std::min(kBlockRows, total - first);
    if (output) {
      run_output_block(step, first, count, *prepared);
    } else {
      run_rows_block(step, first, count, prepared);
    }
  });
  close_rows(step, output, prepared);
}

}  // namespace livegnn
