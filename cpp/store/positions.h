// Positions by key.
//
// Thread safety: one thread.
#pragma once

#include <tsl/robin_map.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "hashing/mix_hash.h"
#include "ids/id_map.h"

namespace livegnn {

// A linear search while there are few, because most batches are small and filling a map costs more.
class Positions {
 public:
  uint32_t find(uint64_t key) const {
    if (map_.empty()) {
      for (const auto& [k, position] : few_) {
        if (k == key) return position;
      }
      return kNoIndex;
    }
    auto found = map_.find(key);
    return found == map_.end() ? kNoIndex : found->second;
  }

  void insert(uint64_t key, uint32_t position) {
    if (map_.empty() && few_.size() < kFew) {
      few_.emplace_back(key, position);
      return;
    }
    if (map_.empty()) {
      map_.reserve(1024);
      for (const auto& [k, p] : few_) map_[k] = p;
      few_.clear();
    }
    map_[key] = position;
  }

  void erase(uint64_t key) {
    if (map_.empty()) {
      std::erase_if(few_, [key](const auto& entry) { return entry.first == key; });
    } else {
      map_.erase(key);
    }
  }

 private:
  static constexpr size_t kFew = 16;
  std::vector<std::pair<uint64_t, uint32_t>> few_;
  tsl::robin_map<uint64_t, uint32_t, MixHash> map_;
};

}  // namespace livegnn
