#include "inference/rows/stored_rows.h"

#include <tsl/robin_map.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "hashing/mix_hash.h"
#include "inference/edges/edge_view.h"
#include "inference/evaluation/blocks.h"
#include "inference/evaluation/row_evaluation.h"
#include "inference/rows/aggregate.h"
#include "threads/parallel.h"

namespace livegnn {
namespace {

// The places of the new rows of `nodes`, kNoIndex where there is none. The fewer ones are put into a map.
std::vector<uint32_t> positions_of(const Changes& changes, std::span<const uint32_t> nodes) {
  std::vector<uint32_t> positions(nodes.size(), kNoIndex);
  tsl::robin_map<uint32_t, uint32_t, MixHash> found;
  found.reserve(std::min(changes.size(), nodes.size()));
  if (changes.size() < nodes.size()) {
    for (size_t i = 0; i < changes.size(); ++i) found.emplace(changes.nodes()[i], changes.position(i));
  } else {
    for (uint32_t node : nodes) found.emplace(node, kNoIndex);
    for (size_t i = 0; i < changes.size(); ++i) {
      const auto asked = found.find(changes.nodes()[i]);
      if (asked != found.end()) asked.value() = changes.position(i);
    }
  }
  for (size_t i = 0; i < nodes.size(); ++i) {
    const auto position = found.find(nodes[i]);
    if (position != found.end()) positions[i] = position->second;
  }
  return positions;
}

}  // namespace

void stored_rows(const RowState& state, uint32_t value, std::span<const uint32_t> nodes, RowArena* arena,
                 const float** out) {
  const Value& spec = state.program.values[value];
  if (state.partial[value] >= 0) {
    const bool whole = arena->whole != nullptr && (*arena->whole)[value].count > 0;
    const Rows kept = whole ? (*arena->whole)[value] : state.kept_rows(value);
    std::vector<uint32_t> missing;
    for (size_t i = 0; i < nodes.size(); ++i) {
      const uint32_t slot = whole ? nodes[i] : state.slot_of(value, nodes[i]);
      out[i] = slot < kept.count ? kept.row(slot) : nullptr;
      if (out[i] == nullptr) missing.push_back(nodes[i]);
    }
    if (missing.empty()) return;
    std::vector<const float*> pulled(missing.size());
    pull(state, state.program.propagations[static_cast<size_t>(state.partial[value])], missing, arena, pulled.data());
    for (size_t i = 0, next = 0; i < nodes.size(); ++i) {
      if (out[i] == nullptr) out[i] = pulled[next++];
    }
    return;
  }
  if (spec.derived < 0) {
    const Rows kept = state.rows(value);
    for (size_t i = 0; i < nodes.size(); ++i) out[i] = nodes[i] < kept.count ? kept.row(nodes[i]) : state.zeros.data();
    return;
  }
  const RowsStep& step = state.program.on_demand[static_cast<size_t>(spec.derived)];
  const size_t stride = row_stride(spec.width);
  float* row = arena->take(nodes.size() * stride);
  // All nodes at once, so that shared neighbours are computed once.
  std::vector<const float*> located(step.sources.size() * nodes.size());
  for (size_t s = 0; s < step.sources.size(); ++s) {
    stored_rows(state, step.sources[s], nodes, arena, located.data() + s * nodes.size());
  }
  std::vector<const float*> sources(step.sources.size() * kBlockRows);
  for (size_t first = 0; first < nodes.size(); first += kBlockRows) {
    const size_t count = std::min(kBlockRows, nodes.size() - first);
    for (size_t s = 0; s < step.sources.size(); ++s) {
      std::copy_n(located.data() + s * nodes.size() + first, count, sources.data() + s * kBlockRows);
    }
    run_block(state.program, step, count, sources.data(), row, stride);
    for (size_t i = 0; i < count; ++i, row += stride) {
      std::fill(row + spec.width, row + stride, 0.0f);
      out[first + i] = row;
    }
  }
}

void new_rows(const RowState& state, const BatchChanges& batch, uint32_t value, std::span<const uint32_t> nodes,
              RowArena* arena, const float** out) {
  const Changes& changes = batch.of(value);
  if (changes.size() == 0) return stored_rows(state, value, nodes, arena, out);
  const std::vector<uint32_t> positions = positions_of(changes, nodes);
  std::vector<uint32_t> unchanged;
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (positions[i] == kNoIndex) unchanged.push_back(nodes[i]);
  }
  std::vector<const float*> stored(unchanged.size());
  stored_rows(state, value, unchanged, arena, stored.data());
  for (size_t i = 0, next = 0; i < nodes.size(); ++i) {
    out[i] = positions[i] == kNoIndex ? stored[next++] : changes.at(positions[i]);
  }
}

void stored_rows_of_many(const RowState& state, uint32_t value, std::span<const uint32_t> nodes, ThreadPool* pool,
                         Scratch* memory, std::vector<const float*>* out) {
  out->resize(nodes.size());
  if (state.is_stored(value)) return stored_rows(state, value, nodes, nullptr, out->data());
  const size_t stride = row_stride(state.program.values[value].width);
  float* rows = memory->reserve(nodes.size() * stride);
  pool->run(blocks_of(nodes.size()), kLong, [&](size_t block) {
    static thread_local RowArena arena;
    arena.clear();
    const size_t first = block * kBlockRows, count = std::min(kBlockRows, nodes.size() - first);
    const float* found[kBlockRows];
    stored_rows(state, value, nodes.subspan(first, count), &arena, found);
    for (size_t i = 0; i < count; ++i) {
      (*out)[first + i] = rows + (first + i) * stride;
      std::memcpy(rows + (first + i) * stride, found[i], stride * sizeof(float));
    }
  });
}

Rows all_stored_rows(const RowState& state, uint32_t value, const Whole* whole, ThreadPool* pool, Table* table) {
  if (state.is_stored(value)) return state.rows(value);
  if (whole != nullptr && (*whole)[value].count > 0) return (*whole)[value];
  const Value& spec = state.program.values[value];
  const IdMap& ids = state.graph.nodes[spec.node_type].ids;
  *table = Table(spec.width);
  table->resize(ids.capacity());
  pool->run(blocks_of(ids.capacity()), kLong, [&](size_t block) {
    static thread_local RowArena arena;
    arena.clear();
    arena.whole = whole;
    const size_t first = block * kBlockRows, count = std::min(kBlockRows, ids.capacity() - first);
    uint32_t nodes[kBlockRows];
    const float* found[kBlockRows];
    std::iota(nodes, nodes + count, static_cast<uint32_t>(first));
    stored_rows(state, value, {nodes, count}, &arena, found);
    for (size_t i = 0; i < count; ++i) {
      if (ids.in_use(nodes[i])) table->write(nodes[i], found[i]);
    }
  });
  return {table->row(0), table->stride(), spec.width, table->rows()};
}

void complete_rows(const RowState& state, ThreadPool* pool, Whole* whole, std::vector<Table>* tables) {
  if (state.keep_degree == 0) return;
  for (const Step& order : state.program.order) {
    if (order.kind != Step::kPropagate) continue;
    const PropagateStep& step = state.program.propagations[order.position];
    const IdMap& ids = state.graph.nodes[state.program.values[step.output].node_type].ids;
    Table input_table;
    const Rows input = all_stored_rows(state, step.input, whole, pool, &input_table);
    const Rows kept = state.kept_rows(step.output);
    Table& table = tables->emplace_back(kept.width);
    table.resize(ids.capacity());
    pool->run(blocks_of(ids.capacity()), kLong, [&](size_t block) {
      const size_t end = std::min(ids.capacity(), (block + 1) * kBlockRows);
      for (auto node = static_cast<uint32_t>(block * kBlockRows); node < end; ++node) {
        const uint32_t slot = state.slot_of(step.output, node);
        if (slot != kNoIndex) {
          table.write(node, kept.row(slot));
        } else if (ids.in_use(node)) {
          aggregate_in_order(state, step, input, node, table.row(node), nullptr);
        }
      }
    });
    (*whole)[step.output] = {table.row(0), table.stride(), table.width(), table.rows()};
  }
}

void read_output(const RowState& state, size_t output, std::span<const uint32_t> nodes, float* out) {
  static thread_local RowArena arena;
  static thread_local std::vector<const float*> sources;
  const size_t width = state.program.output_width(output);
  const auto [kept, position] = state.program.output_at(output);
  const RowsStep* step = kept ? nullptr : &state.program.on_demand[position];
  sources.resize((step == nullptr ? 1 : step->sources.size()) * kBlockRows);
  for (size_t first = 0; first < nodes.size(); first += kBlockRows) {
    arena.clear();
    const auto block = nodes.subspan(first, std::min(kBlockRows, nodes.size() - first));
    if (step == nullptr) {
      stored_rows(state, position, block, &arena, sources.data());
      for (size_t i = 0; i < block.size(); ++i) std::memcpy(out + i * width, sources[i], width * sizeof(float));
    } else {
      for (size_t s = 0; s < step->sources.size(); ++s) {
        stored_rows(state, step->sources[s], block, &arena, sources.data() + s * kBlockRows);
      }
      run_block(state.program, *step, block.size(), sources.data(), out, width);
    }
    out += block.size() * width;
  }
}

void read_new_output(const RowState& state, const BatchChanges& batch, size_t output, std::span<const uint32_t> nodes,
                     float* out) {
  RowArena arena;
  const auto locate = [&](uint32_t value) {
    std::vector<const float*> rows(nodes.size());
    new_rows(state, batch, value, nodes, &arena, rows.data());
    return rows;
  };
  const size_t width = state.program.output_width(output);
  const auto [kept, position] = state.program.output_at(output);
  if (kept) {
    for (const float* row : locate(position)) {
      std::memcpy(out, row, width * sizeof(float));
      out += width;
    }
    return;
  }
  const RowsStep& step = state.program.on_demand[position];
  std::vector<std::vector<const float*>> located;
  for (uint32_t source : step.sources) located.push_back(locate(source));
  std::vector<const float*> sources(step.sources.size() * kBlockRows);
  for (size_t first = 0; first < nodes.size(); first += kBlockRows) {
    const size_t count = std::min(kBlockRows, nodes.size() - first);
    for (size_t s = 0; s < step.sources.size(); ++s) {
      std::copy_n(located[s].data() + first, count, sources.data() + s * kBlockRows);
    }
    run_block(state.program, step, count, sources.data(), out + first * width, width);
  }
}

void evaluate_all(const RowState& state, size_t on_demand, ThreadPool* pool, float* out) {
  const RowsStep& step = state.program.on_demand[on_demand];
  const size_t width = step.registers[step.sinks[0].reg].width;
  const size_t capacity = state.graph.nodes[step.node_type].ids.capacity();
  Whole whole(state.program.values.size());
  std::vector<Table> tables;
  complete_rows(state, pool, &whole, &tables);
  pool->run(blocks_of(capacity), kLong, [&](size_t block) {
    static thread_local RowArena arena;
    static thread_local std::vector<const float*> sources;
    arena.clear();
    arena.whole = &whole;
    const size_t first = block * kBlockRows, count = std::min(kBlockRows, capacity - first);
    uint32_t nodes[kBlockRows];
    std::iota(nodes, nodes + count, static_cast<uint32_t>(first));
    sources.resize(step.sources.size() * kBlockRows);
    for (size_t s = 0; s < step.sources.size(); ++s) {
      stored_rows(state, step.sources[s], {nodes, count}, &arena, sources.data() + s * kBlockRows);
    }
    run_block(state.program, step, count, sources.data(), out + first * width, width);
  });
}

}  // namespace livegnn
