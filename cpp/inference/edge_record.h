// The net change of in-edges since some moment, by target.
//
// Invariants: an edge that is again as it was is not in it; a target's changes are in order of source and key.
// Thread safety: none, the owner sees to it (lazy.h).
#pragma once

#include <tsl/robin_map.h>

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "hashing/mix_hash.h"
#include "inference/directed_changes.h"

namespace livegnn {

class EdgeRecord {
 public:
  // What a batch changes, in order of target, then source: the new lists are made aside, then put in. Lists that are
  // read stay as they are until the merge; it cannot fail.
  void prepare(std::span<const DirectedChange> changes);
  void merge() noexcept;
  void forget() noexcept {
    pending_.clear();
    pending_.shrink_to_fit();
  }
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
  using List = std::vector<DirectedChange>;

  tsl::robin_map<uint32_t, List, MixHash> by_target_;
  size_t size_ = 0;
  std::vector<std::pair<uint32_t, List>> pending_;  // by target: its list after the batch
};

}  // namespace livegnn
