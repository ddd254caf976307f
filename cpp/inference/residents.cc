// Aggregates of some nodes alone: who keeps them, and the rows of the others, from their in-neighbours, when they are
// read (NeutronRT, section V.B).
//
// A row that is not kept is a function of the graph and of what is kept, to the bit: its neighbours are added in the
// order of their indices. So it is the same before a batch, in the batch, and after a restart, and what a batch does
// not change needs no looking after.
#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>

#include "inference/directed_changes.h"
#include "inference/engine_scratch.h"
#include "program/kernels.h"
#include "program/row_sum.h"
#include "threads/parallel.h"

namespace livegnn {
namespace {

struct Neighbor {
  uint32_t source;
  float weight;
};

void append_in_order(const PropagateStep& step, const EdgeView& store, uint32_t node, std::vector<Neighbor>* all) {
  const auto first = static_cast<std::ptrdiff_t>(all->size());
  scan_messages(store, step, node, [&](NeighborSpan span) {
    for (size_t i = 0; i < span.size; ++i) {
      all->push_back({span.ids[i], step.weighted && span.weights != nullptr ? span.weights[i] : 1.0f});
    }
  });
  std::sort(all->begin() + first, all->end(), [](const Neighbor& a, const Neighbor& b) {
    return a.source != b.source ? a.source < b.source : a.weight < b.weight;
  });
}

// Locates the row of each of some neighbours and aggregates them, in their order.
template <class Locate>
void aggregate(const PropagateStep& step, size_t width, std::span<const Neighbor> neighbors, const Locate& locate,
               float* out, float* counts) {
  static thread_local std::vector<const float*> rows;
  static thread_local std::vector<uint32_t> order;
  static thread_local std::vector<float> weights;
  static thread_local std::vector<uint32_t> ties;
  const Trimmed trimmed(&rows, &order, &weights);
  rows.clear();
  weights.clear();
  while (order.size() < neighbors.size()) order.push_back(static_cast<uint32_t>(order.size()));
  for (const Neighbor& neighbor : neighbors) {
    rows.push_back(locate(neighbor.source));
    weights.push_back(neighbor.weight);
  }
  std::fill(out, out + row_stride(width), 0.0f);
  if (counts != nullptr) std::memset(counts, 0, width * sizeof(float));
  if (neighbors.empty()) return;
  if (step.aggregate == Aggregate::kSum) {
    sum_all_rows(row_stride(width), rows.size(), rows.data(), order.data(), weights.data(), out);
  } else {
    std::fill(out, out + width, -std::numeric_limits<float>::infinity());
    ties.assign(width, 0);
    kernels().max_rows(width, rows.size(), rows.data(), order.data(), weights.data(), out, ties.data());
    if (counts != nullptr) std::memcpy(counts, ties.data(), width * sizeof(float));
  }
}

}  // namespace

uint32_t Engine::slot_of(uint32_t value, uint32_t node) const {
  if (partial_[value] < 0) return node;
  return residents_[direction_of(graph_, program_.propagations[static_cast<size_t>(partial_[value])])].slot(node);
}

Rows Engine::kept_rows(uint32_t value) const {
  if (partial_[value] < 0) return rows(value);
  const Value& spec = program_.values[value];
  const Table& slab = slabs_[spec.slab];
  return {const_cast<float*>(slab.row(0)) + columns_[value], slab.stride(), spec.width, slab.rows()};
}

void Engine::aggregate_in_order(const PropagateStep& step, const Rows& input, uint32_t node, float* out,
                                float* counts) const {
  static thread_local std::vector<Neighbor> neighbors;
  const Trimmed trimmed(&neighbors);
  neighbors.clear();
  append_in_order(step, view_of(graph_, step), node, &neighbors);
  aggregate(step, input.width, neighbors, [&](uint32_t source) { return input.row(source); }, out, counts);
}

// Rows of aggregates that are not kept. What their neighbours send is asked for once each, and may be computed in turn.
void Engine::pull(const PropagateStep& step, std::span<const uint32_t> nodes, RowArena* arena,
                  const float** out) const {
  const size_t width = program_.values[step.input].width, stride = row_stride(width);
  std::vector<Neighbor> neighbors;
  std::vector<size_t> offsets{0};
  for (uint32_t node : nodes) {
    append_in_order(step, view_of(graph_, step), node, &neighbors);
    offsets.push_back(neighbors.size());
  }
  std::vector<uint32_t> sources;
  sources.reserve(neighbors.size());
  for (const Neighbor& neighbor : neighbors) sources.push_back(neighbor.source);
  std::sort(sources.begin(), sources.end());
  sources.erase(std::unique(sources.begin(), sources.end()), sources.end());
  std::vector<const float*> rows(sources.size());
  stored_rows(step.input, sources, arena, rows.data());
  float* row = arena->take(nodes.size() * stride);
  for (size_t i = 0; i < nodes.size(); ++i, row += stride) {
    aggregate(
        step, width, {neighbors.data() + offsets[i], offsets[i + 1] - offsets[i]},
        [&](uint32_t source) {
          const auto found = std::lower_bound(sources.begin(), sources.end(), source);
          return rows[static_cast<size_t>(found - sources.begin())];
        },
        row, nullptr);
    out[i] = row;
  }
}

// All rows of the partial values, layer by layer: for somebody who reads all of them, that is far less work than
// pulling each.
void Engine::complete(Whole* whole, std::vector<Table>* tables) const {
  if (keep_degree_ == 0) return;
  for (const Step& order : program_.order) {
    if (order.kind != Step::kPropagate) continue;
    const PropagateStep& step = program_.propagations[order.position];
    const IdMap& ids = graph_.nodes[program_.values[step.output].node_type].ids;
    Table input_table;
    const Rows input = all_stored_rows(step.input, whole, &input_table);
    const Rows kept = kept_rows(step.output);
    Table& table = tables->emplace_back(kept.width);
    table.resize(ids.capacity());
    pool_->run(blocks_of(ids.capacity()), kLong, [&](size_t block) {
      const size_t end = std::min(ids.capacity(), (block + 1) * kBlockRows);
      for (auto node = static_cast<uint32_t>(block * kBlockRows); node < end; ++node) {
        const uint32_t slot = slot_of(step.output, node);
        if (slot != kNoIndex) {
          table.write(node, kept.row(slot));
        } else if (ids.in_use(node)) {
          aggregate_in_order(step, input, node, table.row(node), nullptr);
        }
      }
    });
    (*whole)[step.output] = {table.row(0), table.stride(), table.width(), table.rows()};
  }
}

void Engine::initialize_residents() {
  if (keep_degree_ == 0) return;
  for (size_t d = 0; d < residents_.size(); ++d) {
    if (!has_direction_[d]) continue;
    const IdMap& ids = graph_.nodes[receiver_type(graph_, d)].ids;
    const EdgeView store = view_at(graph_, d);
    Residents& residents = residents_[d];
    residents = {};
    residents.slots.assign(ids.capacity(), kNoIndex);
    for (uint32_t node = 0; node < ids.capacity(); ++node) {
      if (!ids.in_use(node) || store.degree_in(node) < keep_degree_) continue;
      residents.slots[node] = static_cast<uint32_t>(residents.nodes.size());
      residents.nodes.push_back(node);
    }
  }
}

// A node that has as many in-edges as are asked for becomes a resident; it is one no longer when it has lost a quarter
// of them, so that one that goes to and fro is not computed each time.
void Engine::prepare_moves(const Delta& delta, Prepared* prepared) const {
  if (keep_degree_ == 0) return;
  prepared->moves.resize(residents_.size());
  const auto least = static_cast<int64_t>(keep_degree_ - keep_degree_ / 4);
  for (size_t d = 0; d < residents_.size(); ++d) {
    if (!has_direction_[d]) continue;
    const uint32_t node_type = receiver_type(graph_, d);
    const EdgeView store = view_at(graph_, d);
    const auto& removed = scratches_->removed[node_type];
    const auto& edges = prepared->edges[d];
    Moves& moves = prepared->moves[d];
    moves.entering.clear();
    moves.leaving.clear();
    for (size_t i = 0; i < edges.size();) {
      const uint32_t node = edges[i].target;
      int64_t degree = store.degree_in(node);
      for (; i < edges.size() && edges[i].target == node; ++i) degree += int{edges[i].has} - int{edges[i].had};
      if (removed[node]) continue;
      const bool resident = residents_[d].slot(node) != kNoIndex;
      if (!resident && degree >= static_cast<int64_t>(keep_degree_)) moves.entering.push_back(node);
      if (resident && degree < least) moves.leaving.push_back(node);
    }
    for (uint32_t node : delta.nodes[node_type].removed) {
      if (residents_[d].slot(node) != kNoIndex) moves.leaving.push_back(node);
    }
    std::sort(moves.leaving.begin(), moves.leaving.end());
  }
}

bool Engine::stays(const PropagateStep& step, const Prepared& prepared, uint32_t node) const {
  const size_t direction = direction_of(graph_, step);
  const auto& leaving = prepared.moves[direction].leaving;
  return residents_[direction].slot(node) != kNoIndex && !std::binary_search(leaving.begin(), leaving.end(), node);
}

void Engine::reserve_moves(const Delta& delta, const Prepared& prepared) {
  if (keep_degree_ == 0) return;
  for (size_t d = 0; d < residents_.size(); ++d) {
    if (!has_direction_[d]) continue;
    Residents& residents = residents_[d];
    const Moves& moves = prepared.moves[d];
    residents.slots.prepare(delta.nodes[receiver_type(graph_, d)].capacity);
    residents.nodes.prepare(residents.nodes.size() + moves.entering.size());
    residents.free.prepare(residents.free.size() + moves.leaving.size() + 1);
  }
  for (size_t p = 0; p < program_.propagations.size(); ++p) {
    const PropagateStep& step = program_.propagations[p];
    const size_t direction = direction_of(graph_, step);
    const size_t most = residents_[direction].nodes.size() + prepared.moves[direction].entering.size();
    slabs_[program_.values[step.output].slab].prepare(most);
    if (step.aggregate == Aggregate::kSum) errors_[p].prepare(most);
  }
}

// Slots first, then the rows of those who have one.
void Engine::commit_moves(const Delta& delta, const Prepared& prepared) noexcept {
  for (size_t d = 0; d < residents_.size(); ++d) {
    if (!has_direction_[d]) continue;
    Residents& residents = residents_[d];
    const size_t capacity = delta.nodes[receiver_type(graph_, d)].capacity;
    residents.slots.resize(std::max(residents.slots.size(), capacity), kNoIndex);
    residents.nodes.adopt();
    residents.free.adopt();
    for (uint32_t node : prepared.moves[d].leaving) {
      residents.nodes[residents.slots[node]] = kNoIndex;
      residents.free.push_back(residents.slots[node]);
      residents.slots[node] = kNoIndex;
    }
    for (uint32_t node : prepared.moves[d].entering) {
      if (residents.free.empty()) {
        residents.free.push_back(static_cast<uint32_t>(residents.nodes.size()));
        residents.nodes.push_back(kNoIndex);
      }
      residents.slots[node] = residents.free.back();
      residents.nodes[residents.free.back()] = node;
      residents.free.pop_back();
    }
  }
  for (size_t p = 0; p < program_.propagations.size(); ++p) {
    const PropagateStep& step = program_.propagations[p];
    const Residents& residents = residents_[direction_of(graph_, step)];
    Table& slab = slabs_[program_.values[step.output].slab];
    slab.resize(residents.nodes.size());
    auto write = [&](uint32_t value) {
      const Rows rows = kept_rows(value);
      const Changes& changes = prepared.changes[value];
      for (size_t i = 0; i < changes.nodes.size(); ++i) {
        const uint32_t slot = residents.slot(changes.nodes[i]);
        if (slot != kNoIndex) std::memcpy(rows.row(slot), changes.row(i), rows.width * sizeof(float));
      }
    };
    write(step.output);
    if (step.counts != kNoIndex) write(step.counts);
    if (step.aggregate != Aggregate::kSum) continue;
    errors_[p].resize(residents.nodes.size());
    commit_bounds(p, prepared);
    const Changes& changes = prepared.changes[step.output];
    for (size_t i = 0; i < changes.reached.size(); ++i) {
      const uint32_t slot = residents.slot(changes.reached[i]);
      if (slot != kNoIndex) errors_[p].write(slot, changes.errors.data() + i * errors_[p].width());
    }
  }
}

std::vector<uint32_t> Engine::residents(size_t direction) const {
  std::vector<uint32_t> nodes;
  for (uint32_t node : residents_[direction].nodes) {
    if (node != kNoIndex) nodes.push_back(node);
  }
  std::sort(nodes.begin(), nodes.end());
  return nodes;
}

std::vector<uint32_t> Engine::slots(uint32_t value) const {
  std::vector<uint32_t> slots(rows(value).count);
  std::iota(slots.begin(), slots.end(), 0u);
  if (partial_[value] < 0) return slots;
  slots = residents(direction_of(graph_, program_.propagations[static_cast<size_t>(partial_[value])]));
  for (uint32_t& node : slots) node = slot_of(value, node);
  return slots;
}

bool Engine::load_residents(size_t direction, std::span<const uint32_t> nodes) {
  const IdMap& ids = graph_.nodes[receiver_type(graph_, direction)].ids;
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i] >= ids.capacity() || !ids.in_use(nodes[i]) || (i > 0 && nodes[i] <= nodes[i - 1])) return false;
  }
  Residents& residents = residents_[direction];
  residents = {};
  residents.slots.assign(ids.capacity(), kNoIndex);
  residents.nodes = std::vector<uint32_t>(nodes.begin(), nodes.end());
  for (uint32_t slot = 0; slot < nodes.size(); ++slot) residents.slots[nodes[slot]] = slot;
  return true;
}

}  // namespace livegnn
