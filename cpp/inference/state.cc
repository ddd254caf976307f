#include "inference/state.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <numeric>
#include <utility>

#include "inference/edges/edge_view.h"
#include "inference/evaluation/blocks.h"
#include "inference/propagation/prepared_batch.h"
#include "inference/rounding/error_bounds.h"
#include "program/steepness.h"
#include "threads/parallel.h"

namespace livegnn {
namespace {

// Adds a value for the counts of each maximum of rows; both share a slab because they are read together.
Program with_counts(Program program) {
  for (PropagateStep& step : program.propagations) {
    if (step.aggregate != Aggregate::kMax || step.message != kNoIndex) continue;
    const Value counts = program.values[step.output];
    step.counts = static_cast<uint32_t>(program.values.size());
    program.values.push_back(counts);
  }
  return program;
}

uint64_t next_serial() {
  static std::atomic<uint64_t> last{0};
  return ++last;
}

}  // namespace

State::State(const Graph& graph, Program given, const std::string& directory, size_t keep_degree)
    : graph(graph),
      program(with_counts(std::move(given))),
      keep_degree(keep_degree),
      serial(next_serial()),
      partial(program.values.size(), -1),
      has_direction(2 * graph.edges.size()),
      kept_nodes(2 * graph.edges.size()),
      sums(program.contexts.size()),
      sum_errors(program.contexts.size()),
      scales(program.propagations.size()),
      steep(find_steep(program)) {
  std::fill_n(has_direction.begin(), graph.edges.size(), true);
  for (const PropagateStep& step : program.propagations) has_direction[direction_of(graph, step)] = true;
  for (const ContextStep& step : program.contexts) has_direction[direction_of(graph, step)] = true;
  std::vector<size_t> widths;
  for (const Value& value : program.values) {
    const bool kept = !value.features && value.derived < 0;
    widths.resize(std::max<size_t>(widths.size(), kept ? value.slab + 1 : 0));
    columns.push_back(kept ? static_cast<uint32_t>(widths[value.slab]) : 0);
    if (kept) widths[value.slab] += row_stride(value.width);
    zeros.resize(std::max(zeros.size(), row_stride(2 * value.width)));
  }
  for (const Graph::EdgeType& edges : graph.edges) {
    zeros.resize(std::max(zeros.size(), edges.features.table().stride()));
  }
  for (size_t width : widths) slabs.emplace_back(width, directory);
  for (size_t p = 0; p < program.propagations.size(); ++p) {
    const PropagateStep& step = program.propagations[p];
    errors.emplace_back(error_width(program, step), directory);
    scales[p].begin(step.aggregate == Aggregate::kSum ? program.values[step.output].width : 0);
    if (keep_degree == 0) continue;
    partial[step.output] = static_cast<int32_t>(p);
    if (step.counts != kNoIndex) partial[step.counts] = static_cast<int32_t>(p);
  }
}

Rows State::rows(uint32_t value) const {
  const Value& spec = program.values[value];
  if (!is_stored(value)) return {nullptr, row_stride(spec.width), spec.width, 0};
  const Table& table = spec.features ? graph.nodes[spec.node_type].features : slabs[spec.slab];
  return {const_cast<float*>(table.row(0)) + columns[value], table.stride(), spec.width, table.rows()};
}

Rows State::kept_rows(uint32_t value) const {
  if (partial[value] < 0) return rows(value);
  const Value& spec = program.values[value];
  const Table& slab = slabs[spec.slab];
  return {const_cast<float*>(slab.row(0)) + columns[value], slab.stride(), spec.width, slab.rows()};
}

uint32_t State::slot_of(uint32_t value, uint32_t node) const {
  if (partial[value] < 0) return node;
  return kept_nodes[direction_of(graph, program.propagations[static_cast<size_t>(partial[value])])].slot(node);
}

uint32_t State::node_at(const PropagateStep& step, size_t slot) const {
  if (partial[step.output] < 0) return static_cast<uint32_t>(slot);
  return kept_nodes[direction_of(graph, step)].node(slot);
}

std::vector<uint32_t> State::kept_nodes_of(size_t direction) const { return kept_nodes[direction].sorted(); }

std::vector<uint32_t> State::slots(uint32_t value) const {
  if (partial[value] < 0) {
    std::vector<uint32_t> slots(rows(value).count);
    std::iota(slots.begin(), slots.end(), 0u);
    return slots;
  }
  const size_t direction = direction_of(graph, program.propagations[static_cast<size_t>(partial[value])]);
  std::vector<uint32_t> slots = kept_nodes_of(direction);
  for (uint32_t& node : slots) node = kept_nodes[direction].slot(node);
  return slots;
}

void State::clear() {
  for (size_t d = 0; keep_degree > 0 && d < kept_nodes.size(); ++d) {
    if (!has_direction[d]) continue;
    kept_nodes[d].assign(graph.nodes[receiver_type(graph, d)].ids, view_at(graph, d), keep_degree);
  }
  for (uint32_t v = 0; v < program.values.size(); ++v) {
    const Value& value = program.values[v];
    if (value.features || !is_stored(v)) continue;
    slabs[value.slab].resize(0);
    slabs[value.slab].resize(graph.nodes[value.node_type].ids.capacity());
  }
}

bool State::is_laid_out_as(const State& other) const {
  auto same = [](const auto& ours, const auto& theirs, const auto& equal) {
    return std::equal(ours.begin(), ours.end(), theirs.begin(), theirs.end(), equal);
  };
  auto same_value = [](const Value& a, const Value& b) {
    return a.width == b.width && a.node_type == b.node_type && a.slab == b.slab && a.derived == b.derived &&
           a.features == b.features;
  };
  auto same_width = [](const Table& a, const Table& b) { return a.width() == b.width(); };
  auto same_nodes = [](const auto& a, const auto& b) { return a.ids.capacity() == b.ids.capacity(); };
  return keep_degree == other.keep_degree && has_direction == other.has_direction && partial == other.partial &&
         same(program.values, other.program.values, same_value) && same(slabs, other.slabs, same_width) &&
         same(errors, other.errors, same_width) && sums.size() == other.sums.size() &&
         same(graph.nodes, other.graph.nodes, same_nodes);
}

bool State::take(State* from) noexcept {
  if (!is_laid_out_as(*from)) return false;
  slabs.swap(from->slabs);
  kept_nodes.swap(from->kept_nodes);
  errors.swap(from->errors);
  sums.swap(from->sums);
  sum_errors.swap(from->sum_errors);
  scales.swap(from->scales);
  std::swap(moments, from->moments);
  return true;
}

void State::reserve(const Delta& delta, const BatchChanges& batch) {
  for (size_t d = 0; keep_degree > 0 && d < kept_nodes.size(); ++d) {
    if (has_direction[d]) kept_nodes[d].reserve(batch.moves[d], delta.nodes[receiver_type(graph, d)].capacity);
  }
  for (uint32_t v = 0; v < program.values.size(); ++v) {
    const Value& value = program.values[v];
    if (value.features || !is_stored(v)) continue;
    slabs[value.slab].prepare(delta.nodes[value.node_type].capacity);
  }
  for (size_t p = 0; p < program.propagations.size(); ++p) {
    const PropagateStep& step = program.propagations[p];
    const Value& value = program.values[step.output];
    size_t rows = delta.nodes[value.node_type].capacity;
    if (partial[step.output] >= 0) {
      const size_t direction = direction_of(graph, step);
      rows = kept_nodes[direction].size() + batch.moves[direction].entering.size();
      slabs[value.slab].prepare(rows);
    }
    if (step.aggregate == Aggregate::kSum) errors[p].prepare(rows);
  }
  for (size_t c = 0; c < sums.size(); ++c) {
    if (program.contexts[c].kind != ContextKind::kSum) continue;
    const size_t needed = delta.nodes[program.values[program.contexts[c].output].node_type].capacity;
    // Only the one writer reads these.
    for (std::vector<double>* each : {&sums[c], &sum_errors[c]}) {
      if (needed > each->capacity()) each->reserve(needed + needed / 2);
    }
  }
}

void State::release() noexcept {
  for (Table& slab : slabs) slab.settle();
  for (Table& table : errors) table.settle();
  for (KeptNodes& each : kept_nodes) each.settle();
}

void State::commit(const Delta& delta, const PreparedBatch& prepared, ThreadPool* pool) noexcept {
  const BatchChanges& batch = prepared.changes;
  commit_scales(prepared.scales, prepared.effects, this);
  // Slots first, then the rows of the nodes that have one.
  for (size_t d = 0; keep_degree > 0 && d < kept_nodes.size(); ++d) {
    if (has_direction[d]) kept_nodes[d].move(batch.moves[d], delta.nodes[receiver_type(graph, d)].capacity);
  }
  commit_rows(delta, batch, pool);
  commit_errors(delta, batch, prepared.scales);
  commit_sums(delta, batch);
}

void State::commit_rows(const Delta& delta, const BatchChanges& batch, ThreadPool* pool) noexcept {
  for (uint32_t v = 0; v < program.values.size(); ++v) {
    const Value& value = program.values[v];
    if (value.features || value.derived >= 0) continue;
    const NodeDelta& nodes = delta.nodes[value.node_type];
    const Changes& changes = batch.of(v);
    Table& slab = slabs[value.slab];
    if (partial[v] >= 0) {
      const size_t direction = direction_of(graph, program.propagations[static_cast<size_t>(partial[v])]);
      slab.resize(kept_nodes[direction].size());
      const Rows out = kept_rows(v);
      for (size_t i = 0; i < changes.size(); ++i) {
        const uint32_t slot = kept_nodes[direction].slot(changes.nodes()[i]);
        if (slot != kNoIndex) std::memcpy(out.row(slot), changes.row(i), out.width * sizeof(float));
      }
      continue;
    }
    if (slab.rows() < nodes.capacity) slab.resize(nodes.capacity);
    const Rows out = rows(v);
    for (uint32_t node : nodes.removed) std::memset(out.row(node), 0, out.width * sizeof(float));
    const size_t count = changes.size();
    pool->run(blocks_of(count), kMessageCost * static_cast<double>(count), [&](size_t block) {
      const size_t first = block * kBlockRows, end = std::min(count, first + kBlockRows);
      for (size_t i = first; i < end; ++i) touch(out.row(changes.nodes()[i]));
      for (size_t i = first; i < end; ++i) {
        std::memcpy(out.row(changes.nodes()[i]), changes.row(i), out.width * sizeof(float));
      }
    });
  }
}

void State::commit_errors(const Delta& delta, const BatchChanges& batch, const NewScales& fresh) noexcept {
  for (size_t p = 0; p < program.propagations.size(); ++p) {
    const PropagateStep& step = program.propagations[p];
    if (step.aggregate != Aggregate::kSum) continue;
    const bool is_partial = partial[step.output] >= 0;
    const NodeDelta& nodes = delta.nodes[program.values[step.output].node_type];
    const KeptNodes& slots = kept_nodes[direction_of(graph, step)];
    Table& table = errors[p];
    table.resize(is_partial ? slots.size() : std::max(table.rows(), nodes.capacity));
    if (fresh.of(p).shrunk != 1) shrink_bounds(step, fresh.of(p).shrunk, &table);
    if (!is_partial) {
      for (uint32_t node : nodes.removed) table.clear_row(node);
    }
    const Changes& changes = batch.of(step.output);
    for (size_t i = 0; i < changes.reached.size(); ++i) {
      const uint32_t slot = is_partial ? slots.slot(changes.reached[i]) : changes.reached[i];
      if (slot != kNoIndex) table.write(slot, changes.errors.data() + i * table.width());
    }
  }
}

void State::commit_sums(const Delta& delta, const BatchChanges& batch) noexcept {
  for (size_t c = 0; c < program.contexts.size(); ++c) {
    const ContextStep& step = program.contexts[c];
    if (step.kind != ContextKind::kSum) continue;
    const NodeDelta& nodes = delta.nodes[program.values[step.output].node_type];
    sums[c].resize(std::max(sums[c].size(), nodes.capacity));
    sum_errors[c].resize(sums[c].size());
    for (uint32_t node : nodes.removed) sums[c][node] = sum_errors[c][node] = 0;
    const Changes& changes = batch.of(step.output);
    for (size_t i = 0; i < changes.size(); ++i) {
      sums[c][changes.nodes()[i]] = changes.sums[changes.position(i)];
      sum_errors[c][changes.nodes()[i]] = changes.sum_errors[changes.position(i)];
    }
  }
}

}  // namespace livegnn
