#include "inference/rows/kept_nodes.h"

#include <algorithm>

#include "inference/edges/directed_changes.h"

namespace livegnn {

std::vector<uint32_t> KeptNodes::sorted() const {
  std::vector<uint32_t> nodes;
  for (uint32_t node : nodes_) {
    if (node != kNoIndex) nodes.push_back(node);
  }
  std::sort(nodes.begin(), nodes.end());
  return nodes;
}

void KeptNodes::assign(const IdMap& ids, const EdgeView& store, size_t keep_degree) {
  std::vector<uint32_t> nodes;
  for (uint32_t node = 0; node < ids.capacity(); ++node) {
    if (ids.in_use(node) && store.degree_in(node) >= keep_degree) nodes.push_back(node);
  }
  assign(ids, nodes);
}

void KeptNodes::assign(const IdMap& ids, std::span<const uint32_t> nodes) {
  slots_.assign(ids.capacity(), kNoIndex);
  nodes_ = std::vector<uint32_t>(nodes.begin(), nodes.end());
  free_ = std::vector<uint32_t>();
  for (uint32_t slot = 0; slot < nodes.size(); ++slot) slots_[nodes[slot]] = slot;
}

void KeptNodes::find_moves(const EdgeView& store, const std::vector<DirectedChange>& changes,
                           const std::vector<uint8_t>& removed, std::span<const uint32_t> removed_nodes,
                           size_t keep_degree, Moves* moves) const {
  const auto least = static_cast<int64_t>(keep_degree - keep_degree / 4);
  moves->entering.clear();
  moves->leaving.clear();
  for (size_t i = 0; i < changes.size();) {
    const uint32_t node = changes[i].target;
    int64_t degree = store.degree_in(node);
    for (; i < changes.size() && changes[i].target == node; ++i) degree += int{changes[i].has} - int{changes[i].had};
    if (removed[node]) continue;
    if (!has(node) && degree >= static_cast<int64_t>(keep_degree)) moves->entering.push_back(node);
    if (has(node) && degree < least) moves->leaving.push_back(node);
  }
  for (uint32_t node : removed_nodes) {
    if (has(node)) moves->leaving.push_back(node);
  }
  std::sort(moves->leaving.begin(), moves->leaving.end());
}

void KeptNodes::reserve(const Moves& moves, size_t capacity) {
  slots_.prepare(capacity);
  nodes_.prepare(nodes_.size() + moves.entering.size());
  free_.prepare(free_.size() + moves.leaving.size() + 1);
}

void KeptNodes::move(const Moves& moves, size_t capacity) noexcept {
  slots_.resize(std::max(slots_.size(), capacity), kNoIndex);
  nodes_.adopt();
  free_.adopt();
  for (uint32_t node : moves.leaving) {
    nodes_[slots_[node]] = kNoIndex;
    free_.push_back(slots_[node]);
    slots_[node] = kNoIndex;
  }
  for (uint32_t node : moves.entering) {
    if (free_.empty()) {
      free_.push_back(static_cast<uint32_t>(nodes_.size()));
      nodes_.push_back(kNoIndex);
    }
    slots_[node] = free_.back();
    nodes_[free_.back()] = node;
    free_.pop_back();
  }
}

}  // namespace livegnn
