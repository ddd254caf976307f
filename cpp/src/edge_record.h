// The net change of in-edges since some moment, by target.
//
// Invariants: an edge that is again as it was is not in it; a target's changes are in order of source.
// Thread safety: none, the owner sees to it (lazy.h).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "livegnn/engine.h"
#include "livegnn/mix_hash.h"
#include "tsl/robin_map.h"

namespace livegnn {

class EdgeRecord {
 public:
  void merge(std::span<const DirectedChange> changes);
  // In order of source.
  std::span<const DirectedChange> of(uint32_t target) const {
    const auto found = by_target_.find(target);
    return found == by_target_.end() ? std::span<const DirectedChange>{} : found->second;
  }
  size_t size() const { return size_; }
  void clear() {
    by_target_.clear();
    size_ = 0;
  }
  size_t bytes() const;

 private:
  tsl::robin_map<uint32_t, std::vector<DirectedChange>, MixHash> by_target_;
  size_t size_ = 0;
};

}  // namespace livegnn
