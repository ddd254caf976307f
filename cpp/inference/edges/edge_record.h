// The net change of in-edges since a given moment, by target.
//
// Invariants: an edge that has returned to its old state is not recorded; changes of a target are sorted by source and
// key.
// Thread safety: none; the owner provides it (lazy.h).
#pragma once

#include <tsl/robin_map.h>

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "hashing/mix_hash.h"
#include "inference/edges/directed_changes.h"

namespace livegnn {

class EdgeRecord {
 public:
  // Records what a batch changes, sorted by target, then source. `prepare` makes the new lists separately, so that the
  // lists that are being read stay unchanged until `merge`, which cannot fail.
  void prepare(std::span<const DirectedChange> changes);
  void merge() noexcept;
  void forget() noexcept {
    pending_.clear();
    pending_.shrink_to_fit();
  }
  // Sorted by source.
  std::span<const DirectedChange> of(uint32_t target) const {
    const auto found = by_target_.find(target);
    return found == by_target_.end() ? std::span<const DirectedChange>{} : found->second;
  }
  // All changes, sorted by target, source and key.
  std::vector<DirectedChange> sorted() const;
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
  std::vector<std::pair<uint32_t, List>> pending_;  // targets and their lists after the batch
};

}  // namespace livegnn
