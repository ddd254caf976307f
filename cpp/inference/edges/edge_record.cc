#include "inference/edges/edge_record.h"

#include <algorithm>

namespace livegnn {

void EdgeRecord::prepare(std::span<const DirectedChange> changes) {
  forget();
  for (size_t i = 0; i < changes.size();) {
    const uint32_t target = changes[i].target;
    const std::span<const DirectedChange> old = of(target);
    List list(old.begin(), old.end());
    for (; i < changes.size() && changes[i].target == target; ++i) {
      auto less = [](const DirectedChange& a, uint64_t order) { return a.order() < order; };
      auto found = std::lower_bound(list.begin(), list.end(), changes[i].order(), less);
      if (found == list.end() || found->order() != changes[i].order()) {
        found = list.insert(found, changes[i]);
      } else {
        found->has = changes[i].has;
        found->new_weight = changes[i].new_weight;
      }
      if (found->had == found->has && (!found->had || found->old_weight == found->new_weight)) list.erase(found);
    }
    if (list.size() == old.size() && list.empty()) continue;
    pending_.emplace_back(target, std::move(list));
  }
  const size_t most = by_target_.size() + pending_.size();
  if (static_cast<float>(most) >= by_target_.max_load_factor() * static_cast<float>(by_target_.bucket_count())) {
    by_target_.reserve(2 * most);
  }
}

void EdgeRecord::merge() noexcept {
  for (auto& [target, list] : pending_) {
    const auto found = by_target_.find(target);
    size_ += list.size() - (found == by_target_.end() ? 0 : found->second.size());
    if (list.empty()) {
      by_target_.erase(found);
    } else if (found == by_target_.end()) {
      by_target_.emplace(target, std::move(list));
    } else {
      found.value().swap(list);
    }
  }
}

std::vector<DirectedChange> EdgeRecord::sorted() const {
  std::vector<DirectedChange> all;
  all.reserve(size_);
  for (const auto& [target, list] : by_target_) all.insert(all.end(), list.begin(), list.end());
  std::sort(all.begin(), all.end(), [](const DirectedChange& a, const DirectedChange& b) {
    return a.target != b.target ? a.target < b.target : a.order() < b.order();
  });
  return all;
}

size_t EdgeRecord::bytes() const {
  size_t total = by_target_.bucket_count() * (sizeof(uint32_t) + sizeof(std::vector<DirectedChange>) + 8);
  for (const auto& [target, list] : by_target_) total += list.capacity() * sizeof(DirectedChange);
  return total;
}

}  // namespace livegnn
