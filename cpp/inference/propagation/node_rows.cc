#include "inference/propagation/node_rows.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "program/kernels.h"
#include "threads/parallel.h"

namespace livegnn {

namespace {

bool is_source_of(const RowsStep& step, uint32_t value) {
  return std::find(step.sources.begin(), step.sources.end(), value) != step.sources.end();
}

// Whether no step on rows reads a value and no output is one.
bool is_read_by_messages_alone(const Program& program, uint32_t value) {
  const auto reads = [value](const RowsStep& step) { return is_source_of(step, value); };
  for (size_t i = 0; i <= program.others.size(); ++i) {
    const auto [kept, position] = program.output_at(i);
    if (kept && position == value) return false;
  }
  return std::none_of(program.rows.begin(), program.rows.end(), reads) &&
         std::none_of(program.on_demand.begin(), program.on_demand.end(), reads);
}

}  // namespace

NodeRows::NodeRows(const RowState& state, const RowsStep& step, bool output, ThreadPool* pool)
    : state_(state), step_(step), output_(output), row_cost_(output ? kRowCost : row_cost_of(step)), pool_(*pool) {
  for (const Sink& sink : step.sinks) {
    judged_.push_back(output || !is_read_by_messages_alone(state.program, sink.value));
  }
}

bool NodeRows::reads(uint32_t value) const { return is_source_of(step_, value); }

void NodeRows::initialize(RowState* state, const Whole& whole) const {
  const auto kept = [&](const Sink& sink) { return state_.is_stored(sink.value); };
  if (std::none_of(step_.sinks.begin(), step_.sinks.end(), kept)) return;
  const IdMap& ids = state_.graph.nodes[step_.node_type].ids;
  pool_.run(blocks_of(ids.capacity()), kLong, [&](size_t block) {
    static thread_local RowBuffers memory;
    static thread_local std::vector<const float*> sources;
    static thread_local RowArena arena;
    const size_t first = block * kBlockRows, end = std::min(ids.capacity(), first + kBlockRows);
    arena.clear();
    arena.whole = &whole;
    uint32_t nodes[kBlockRows];
    size_t count = 0;
    for (size_t node = first; node < end; ++node) {
      if (!state_.is_foreign(step_.node_type, static_cast<uint32_t>(node)))
        nodes[count++] = static_cast<uint32_t>(node);
    }
    if (count == 0) return;
    sources.resize(step_.sources.size() * kBlockRows);
    for (size_t s = 0; s < step_.sources.size(); ++s) {
      stored_rows(state_, step_.sources[s], {nodes, count}, &arena, sources.data() + s * kBlockRows);
    }
    float* const* const buffers = memory.open(step_);
    run_rows(state_.program, step_, count, sources.data(), buffers);
    for (const Sink& sink : step_.sinks) {
      if (!kept(sink)) continue;
      const Rows out = state->rows(sink.value);
      for (size_t i = 0; i < count; ++i) {
        if (!ids.in_use(nodes[i])) continue;
        const float* from = row_in(step_, sink.reg, i, sources.data(), buffers);
        std::memcpy(out.row(nodes[i]), from, step_.registers[sink.reg].width * sizeof(float));
      }
    }
  });
}

Scrubbed NodeRows::scrub(uint32_t value, std::span<const uint32_t> nodes) const {
  const auto sink =
      std::find_if(step_.sinks.begin(), step_.sinks.end(), [&](const Sink& s) { return s.value == value; });
  const size_t width = step_.registers[sink->reg].width;
  const Rows kept = state_.rows(value);
  std::vector<double> typical(width);
  for (uint32_t node : nodes) {
    const float* const row = kept.row(node);
    if (!kernels().finite(width, row)) continue;
    for (size_t c = 0; c < width; ++c) typical[c] += std::fabs(row[c]) / static_cast<double>(nodes.size());
  }
  Scrubbed seen;
  RowBuffers memory;
  RowArena arena;
  std::vector<const float*> sources(step_.sources.size() * kBlockRows);
  for (size_t first = 0; first < nodes.size(); first += kBlockRows) {
    const std::span<const uint32_t> block = nodes.subspan(first, std::min(kBlockRows, nodes.size() - first));
    arena.clear();
    for (size_t s = 0; s < step_.sources.size(); ++s) {
      stored_rows(state_, step_.sources[s], block, &arena, sources.data() + s * kBlockRows);
    }
    float* const* const buffers = memory.open(step_);
    run_rows(state_.program, step_, block.size(), sources.data(), buffers);
    for (size_t i = 0; i < block.size(); ++i) {
      const float *const held = kept.row(block[i]), *const row = row_in(step_, sink->reg, i, sources.data(), buffers);
      seen.not_finite += kernels().finite(width, held) ? 0 : 1;
      for (size_t c = 0; c < width; ++c) {
        const double scale = std::max(std::fabs(static_cast<double>(row[c])), typical[c]);
        seen.difference = std::max(seen.difference, part_of(held[c], row[c], scale));
      }
    }
  }
  return seen;
}

// The union of the changes in the sources of a step, and for each source the place of a node's new row. An added node
// has no row yet, so it is always in the union.
void NodeRows::find_reach(uint32_t aggregate, PreparedBatch* prepared) const {
  Workspace& workspace = *prepared->workspace;
  Reach& reach = workspace.reach;
  const bool fused = aggregate != kNoIndex;
  // The frontier has left the places of its targets in the second slots.
  auto& slots = workspace.slots[fused ? 1 : 0][step_.node_type];
  const std::vector<uint32_t>& targets = workspace.row_frontier.targets;
  reach.nodes.clear();
  if (fused) reach.nodes = targets;
  if (reach.positions.size() < step_.sources.size()) reach.positions.resize(step_.sources.size());
  auto enter = [&](uint32_t node) {
    if (slots[node] == kNoIndex) {
      slots[node] = static_cast<uint32_t>(reach.nodes.size());
      reach.nodes.push_back(node);
    }
    return slots[node];
  };
  const NodeDelta& nodes = prepared->changes.delta->nodes[step_.node_type];
  const std::vector<uint8_t>& foreign = workspace.removed[step_.node_type];  // none of the added ones is removed
  reach.added.assign(reach.nodes.size(), 0);
  for (size_t i = 0; i < nodes.added.size(); ++i) {
    if (nodes.added_ids[i] == kNoId || foreign[nodes.added[i]] != 0) continue;
    const uint32_t slot = enter(nodes.added[i]);
    if (slot >= reach.added.size()) reach.added.resize(slot + 1, 0);
    reach.added[slot] = 1;
  }
  for (size_t s = 0; s < step_.sources.size(); ++s) {
    auto& positions = reach.positions[s];
    positions.assign(reach.nodes.size(), kNoIndex);
    if (step_.sources[s] == aggregate) {
      for (uint32_t t = 0; t < targets.size(); ++t) positions[t] = t;
      continue;
    }
    const Changes& source = prepared->of(step_.sources[s]);
    const std::vector<uint32_t>& changed = source.nodes();
    const size_t own = source.own_size();
    positions.reserve(reach.nodes.size() + own);
    for (size_t i = 0; i < own; ++i) {
      if (i + 16 < own) __builtin_prefetch(&slots[changed[i + 16]]);
      const uint32_t slot = enter(changed[i]);
      if (slot == positions.size()) {
        positions.push_back(source.position(i));
      } else {
        positions[slot] = source.position(i);
      }
    }
  }
  for (uint32_t node : reach.nodes) slots[node] = kNoIndex;
  for (size_t s = 0; s < step_.sources.size(); ++s) reach.positions[s].resize(reach.nodes.size(), kNoIndex);
  reach.added.resize(reach.nodes.size(), 0);
}

void NodeRows::open(uint32_t aggregate, PreparedBatch* prepared) const {
  find_reach(aggregate, prepared);
  Reach& reach = prepared->workspace->reach;
  const size_t count = reach.nodes.size();
  reach.stored.clear();
  for (uint32_t source : step_.sources) reach.stored.push_back(state_.rows(source));
  reach.keep.resize(std::max(reach.keep.size(), step_.sinks.size()));
  if (output_) {
    reach.keep[0].assign(count, 0);
    prepared->effects.affected = count;
    return;
  }
  const Program& program = state_.program;
  for (size_t s = 0; s < step_.sinks.size(); ++s) {
    reach.keep[s].assign(count, 0);
    prepared->changes.rows[step_.sinks[s].value].open(count);
    if (program.output_kept && step_.sinks[s].value == program.output) prepared->effects.affected = count;
  }
}

void NodeRows::close(PreparedBatch* prepared) const {
  const Reach& reach = prepared->workspace->reach;
  if (output_) {
    std::vector<uint32_t>& changed = prepared->effects.changed;
    changed.resize(reach.nodes.size());
    size_t at = 0;
    for (size_t i = 0; i < reach.nodes.size(); ++i) {
      changed[at] = reach.nodes[i];
      at += reach.keep[0][i] != 0 ? 1 : 0;
    }
    changed.resize(at);
    return;
  }
  for (size_t s = 0; s < step_.sinks.size(); ++s) {
    prepared->changes.rows[step_.sinks[s].value].keep(reach.nodes, reach.keep[s]);
  }
}

void NodeRows::run_block(size_t first, size_t count, PreparedBatch* prepared) const {
  if (output_) {
    run_output_block(first, count, prepared);
  } else {
    run_rows_block(first, count, prepared);
  }
}

void NodeRows::prepare(PreparedBatch* prepared) const {
  open(kNoIndex, prepared);
  const size_t total = prepared->workspace->reach.nodes.size();
  pool_.run(blocks_of(total), row_cost_ * static_cast<double>(total), [&](size_t block) {
    const size_t first = block * kBlockRows;
    run_block(first, std::min(kBlockRows, total - first), prepared);
  });
  close(prepared);
}

void NodeRows::locate(size_t source, size_t first, size_t count, const PreparedBatch& prepared, RowArena* arena,
                      const float** before, const float** now) const {
  const Reach& reach = prepared.workspace->reach;
  const Changes& changes = prepared.of(step_.sources[source]);
  const uint32_t* const nodes = reach.nodes.data() + first;
  const uint32_t* const positions = reach.positions[source].data() + first;
  if (state_.is_stored(step_.sources[source])) {
    const Rows& stored = reach.stored[source];
    for (size_t i = 0; i < count; ++i) {
      if (before == nullptr && positions[i] != kNoIndex) {
        now[i] = changes.at(positions[i]);
        continue;
      }
      fetch(stored, nodes[i]);
      const float* const old = nodes[i] < stored.count ? stored.row(nodes[i]) : state_.zeros.data();
      if (before != nullptr) before[i] = old;
      now[i] = positions[i] == kNoIndex ? old : changes.at(positions[i]);
    }
    return;
  }
  uint32_t asked[kBlockRows];
  const float* rows[kBlockRows];
  size_t num_asked = 0;
  for (size_t i = 0; i < count; ++i) {
    if (before != nullptr || positions[i] == kNoIndex) asked[num_asked++] = nodes[i];
  }
  stored_rows(state_, step_.sources[source], {asked, num_asked}, arena, rows);
  for (size_t i = 0, next = 0; i < count; ++i) {
    const bool is_asked = before != nullptr || positions[i] == kNoIndex;
    const float* const old = is_asked ? rows[next++] : nullptr;
    if (before != nullptr) before[i] = old;
    now[i] = positions[i] == kNoIndex ? old : changes.at(positions[i]);
  }
}

void NodeRows::run_output_block(size_t first, size_t count, PreparedBatch* prepared) const {
  Reach& reach = prepared->workspace->reach;
  static thread_local RowBuffers old_memory, new_memory;
  static thread_local std::vector<const float*> old_rows, new_rows;
  static thread_local RowArena arena;
  const size_t num_sources = step_.sources.size();
  float *const *const before = old_memory.open(step_), *const *const after = new_memory.open(step_);
  old_rows.resize(num_sources * kBlockRows);
  new_rows.resize(num_sources * kBlockRows);
  arena.clear();
  for (size_t s = 0; s < num_sources; ++s) {
    locate(s, first, count, *prepared, &arena, old_rows.data() + s * kBlockRows, new_rows.data() + s * kBlockRows);
  }
  const Program& program = state_.program;
  const bool guarded = !run_rows(program, step_, count, new_rows.data(), after) && prepared->guarded;
  run_rows(program, step_, count, old_rows.data(), before);
  const uint32_t sink = step_.sinks[0].reg;
  const size_t width = step_.registers[sink].width;
  const Kernels& k = kernels();
  const float *was[kBlockRows], *is[kBlockRows];
  rows_in(step_, sink, count, old_rows.data(), before, was);
  rows_in(step_, sink, count, new_rows.data(), after, is);
  uint8_t* const keep = reach.keep[0].data() + first;
  for (size_t i = 0; i < count; ++i) {
    keep[i] = reach.added[first + i] || k.differs(width, was[i], is[i]);
    if (guarded && !k.finite(width, is[i]) && k.finite(width, was[i])) {
      prepared->lose(step_.node_type, reach.nodes[first + i]);
    }
  }
}

void NodeRows::run_rows_block(size_t first, size_t count, PreparedBatch* prepared) const {
  static thread_local RowBuffers memory;
  static thread_local std::vector<const float*> sources;
  static thread_local RowArena arena;
  float** const buffers = memory.open(step_);
  // A sink that fills a whole buffer is computed in place.
  for (const Sink& sink : step_.sinks) {
    const Register& reg = step_.registers[sink.reg];
    Changes& changes = prepared->changes.rows[sink.value];
    if (sink.reg >= step_.sources.size() && reg.width == step_.buffers[reg.buffer]) {
      buffers[reg.buffer] = changes.row_to_write(first);
    }
  }
  arena.clear();
  sources.resize(step_.sources.size() * kBlockRows);
  for (size_t s = 0; s < step_.sources.size(); ++s) {
    locate(s, first, count, *prepared, &arena, nullptr, sources.data() + s * kBlockRows);
  }
  const bool finite = run_rows(state_.program, step_, count, sources.data(), buffers);
  for (size_t s = 0; s < step_.sinks.size(); ++s) {
    const bool guarded = !finite && prepared->guarded && judged_[s] != 0;
    compare(s, first, count, guarded, sources.data(), buffers, &arena, prepared);
  }
}

void NodeRows::compare(size_t sink, size_t first, size_t count, bool guarded, const float* const* sources,
                       float* const* buffers, RowArena* arena, PreparedBatch* prepared) const {
  const Kernels& k = kernels();
  Reach& reach = prepared->workspace->reach;
  const auto [reg, value] = step_.sinks[sink];
  const size_t width = step_.registers[reg].width;
  const uint32_t* const nodes = reach.nodes.data() + first;
  const Rows old = state_.rows(value);
  Changes& changes = prepared->changes.rows[value];
  float* out = changes.row_to_write(first);
  const bool computed = !state_.is_stored(value);
  const float* olds[kBlockRows];
  if (computed) stored_rows(state_, value, {nodes, count}, arena, olds);
  const float* rows[kBlockRows];
  rows_in(step_, reg, count, sources, buffers, rows);
  constexpr size_t kAhead = 8;
  for (size_t i = 0; i < count; ++i) {
    if (nodes[i] < old.count) touch(old.row(nodes[i]));
  }
  for (size_t i = 0; i < std::min(kAhead, count); ++i) fetch(old, nodes[i]);
  for (size_t i = 0; i < count; ++i, out += changes.stride()) {
    if (i + kAhead < count) fetch(old, nodes[i + kAhead]);
    if (rows[i] != out) std::memcpy(out, rows[i], width * sizeof(float));
    const float* const before = computed ? olds[i] : nodes[i] < old.count ? old.row(nodes[i]) : state_.zeros.data();
    uint8_t& keep = reach.keep[sink][first + i];
    keep = reach.added[first + i] || k.differs(width, before, out);
    if (guarded && keep && !k.finite(width, out) && k.finite(width, before)) prepared->lose(step_.node_type, nodes[i]);
  }
}

}  // namespace livegnn
