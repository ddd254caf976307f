#include "edge_record.h"

#include <algorithm>

namespace livegnn {

void EdgeRecord::merge(std::span<const DirectedChange> changes) {
  for (const DirectedChange& change : changes) {
    std::vector<DirectedChange>& list = by_target_[change.target];
    auto less = [](const DirectedChange& a, uint32_t source) { return a.source < source; };
    auto found = std::lower_bound(list.begin(), list.end(), change.source, less);
    if (found == list.end() || found->source != change.source) {
      found = list.insert(found, change);
      ++size_;
    } else {
      found->has = change.has;
      found->new_weight = change.new_weight;
    }
    if (found->had == found->has && (!found->had || found->old_weight == found->new_weight)) {
      list.erase(found);
      --size_;
    }
    if (list.empty()) by_target_.erase(change.target);
  }
}

size_t EdgeRecord::bytes() const {
  size_t total = by_target_.bucket_count() * (sizeof(uint32_t) + sizeof(std::vector<DirectedChange>) + 8);
  for (const auto& [target, list] : by_target_) total += list.capacity() * sizeof(DirectedChange);
  return total;
}

}  // namespace livegnn
