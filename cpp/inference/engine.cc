#include "inference/engine.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <numeric>

#include "inference/edge_view.h"
#include "inference/engine_scratch.h"
#include "inference/lazy.h"
#include "program/kernels.h"
#include "program/row_operators.h"
#include "threads/parallel.h"

namespace livegnn {
namespace {

uint64_t next_serial() {
  static std::atomic<uint64_t> last{0};
  return ++last;
}

}  // namespace

Engine::Engine(const Graph& graph, Program program, size_t threads, const std::string& directory, size_t keep_degree)
    : graph_(graph),
      program_(std::move(program)),
      has_direction_(2 * graph.edges.size()),
      residents_(2 * graph.edges.size()),
      keep_degree_(keep_degree),
      sums_(program_.contexts.size()),
      sum_errors_(program_.contexts.size()),
      scales_(program_.propagations.size()),
      means_(program_.propagations.size()),
      shrunk_(program_.propagations.size(), 1.0f),
      pool_(std::make_unique<ThreadPool>(threads)),
      scratches_(std::make_unique<Scratches>()),
      serial_(next_serial()) {
  std::fill_n(has_direction_.begin(), graph.edges.size(), true);
  for (const PropagateStep& step : program_.propagations) has_direction_[direction_of(graph, step)] = true;
  for (const ContextStep& step : program_.contexts) has_direction_[direction_of(graph, step)] = true;
  for (PropagateStep& step : program_.propagations) {
    if (step.aggregate != Aggregate::kMax || step.message != kNoIndex) continue;
    Value counts = program_.values[step.output];  // beside the maxima, since they are read together
    step.counts = static_cast<uint32_t>(program_.values.size());
    program_.values.push_back(counts);
  }
  partial_.resize(program_.values.size(), -1);
  for (size_t p = 0; keep_degree > 0 && p < program_.propagations.size(); ++p) {
    const PropagateStep& step = program_.propagations[p];
    partial_[step.output] = static_cast<int32_t>(p);
    if (step.counts != kNoIndex) partial_[step.counts] = static_cast<int32_t>(p);
  }
  std::vector<size_t> widths;
  for (const Value& value : program_.values) {
    const bool kept = !value.features && value.derived < 0;
    widths.resize(std::max<size_t>(widths.size(), kept ? value.slab + 1 : 0));
    columns_.push_back(kept ? static_cast<uint32_t>(widths[value.slab]) : 0);
    if (kept) widths[value.slab] += row_stride(value.width);
    zeros_.resize(std::max(zeros_.size(), row_stride(2 * value.width)));
  }
  for (const Graph::EdgeType& edges : graph.edges) {
    zeros_.resize(std::max(zeros_.size(), edges.features.table().stride()));
  }
  for (size_t width : widths) slabs_.emplace_back(width, directory);
  for (const PropagateStep& step : program_.propagations) errors_.emplace_back(error_width(step), directory);
  for (size_t p = 0; p < program_.propagations.size(); ++p) {
    const PropagateStep& step = program_.propagations[p];
    const size_t width = step.aggregate == Aggregate::kSum ? program_.values[step.output].width : 0;
    inverses_.emplace_back(row_stride(width));
    scales_[p].resize(width);
    invert_scales(scales_[p], inverses_[p].data());
  }
  for (const RowsStep& step : program_.rows) {
    double cost = kRowCost;
    for (const Op& op : step.ops) cost += 2 * kFlopCost * multiplications(step, op);
    row_costs_.push_back(cost);
  }
  for (auto& slots : scratches_->slots) slots.resize(graph.nodes.size());
  scratches_->removed.resize(graph.nodes.size());
}

Engine::~Engine() = default;

Rows Engine::rows(uint32_t value) const {
  const Value& spec = program_.values[value];
  if (!is_stored(value)) return {nullptr, row_stride(spec.width), spec.width, 0};
  const Table& table = spec.features ? graph_.nodes[spec.node_type].features : slabs_[spec.slab];
  return {const_cast<float*>(table.row(0)) + columns_[value], table.stride(), spec.width, table.rows()};
}

const float* Engine::stored_row(uint32_t value, uint32_t node) const {
  Rows all = rows(value);
  return node < all.count ? all.row(node) : zeros_.data();
}

void Engine::prepare(const Delta& delta, Prepared* prepared) {
  forget_units(prepared);
  prepare_steps(delta, program_.order.size(), prepared);
  if (prepared->lost != kNoIndex || !is_measured_after(delta, *prepared)) return;
  if (!measure_after(delta, prepared)) return;
  const NewUnits units(this, *prepared);
  prepare_steps(delta, program_.order.size(), prepared);
}

void Engine::prepare_steps(const Delta& delta, size_t steps, Prepared* prepared) {
  try {
    compute_steps(delta, steps, prepared);
  } catch (...) {
    scratches_->reset();
    throw;
  }
}

void Engine::compute_steps(const Delta& delta, size_t steps, Prepared* prepared) {
  Scratches& scratch = *scratches_;
  for (size_t n = 0; n < graph_.nodes.size(); ++n) {
    for (auto& slots : scratch.slots) {
      if (slots[n].size() < delta.nodes[n].capacity) slots[n].resize(delta.nodes[n].capacity, kNoIndex);
    }
    if (scratch.removed[n].size() < delta.nodes[n].capacity) scratch.removed[n].resize(delta.nodes[n].capacity, 0);
    for (uint32_t node : delta.nodes[n].removed) scratch.removed[n][node] = 1;
  }
  prepared->changes.resize(program_.values.size());
  for (size_t v = 0; v < program_.values.size(); ++v) {
    Changes& changes = prepared->changes[v];
    changes.nodes.clear();
    changes.positions.clear();
    changes.reached.clear();
    changes.external = nullptr;
    changes.stride = row_stride(program_.values[v].width);
  }
  prepared->marked = false;
  prepared->lost = kNoIndex;
  prepared->changed.clear();
  prepared->affected = prepared->edges_touched = prepared->nodes_touched = prepared->recomputed = 0;

  prepare_features(delta, prepared);
  prepare_edges(delta, prepared);
  prepare_moves(delta, prepared);
  bool output_done = false;
  for (size_t i = 0; i < steps; ++i) {
    const Step step = program_.order[i];
    if (has_lost(prepared)) break;
    if (step.kind == Step::kContext) {
      prepare_context(program_.contexts[step.position], step.position, delta, prepared);
    } else if (step.kind == Step::kRows) {
      prepare_rows(program_.rows[step.position], false, row_costs_[step.position], delta, prepared);
    } else if (program_.propagations[step.position].message != kNoIndex) {
      prepare_messages(program_.propagations[step.position], step.position, prepared);
    } else if (program_.propagations[step.position].aggregate == Aggregate::kMax) {
      prepare_max(program_.propagations[step.position], prepared);
    } else {
      const Reader reader = i + 1 < steps || steps == program_.order.size() ? reader_of(i) : Reader{};
      prepare_sum(program_.propagations[step.position], step.position, reader, delta, prepared);
      if (reader.step == nullptr) continue;
      if (reader.output) {
        output_done = true;
      } else {
        ++i;
      }
    }
  }
  if (has_lost(prepared) || steps < program_.order.size()) {
    // What comes of the prediction, nobody knows.
  } else if (program_.output_kept) {
    prepared->changed = prepared->changes[program_.output].nodes;
  } else if (!output_done) {
    prepare_rows(program_.on_demand[program_.output], true, kRowCost, delta, prepared);
  }
  has_lost(prepared);
  for (size_t n = 0; n < graph_.nodes.size(); ++n) {
    for (uint32_t node : delta.nodes[n].removed) scratch.removed[n][node] = 0;
  }
  scratch.settle(prepared->need());
  batch_bytes_ = scratch.bytes();
}

void Engine::lose(uint32_t node_type, uint32_t node) {
  const uint64_t here = uint64_t{node_type} << 32 | node;
  uint64_t first = lost_.load(std::memory_order_relaxed);
  while (here < first && !lost_.compare_exchange_weak(first, here, std::memory_order_relaxed)) continue;
}

void Engine::lose_row(uint32_t value, uint32_t node) {
  if (!guard_) return;
  static thread_local RowArena arena;
  arena.clear();
  const float* before;
  stored_rows(value, {&node, 1}, &arena, &before);
  if (kernels().finite(program_.values[value].width, before)) lose(program_.values[value].node_type, node);
}

// Whether the steps so far have lost a row; tells the owner of the batch.
bool Engine::has_lost(Prepared* prepared) {
  const uint64_t lost = lost_.exchange(kNothingLost, std::memory_order_relaxed);
  if (lost != kNothingLost) {
    prepared->lost = static_cast<uint32_t>(lost);
    prepared->lost_type = static_cast<uint32_t>(lost >> 32);
  }
  return prepared->lost != kNoIndex;
}

// The rows step that follows a propagation, if it reads what comes out of it.
Engine::Reader Engine::reader_of(size_t position) const {
  const uint32_t aggregate = program_.propagations[program_.order[position].position].output;
  Reader reader;
  if (position + 1 == program_.order.size()) {
    if (program_.output_kept) return {};
    reader = {&program_.on_demand[program_.output], true, kRowCost};
  } else if (program_.order[position + 1].kind == Step::kRows) {
    const uint32_t next = program_.order[position + 1].position;
    reader = {&program_.rows[next], false, row_costs_[next]};
  } else {
    return {};
  }
  const auto& sources = reader.step->sources;
  return std::find(sources.begin(), sources.end(), aggregate) == sources.end() ? Reader{} : reader;
}

void Engine::prepare_features(const Delta& delta, Prepared* prepared) {
  for (size_t v = 0; v < program_.values.size(); ++v) {
    const Value& value = program_.values[v];
    if (!value.features) continue;
    const NodeDelta& nodes = delta.nodes[value.node_type];
    Changes& changes = prepared->changes[v];
    changes.external = nodes.features.data();
    for (size_t i = 0; i < nodes.featured.size(); ++i) {
      const float* row = nodes.features.data() + i * changes.stride;
      if (!kernels().differs(value.width, stored_row(static_cast<uint32_t>(v), nodes.featured[i]), row)) continue;
      changes.nodes.push_back(nodes.featured[i]);
      changes.positions.push_back(static_cast<uint32_t>(i));
    }
  }
}

// Leaves out what came out as it was; the rows stay where they are.
void Engine::keep_changed(Changes* changes, const std::vector<uint32_t>& nodes, const std::vector<uint8_t>& keep) {
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (!keep[i]) continue;
    changes->nodes.push_back(nodes[i]);
    changes->positions.push_back(static_cast<uint32_t>(i));
  }
}

std::vector<int64_t> Engine::changed_ids(const Delta& delta, const Prepared& prepared) const {
  const NodeDelta& nodes = delta.nodes[output_type()];
  const IdMap& ids = graph_.nodes[output_type()].ids;
  std::vector<uint32_t>& slots = scratches_->slots[0][output_type()];
  std::vector<int64_t> changed(prepared.changed.size());
  if (nodes.added.empty()) {
    for (size_t i = 0; i < changed.size(); ++i) changed[i] = ids.id_of(prepared.changed[i]);
    return changed;
  }
  for (uint32_t i = 0; i < nodes.added.size(); ++i) slots[nodes.added[i]] = i;
  for (size_t i = 0; i < changed.size(); ++i) {
    const uint32_t node = prepared.changed[i], slot = slots[node];
    changed[i] = slot == kNoIndex ? ids.id_of(node) : nodes.added_ids[slot];
  }
  for (uint32_t node : nodes.added) slots[node] = kNoIndex;
  return changed;
}

void Engine::reserve(const Delta& delta, const Prepared& prepared) {
  try {
    reserve_moves(delta, prepared);
    for (size_t v = 0; v < program_.values.size(); ++v) {
      const Value& value = program_.values[v];
      if (value.features || !is_stored(static_cast<uint32_t>(v))) continue;
      slabs_[value.slab].prepare(delta.nodes[value.node_type].capacity);
    }
    for (const PropagateStep& step : program_.propagations) {
      if (step.aggregate != Aggregate::kSum || partial_[step.output] >= 0) continue;
      const auto p = static_cast<size_t>(&step - program_.propagations.data());
      errors_[p].prepare(delta.nodes[program_.values[step.output].node_type].capacity);
    }
    for (size_t c = 0; c < sums_.size(); ++c) {
      if (program_.contexts[c].kind != ContextKind::kSum) continue;
      const size_t needed = delta.nodes[program_.values[program_.contexts[c].output].node_type].capacity;
      // Only the one writer reads them.
      for (std::vector<double>* each : {&sums_[c], &sum_errors_[c]}) {
        if (needed > each->capacity()) each->reserve(needed + needed / 2);
      }
    }
    if (prepared.marked) lazy_->reserve(delta, prepared);
  } catch (...) {
    release();
    throw;
  }
}

void Engine::release() noexcept {
  for (Table& slab : slabs_) slab.settle();
  for (Table& errors : errors_) errors.settle();
  for (Residents& residents : residents_) residents.settle();
  if (lazy_ != nullptr) lazy_->release();
}

void Engine::commit(const Delta& delta, const Prepared& prepared) noexcept {
  commit_units(prepared);
  if (keep_degree_ > 0) commit_moves(delta, prepared);
  for (size_t v = 0; v < program_.values.size(); ++v) {
    const Value& value = program_.values[v];
    if (value.features || !is_stored(static_cast<uint32_t>(v))) continue;
    const NodeDelta& nodes = delta.nodes[value.node_type];
    Table& slab = slabs_[value.slab];
    if (slab.rows() < nodes.capacity) slab.resize(nodes.capacity);
    Rows out = rows(static_cast<uint32_t>(v));
    for (uint32_t node : nodes.removed) std::memset(out.row(node), 0, out.width * sizeof(float));
    const Changes& changes = prepared.changes[v];
    const size_t count = changes.nodes.size();
    pool_->run(blocks_of(count), kMessageCost * static_cast<double>(count), [&](size_t block) {
      const size_t first = block * kBlockRows, end = std::min(count, first + kBlockRows);
      for (size_t i = first; i < end; ++i) touch(out.row(changes.nodes[i]));
      for (size_t i = first; i < end; ++i) {
        std::memcpy(out.row(changes.nodes[i]), changes.row(i), out.width * sizeof(float));
      }
    });
  }
  for (size_t p = 0; p < program_.propagations.size(); ++p) {
    const PropagateStep& step = program_.propagations[p];
    if (step.aggregate != Aggregate::kSum || partial_[step.output] >= 0) continue;
    const NodeDelta& nodes = delta.nodes[program_.values[step.output].node_type];
    errors_[p].resize(std::max(errors_[p].rows(), nodes.capacity));
    commit_bounds(p, prepared);
    for (uint32_t node : nodes.removed) errors_[p].clear_row(node);
    const Changes& changes = prepared.changes[step.output];
    for (size_t i = 0; i < changes.reached.size(); ++i) {
      errors_[p].write(changes.reached[i], changes.errors.data() + i * errors_[p].width());
    }
  }
  for (size_t c = 0; c < program_.contexts.size(); ++c) {
    const ContextStep& step = program_.contexts[c];
    if (step.kind != ContextKind::kSum) continue;
    const NodeDelta& nodes = delta.nodes[program_.values[step.output].node_type];
    sums_[c].resize(std::max(sums_[c].size(), nodes.capacity));
    sum_errors_[c].resize(sums_[c].size());
    for (uint32_t node : nodes.removed) sums_[c][node] = sum_errors_[c][node] = 0;
    const Changes& changes = prepared.changes[step.output];
    for (size_t i = 0; i < changes.nodes.size(); ++i) {
      sums_[c][changes.nodes[i]] = changes.sums[changes.positions[i]];
      sum_errors_[c][changes.nodes[i]] = changes.sum_errors[changes.positions[i]];
    }
  }
  if (prepared.marked) lazy_->commit(delta, prepared);
}

void Engine::evaluate(size_t on_demand, float* out) {
  const RowsStep& step = program_.on_demand[on_demand];
  const size_t width = step.registers[step.sinks[0].reg].width;
  const size_t capacity = graph_.nodes[step.node_type].ids.capacity();
  Whole whole(program_.values.size());
  std::vector<Table> tables;
  complete(&whole, &tables);
  pool_->run(blocks_of(capacity), kLong, [&](size_t block) {
    static thread_local RowArena arena;
    static thread_local std::vector<const float*> sources;
    arena.clear();
    arena.whole = &whole;
    const size_t first = block * kBlockRows, count = std::min(kBlockRows, capacity - first);
    uint32_t nodes[kBlockRows];
    std::iota(nodes, nodes + count, static_cast<uint32_t>(first));
    sources.resize(step.sources.size() * kBlockRows);
    for (size_t s = 0; s < step.sources.size(); ++s) {
      stored_rows(step.sources[s], {nodes, count}, &arena, sources.data() + s * kBlockRows);
    }
    run_block(step, count, sources.data(), out + first * width, width);
  });
}

bool Engine::load(uint32_t value, const float* from, size_t count, size_t width) {
  const Value& spec = program_.values[value];
  const size_t expected = partial_[value] >= 0
                              ? residents_[direction_of(graph_, program_.propagations[partial_[value]])].nodes.size()
                              : graph_.nodes[spec.node_type].ids.capacity();
  if (width != spec.width || count != expected) return false;
  slabs_[spec.slab].resize(count);
  Rows out = kept_rows(value);
  for (size_t i = 0; i < count; ++i) std::memcpy(out.row(i), from + i * width, width * sizeof(float));
  return true;
}

}  // namespace livegnn
