// Rows as they were before a batch: where they are kept, or computed where they are not (NeutronRT, section V.B).
#include <algorithm>
#include <cstring>
#include <numeric>

#include "inference/edge_view.h"
#include "inference/engine_scratch.h"
#include "threads/parallel.h"

namespace livegnn {

void Engine::stored_rows(uint32_t value, std::span<const uint32_t> nodes, RowArena* arena, const float** out) const {
  const Value& spec = program_.values[value];
  if (partial_[value] >= 0) {
    const bool whole = arena->whole != nullptr && (*arena->whole)[value].count > 0;
    const Rows kept = whole ? (*arena->whole)[value] : kept_rows(value);
    std::vector<uint32_t> missing;
    for (size_t i = 0; i < nodes.size(); ++i) {
      const uint32_t slot = whole ? nodes[i] : slot_of(value, nodes[i]);
      out[i] = slot < kept.count ? kept.row(slot) : nullptr;
      if (out[i] == nullptr) missing.push_back(nodes[i]);
    }
    if (missing.empty()) return;
    std::vector<const float*> pulled(missing.size());
    pull(program_.propagations[static_cast<size_t>(partial_[value])], missing, arena, pulled.data());
    for (size_t i = 0, next = 0; i < nodes.size(); ++i) {
      if (out[i] == nullptr) out[i] = pulled[next++];
    }
    return;
  }
  if (spec.derived < 0) {
    const Rows kept = rows(value);
    for (size_t i = 0; i < nodes.size(); ++i) out[i] = nodes[i] < kept.count ? kept.row(nodes[i]) : zeros_.data();
    return;
  }
  const RowsStep& step = program_.on_demand[static_cast<size_t>(spec.derived)];
  const size_t stride = row_stride(spec.width);
  float* row = arena->take(nodes.size() * stride);
  // Of all nodes at once, since neighbours that they share are computed once.
  std::vector<const float*> located(step.sources.size() * nodes.size());
  for (size_t s = 0; s < step.sources.size(); ++s) {
    stored_rows(step.sources[s], nodes, arena, located.data() + s * nodes.size());
  }
  std::vector<const float*> sources(step.sources.size() * kBlockRows);
  for (size_t first = 0; first < nodes.size(); first += kBlockRows) {
    const size_t count = std::min(kBlockRows, nodes.size() - first);
    for (size_t s = 0; s < step.sources.size(); ++s) {
      std::copy_n(located.data() + s * nodes.size() + first, count, sources.data() + s * kBlockRows);
    }
    run_block(step, count, sources.data(), row, stride);
    for (size_t i = 0; i < count; ++i, row += stride) {
      std::fill(row + spec.width, row + stride, 0.0f);
      out[first + i] = row;
    }
  }
}

void Engine::run_block(const RowsStep& step, size_t count, const float* const* sources, float* out,
                       size_t stride) const {
  static thread_local std::vector<Scratch> memory;
  static thread_local std::vector<float*> buffers;
  memory.resize(std::max(memory.size(), step.buffers.size()));
  buffers.resize(step.buffers.size());
  for (size_t b = 0; b < step.buffers.size(); ++b) {
    buffers[b] = memory[b].reserve(kBlockRows * row_stride(step.buffers[b]));
  }
  run_rows(step, count, sources, buffers.data());
  const uint32_t sink = step.sinks[0].reg;
  const Register& reg = step.registers[sink];
  for (size_t i = 0; i < count; ++i, out += stride) {
    const float* row = sink < step.sources.size()
                           ? sources[sink * kBlockRows + i]
                           : buffers[reg.buffer] + i * row_stride(step.buffers[reg.buffer]) + reg.column;
    std::memcpy(out, row, reg.width * sizeof(float));
  }
}

void Engine::stored_rows_of_many(uint32_t value, std::span<const uint32_t> nodes, Scratch* memory,
                                 std::vector<const float*>* out) const {
  out->resize(nodes.size());
  if (is_stored(value)) return stored_rows(value, nodes, nullptr, out->data());
  const size_t stride = row_stride(program_.values[value].width);
  float* rows = memory->reserve(nodes.size() * stride);
  pool_->run(blocks_of(nodes.size()), kLong, [&](size_t block) {
    static thread_local RowArena arena;
    arena.clear();
    const size_t first = block * kBlockRows, count = std::min(kBlockRows, nodes.size() - first);
    const float* found[kBlockRows];
    stored_rows(value, nodes.subspan(first, count), &arena, found);
    for (size_t i = 0; i < count; ++i) {
      (*out)[first + i] = rows + (first + i) * stride;
      std::memcpy(rows + (first + i) * stride, found[i], stride * sizeof(float));
    }
  });
}

Rows Engine::all_stored_rows(uint32_t value, const Whole* whole, Table* table) const {
  if (is_stored(value)) return rows(value);
  if (whole != nullptr && (*whole)[value].count > 0) return (*whole)[value];
  const Value& spec = program_.values[value];
  const IdMap& ids = graph_.nodes[spec.node_type].ids;
  *table = Table(spec.width);
  table->resize(ids.capacity());
  pool_->run(blocks_of(ids.capacity()), kLong, [&](size_t block) {
    static thread_local RowArena arena;
    arena.clear();
    arena.whole = whole;
    const size_t first = block * kBlockRows, count = std::min(kBlockRows, ids.capacity() - first);
    uint32_t nodes[kBlockRows];
    const float* found[kBlockRows];
    std::iota(nodes, nodes + count, static_cast<uint32_t>(first));
    stored_rows(value, {nodes, count}, &arena, found);
    for (size_t i = 0; i < count; ++i) {
      if (ids.in_use(nodes[i])) table->write(nodes[i], found[i]);
    }
  });
  return {table->row(0), table->stride(), spec.width, table->rows()};
}

// The rows of the sources of changed edges, as they were; the places of sources that changed are left empty. `slots[0]`
// must be at the sources.
void Engine::find_edge_sources(const PropagateStep& step, const Prepared& prepared) {
  Scratches& s = *scratches_;
  const auto& edges = prepared.edges[direction_of(graph_, step)];
  const auto& slots = s.slots[0][program_.values[step.input].node_type];
  grow(&s.edge_sources, edges.size());
  if (is_stored(step.input)) {
    for (size_t e = 0; e < edges.size(); ++e) s.edge_sources[e] = stored_row(step.input, edges[e].source);
    return;
  }
  s.edge_nodes.clear();
  for (const DirectedChange& change : edges) {
    if (slots[change.source] == kNoIndex) s.edge_nodes.push_back(change.source);
  }
  std::sort(s.edge_nodes.begin(), s.edge_nodes.end());
  s.edge_nodes.erase(std::unique(s.edge_nodes.begin(), s.edge_nodes.end()), s.edge_nodes.end());
  stored_rows_of_many(step.input, s.edge_nodes, &s.edge_memory, &s.edge_rows);
  for (size_t e = 0; e < edges.size(); ++e) {
    if (slots[edges[e].source] != kNoIndex) continue;
    const auto found = std::lower_bound(s.edge_nodes.begin(), s.edge_nodes.end(), edges[e].source);
    s.edge_sources[e] = s.edge_rows[static_cast<size_t>(found - s.edge_nodes.begin())];
  }
}

void Engine::predict_kept(std::span<const uint32_t> nodes, float* out, size_t output) const {
  static thread_local RowArena arena;
  static thread_local std::vector<const float*> sources;
  const size_t width = output_width(output);
  const auto [kept, position] = output_at(output);
  const RowsStep* step = kept ? nullptr : &program_.on_demand[position];
  sources.resize((step == nullptr ? 1 : step->sources.size()) * kBlockRows);
  for (size_t first = 0; first < nodes.size(); first += kBlockRows) {
    arena.clear();
    const auto block = nodes.subspan(first, std::min(kBlockRows, nodes.size() - first));
    if (step == nullptr) {
      stored_rows(position, block, &arena, sources.data());
      for (size_t i = 0; i < block.size(); ++i) std::memcpy(out + i * width, sources[i], width * sizeof(float));
    } else {
      for (size_t s = 0; s < step->sources.size(); ++s) {
        stored_rows(step->sources[s], block, &arena, sources.data() + s * kBlockRows);
      }
      run_block(*step, block.size(), sources.data(), out, width);
    }
    out += block.size() * width;
  }
}

void Engine::predict_prepared(const Prepared& prepared, std::span<const uint32_t> nodes, float* out,
                              size_t output) const {
  tsl::robin_map<uint32_t, size_t, MixHash> where;
  RowArena arena;
  // The rows of one value as they will be, where they lie.
  auto locate = [&](uint32_t value) {
    const Changes& changes = prepared.changes[value];
    where.clear();
    where.reserve(changes.nodes.size());
    for (size_t i = 0; i < changes.nodes.size(); ++i) where[changes.nodes[i]] = i;
    std::vector<const float*> rows(nodes.size());
    std::vector<uint32_t> unchanged;
    for (size_t i = 0; i < nodes.size(); ++i) {
      const auto found = where.find(nodes[i]);
      if (found == where.end()) {
        unchanged.push_back(nodes[i]);
      } else {
        rows[i] = changes.row(found->second);
      }
    }
    std::vector<const float*> stored(unchanged.size());
    stored_rows(value, unchanged, &arena, stored.data());
    for (size_t i = 0, next = 0; i < rows.size(); ++i) {
      if (rows[i] == nullptr) rows[i] = stored[next++];
    }
    return rows;
  };
  const size_t width = output_width(output);
  const auto [kept, position] = output_at(output);
  if (kept) {
    for (const float* row : locate(position)) {
      std::memcpy(out, row, width * sizeof(float));
      out += width;
    }
    return;
  }
  const RowsStep& step = program_.on_demand[position];
  std::vector<std::vector<const float*>> located;
  for (uint32_t source : step.sources) located.push_back(locate(source));
  std::vector<const float*> sources(step.sources.size() * kBlockRows);
  for (size_t first = 0; first < nodes.size(); first += kBlockRows) {
    const size_t count = std::min(kBlockRows, nodes.size() - first);
    for (size_t s = 0; s < step.sources.size(); ++s) {
      std::copy_n(located[s].data() + first, count, sources.data() + s * kBlockRows);
    }
    run_block(step, count, sources.data(), out + first * width, width);
  }
}

}  // namespace livegnn
