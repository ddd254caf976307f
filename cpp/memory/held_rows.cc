#include "memory/held_rows.h"

#include <algorithm>
#include <cassert>

namespace livegnn {

void HeldRows::assign(std::span<const uint32_t> nodes, size_t capacity, Table* slab) {
  std::vector<uint32_t> slots(capacity, 0);
  used_ = 1;
  for (uint32_t node : nodes) slots[node] = static_cast<uint32_t>(used_++);
  slots_ = std::move(slots);
  free_ = std::vector<uint32_t>();
  slab->resize(0);
  slab->resize(used_);
}

void HeldRows::prepare(std::vector<uint32_t> written, std::vector<uint32_t> leaving, size_t capacity, Table* slab) {
  std::erase_if(leaving, [this](uint32_t node) { return !has(node); });
  std::sort(leaving.begin(), leaving.end());
  leaving.erase(std::unique(leaving.begin(), leaving.end()), leaving.end());
  leaving_ = std::move(leaving);
  std::erase_if(
      written, [&](uint32_t node) { return has(node) && !std::binary_search(leaving_.begin(), leaving_.end(), node); });
  std::sort(written.begin(), written.end());
  written.erase(std::unique(written.begin(), written.end()), written.end());
  entering_ = std::move(written);
  slots_.prepare(capacity);
  const size_t free = free_.size() + leaving_.size();
  free_.prepare(free);
  slab->prepare(used_ + entering_.size() - std::min(entering_.size(), free));
}

void HeldRows::commit(size_t capacity, Table* slab) noexcept {
  slots_.resize(std::max(slots_.size(), capacity), 0);
  free_.adopt();
  const size_t reused = std::min(entering_.size(), free_.size() + leaving_.size());
  slab->resize(used_ + entering_.size() - reused);  // first, as it may install a copy
  for (uint32_t node : leaving_) {
    slab->clear_row(slots_[node]);
    free_.push_back(slots_[node]);
    slots_[node] = 0;
  }
  for (size_t i = 0; i < entering_.size(); ++i) {
    assert(slots_[entering_[i]] == 0);
    if (i < reused) {
      slots_[entering_[i]] = free_.back();
      free_.pop_back();
    } else {
      slots_[entering_[i]] = static_cast<uint32_t>(used_++);
    }
  }
  entering_.clear();
  leaving_.clear();
}

void HeldRows::settle() noexcept {
  slots_.settle();
  free_.settle();
  entering_.clear();
  leaving_.clear();
}

}  // namespace livegnn
