#include "inference/rows/row_state.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>

#include "inference/edges/edge_view.h"
#include "inference/evaluation/blocks.h"
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

// Narrower rows take hardly more memory than the slots of all nodes.
constexpr size_t kLeastHeld = 4;

uint64_t next_serial() {
  static std::atomic<uint64_t> last{0};
  return ++last;
}

}  // namespace

RowState::RowState(const Graph& graph, Program given, const std::string& directory, size_t keep_degree)
    : graph(graph),
      program(with_counts(std::move(given))),
      keep_degree(keep_degree),
      serial(next_serial()),
      partial(program.values.size(), -1),
      has_direction(2 * graph.edges.size()),
      kept_nodes(2 * graph.edges.size()) {
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
    if (!value.features || graph.nodes[value.node_type].features.find(value.width) != nullptr) continue;
    throw std::invalid_argument("expected features with " + std::to_string(value.width) + " columns, got none");
  }
  for (const Graph::EdgeType& edges : graph.edges) {
    zeros.resize(std::max(zeros.size(), edges.features.table().stride()));
  }
  for (size_t width : widths) slabs.emplace_back(width, directory);
  held.resize(slabs.size());
  shared_.resize(slabs.size());
  for (size_t s = 0; graph.part != nullptr && keep_degree == 0 && s < slabs.size(); ++s) {
    if (widths[s] >= kLeastHeld) held[s].emplace();
  }
  for (const PropagateStep& step : program.propagations) {
    for (uint32_t value : read_along_edges(program, step)) {
      if (!program.values[value].features && program.values[value].derived < 0) {
        shared_[program.values[value].slab] = true;
      }
    }
  }
  for (size_t p = 0; keep_degree > 0 && p < program.propagations.size(); ++p) {
    const PropagateStep& step = program.propagations[p];
    partial[step.output] = static_cast<int32_t>(p);
    if (step.counts != kNoIndex) partial[step.counts] = static_cast<int32_t>(p);
  }
}

bool RowState::sends(uint32_t node_type, uint32_t node) const {
  for (size_t direction = 0; direction < has_direction.size(); ++direction) {
    if (!has_direction[direction] || sender_type(graph, direction) != node_type) continue;
    const bool forward = direction < graph.edges.size();
    const GraphStore& store = *graph.edges[direction % graph.edges.size()].store;
    // Not by an `EdgeView`: a type that no step reads may have no lists of in-neighbours.
    if ((forward ? store.degree_out(node) : store.degree_in(node)) > 0) return true;
  }
  return false;
}

Rows RowState::rows(uint32_t value) const {
  const Value& spec = program.values[value];
  if (!is_stored(value)) return {nullptr, row_stride(spec.width), spec.width, 0};
  if (spec.features) {
    const NodeFeatures& all = graph.nodes[spec.node_type].features;
    const Table& table = *all.find(spec.width);
    return {const_cast<float*>(table.row(0)), table.stride(), spec.width, all.rows(), all.slots()};
  }
  const Table& table = slabs[spec.slab];
  float* const data = const_cast<float*>(table.row(0)) + columns[value];
  if (held[spec.slab]) {
    return {data, table.stride(), spec.width, held[spec.slab]->capacity(), held[spec.slab]->slots()};
  }
  return {data, table.stride(), spec.width, table.rows()};
}

Rows RowState::kept_rows(uint32_t value) const {
  if (partial[value] < 0) return rows(value);
  const Value& spec = program.values[value];
  const Table& slab = slabs[spec.slab];
  return {const_cast<float*>(slab.row(0)) + columns[value], slab.stride(), spec.width, slab.rows()};
}

uint32_t RowState::slot_of(uint32_t value, uint32_t node) const {
  if (partial[value] < 0) return node;
  return kept_nodes[direction_of(graph, program.propagations[static_cast<size_t>(partial[value])])].slot(node);
}

uint32_t RowState::node_at(const PropagateStep& step, size_t slot) const {
  if (partial[step.output] < 0) return static_cast<uint32_t>(slot);
  return kept_nodes[direction_of(graph, step)].node(slot);
}

std::vector<uint32_t> RowState::kept_nodes_of(size_t direction) const { return kept_nodes[direction].sorted(); }

std::vector<uint32_t> RowState::slots(uint32_t value) const {
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

void RowState::prepare_growth(const GraphGrowth& growth) {
  const size_t directions = 2 * (graph.edges.size() + growth.edge_types.size());
  has_direction.reserve(directions);
  kept_nodes.reserve(directions);
  for (const EdgeTypeSpec& spec : growth.edge_types) {
    zeros.resize(std::max(zeros.size(), Table(spec.width).stride()));
  }
}

void RowState::commit_growth() noexcept {
  add_directions(graph, true, false, &has_direction);
  add_directions(graph, KeptNodes{}, KeptNodes{}, &kept_nodes);
}

void RowState::clear() {
  for (size_t d = 0; keep_degree > 0 && d < kept_nodes.size(); ++d) {
    if (!has_direction[d]) continue;
    kept_nodes[d].assign(graph.nodes[receiver_type(graph, d)].ids, view_at(graph, d), keep_degree);
  }
  for (uint32_t v = 0; v < program.values.size(); ++v) {
    const Value& value = program.values[v];
    if (value.features || !is_stored(v)) continue;
    if (held[value.slab]) {
      if (columns[v] == 0) hold(value.slab, value.node_type);
      continue;
    }
    slabs[value.slab].resize(0);
    slabs[value.slab].resize(graph.nodes[value.node_type].ids.capacity());
  }
}

void RowState::hold(uint32_t slab, uint32_t node_type) {
  const IdMap& ids = graph.nodes[node_type].ids;
  std::vector<uint32_t> nodes;
  for (uint32_t node = 0; node < ids.capacity(); ++node) {
    if (!ids.in_use(node)) continue;
    if (graph.part->owns(node_type, node) || (shared_[slab] && sends(node_type, node))) {
      nodes.push_back(node);
    }
  }
  held[slab]->assign(nodes, ids.capacity(), &slabs[slab]);
}

bool RowState::is_laid_out_as(const RowState& other) const {
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
         same(graph.nodes, other.graph.nodes, same_nodes);
}

void RowState::take(RowState* from) noexcept {
  slabs.swap(from->slabs);
  held.swap(from->held);
  kept_nodes.swap(from->kept_nodes);
}

size_t RowState::count(uint32_t value) const {
  if (partial[value] < 0) return graph.nodes[program.values[value].node_type].ids.capacity();
  return kept_nodes_of(direction_of(graph, program.propagations[static_cast<size_t>(partial[value])])).size();
}

size_t RowState::count_after(const PropagateStep& step, const Delta& delta, const BatchChanges& batch) const {
  if (partial[step.output] < 0) return delta.nodes[program.values[step.output].node_type].capacity;
  const size_t direction = direction_of(graph, step);
  return kept_nodes[direction].size() + batch.moves[direction].entering.size();
}

void RowState::reserve(const Delta& delta, const BatchChanges& batch) {
  for (size_t d = 0; keep_degree > 0 && d < kept_nodes.size(); ++d) {
    if (has_direction[d]) kept_nodes[d].reserve(batch.moves[d], delta.nodes[receiver_type(graph, d)].capacity);
  }
  for (uint32_t v = 0; v < program.values.size(); ++v) {
    const Value& value = program.values[v];
    if (value.features || !is_stored(v) || held[value.slab]) continue;
    slabs[value.slab].prepare(delta.nodes[value.node_type].capacity);
  }
  if (graph.part != nullptr) reserve_held(delta, batch);
  for (const PropagateStep& step : program.propagations) {
    if (partial[step.output] >= 0) slabs[program.values[step.output].slab].prepare(count_after(step, delta, batch));
  }
}

void RowState::reserve_held(const Delta& delta, const BatchChanges& batch) {
  find_loosened(batch);
  std::vector<std::vector<uint32_t>> written(slabs.size());
  std::vector<uint32_t> types(slabs.size());
  for (uint32_t v = 0; v < program.values.size(); ++v) {
    const Value& value = program.values[v];
    if (value.features || !is_stored(v) || !held[value.slab]) continue;
    const std::vector<uint32_t>& nodes = batch.of(v).nodes();
    written[value.slab].insert(written[value.slab].end(), nodes.begin(), nodes.end());
    types[value.slab] = value.node_type;
  }
  for (size_t s = 0; s < slabs.size(); ++s) {
    if (!held[s]) continue;
    const NodeDelta& nodes = delta.nodes[types[s]];
    std::vector<uint32_t> leaving = nodes.removed;
    for (uint32_t node : loosened_[types[s]]) {
      if (shared_[s] && is_foreign(types[s], node) && !sends(types[s], node)) leaving.push_back(node);
    }
    held[s]->prepare(std::move(written[s]), std::move(leaving), nodes.capacity, &slabs[s]);
  }
}

void RowState::find_loosened(const BatchChanges& batch) {
  const size_t node_types = graph.nodes.size();
  loosened_.resize(node_types);
  loosened_next_.assign(node_types, {});
  for (size_t direction = 0; direction < batch.edges.size(); ++direction) {
    const uint32_t sender = sender_type(graph, direction);
    for (const DirectedChange& change : batch.edges[direction]) {
      if (change.had && !change.has && is_foreign(sender, change.source)) {
        loosened_next_[sender].push_back(change.source);
      }
    }
  }
}

void RowState::release() noexcept {
  for (Table& slab : slabs) slab.settle();
  for (KeptNodes& each : kept_nodes) each.settle();
  for (auto& each : held) {
    if (each) each->settle();
  }
}

void RowState::commit_received(uint32_t value, const Changes& changes) noexcept {
  const Rows out = rows(value);
  for (size_t i = changes.own_size(); i < changes.size(); ++i) {
    const uint32_t node = changes.nodes()[i];
    if (out.slots[node] != 0) std::memcpy(out.row(node), changes.row(i), out.width * sizeof(float));
  }
}

void RowState::commit(const Delta& delta, const BatchChanges& batch, ThreadPool* pool) noexcept {
  loosened_.swap(loosened_next_);
  // Slots first, then the rows of the nodes that have one.
  for (size_t d = 0; keep_degree > 0 && d < kept_nodes.size(); ++d) {
    if (has_direction[d]) kept_nodes[d].move(batch.moves[d], delta.nodes[receiver_type(graph, d)].capacity);
  }
  for (uint32_t v = 0; v < program.values.size(); ++v) {
    const Value& value = program.values[v];
    const Changes& changes = batch.of(v);
    if (value.features) commit_received(v, changes);
    if (value.features || value.derived >= 0) continue;
    const NodeDelta& nodes = delta.nodes[value.node_type];
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
    if (held[value.slab]) {
      if (columns[v] == 0) held[value.slab]->commit(nodes.capacity, &slab);
    } else if (slab.rows() < nodes.capacity) {
      slab.resize(nodes.capacity);
    }
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

bool RowState::load_rows(uint32_t value, const float* from, size_t count, size_t width) {
  const Value& spec = program.values[value];
  const size_t expected = partial[value] >= 0
                              ? kept_nodes[direction_of(graph, program.propagations[partial[value]])].size()
                              : graph.nodes[spec.node_type].ids.capacity();
  if (width != spec.width || count != expected) return false;
  if (held[spec.slab]) {
    if (held[spec.slab]->capacity() != count) hold(spec.slab, spec.node_type);
  } else {
    slabs[spec.slab].resize(count);
  }
  const Rows out = kept_rows(value);
  for (size_t i = 0; i < count; ++i) {
    if (out.slots == nullptr || out.slots[i] != 0) std::memcpy(out.row(i), from + i * width, width * sizeof(float));
  }
  return true;
}

bool RowState::load_kept_nodes(size_t direction, std::span<const uint32_t> nodes) {
  const IdMap& ids = graph.nodes[receiver_type(graph, direction)].ids;
  const EdgeView store = view_at(graph, direction);
  // Which nodes are kept follows from their degrees, but for those that have lost up to a quarter of their edges.
  const size_t least = keep_degree - keep_degree / 4;
  size_t found = 0;
  for (uint32_t node = 0; node < ids.capacity(); ++node) {
    const bool listed = found < nodes.size() && nodes[found] == node;
    found += listed;
    const size_t degree = ids.in_use(node) ? store.degree_in(node) : 0;
    if (listed ? degree < least : degree >= keep_degree) return false;
  }
  if (found != nodes.size()) return false;  // not sorted, or past the last index
  kept_nodes[direction].assign(ids, nodes);
  return true;
}

}  // namespace livegnn
