#include "inference/preparation.h"

#include "inference/rows/stored_rows.h"
#include "inference/state.h"
#include "program/kernels.h"

namespace livegnn {

void Changes::begin(size_t width) {
  nodes_.clear();
  positions_.clear();
  reached.clear();
  elsewhere_ = nullptr;
  stride_ = row_stride(width);
}

void Changes::keep(const std::vector<uint32_t>& nodes, const std::vector<uint8_t>& marks) {
  const size_t before = nodes_.size();
  nodes_.resize(before + nodes.size());
  positions_.resize(before + nodes.size());
  // Without a branch, because marks follow no pattern.
  size_t at = before;
  for (size_t i = 0; i < nodes.size(); ++i) {
    nodes_[at] = nodes[i];
    positions_[at] = static_cast<uint32_t>(i);
    at += marks[i] != 0 ? 1 : 0;
  }
  nodes_.resize(at);
  positions_.resize(at);
}

void Preparation::lose(uint32_t node_type, uint32_t node) {
  const uint64_t here = uint64_t{node_type} << 32 | node;
  uint64_t first = lost_here_.load(std::memory_order_relaxed);
  while (here < first && !lost_here_.compare_exchange_weak(first, here, std::memory_order_relaxed)) continue;
}

void Preparation::lose_row(const State& state, uint32_t value, uint32_t node) {
  if (!guarded) return;
  static thread_local RowArena arena;
  arena.clear();
  const float* before;
  stored_rows(state, value, {&node, 1}, &arena, &before);
  const Value& spec = state.program.values[value];
  if (kernels().finite(spec.width, before)) lose(spec.node_type, node);
}

bool Preparation::has_lost() {
  const uint64_t here = lost_here_.exchange(kNothingLost, std::memory_order_relaxed);
  if (here != kNothingLost) {
    lost = static_cast<uint32_t>(here);
    lost_type = static_cast<uint32_t>(here >> 32);
    lost_step = step;
  }
  return lost != kNoIndex;
}

size_t Preparation::need() const {
  size_t need = affected + edges_touched + nodes_touched;
  for (const auto& changed_edges : edges) need += changed_edges.size();
  for (const auto& nodes : reached) need += nodes.size();
  return need;
}

size_t Preparation::settle() {
  const size_t held = held_ = bytes();
  if (!needs_.outgrown(need())) return 0;
  give_back(&changes);
  give_back(&edges);
  give_back(&moves);
  give_back(&reached);
  give_back(&before);
  held_ = bytes();
  return held;
}

size_t Preparation::bytes() const {
  size_t bytes =
      bytes_of(changes) + bytes_of(edges) + bytes_of(moves) + bytes_of(changed) + bytes_of(reached) + bytes_of(before);
  for (const auto* values : {&changes, &before}) {
    for (const Changes& one : *values) bytes += one.bytes();
  }
  for (const Moves& one : moves) bytes += bytes_of(one.entering) + bytes_of(one.leaving);
  return bytes;
}

}  // namespace livegnn
