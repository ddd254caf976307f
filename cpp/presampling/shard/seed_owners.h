// Which serving worker has a seed: a function of its id and of the number of workers, but for seeds that were moved.
//
// Invariant: with one worker more, the seeds that change hands are those that the new one takes, its fair share of
// each other's (jump consistent hashing: a seed goes from worker to worker as their number grows, each time with the
// probability that is the new one's share).
// Thread safety: it never changes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "hashing/mix_hash.h"
#include "presampling/tables/subscription_table.h"

namespace livegnn {

inline uint32_t serving_worker_of(uint64_t node, uint32_t workers) {
  if (workers == 1) return 0;
  uint64_t worker = 0;
  for (uint64_t next = 0; next < workers;) {
    worker = next;
    // From worker b to w or further with a probability of (b + 1) / w.
    const uint64_t drawn = MixHash{}((node ^ 0xd1b54a32d192ed03ULL) + worker * 0x9e3779b97f4a7c15ULL) >> 33;
    next = ((worker + 1) << 31) / (drawn + 1);
  }
  return static_cast<uint32_t>(worker);
}

class SeedOwners {
 public:
  using Moved = std::vector<std::pair<uint64_t, uint32_t>>;  // seeds, and the workers that have them

  // Throws std::invalid_argument if there are no workers or too many, or if a seed was moved to none of them, or twice.
  explicit SeedOwners(uint32_t workers = 1, Moved moved = {}) : workers_(workers), moved_(std::move(moved)) {
    if (workers == 0 || workers > kMaxServingWorkers) {
      throw std::invalid_argument("there can be from 1 to " + std::to_string(kMaxServingWorkers) +
                                  " serving workers, not " + std::to_string(workers));
    }
    std::sort(moved_.begin(), moved_.end());
    for (size_t i = 0; i < moved_.size(); ++i) {
      if (moved_[i].second >= workers || (i > 0 && moved_[i - 1].first == moved_[i].first)) {
        throw std::invalid_argument("seed " + std::to_string(moved_[i].first) +
                                    " is moved twice, or to a worker that is none of " + std::to_string(workers));
      }
    }
  }

  uint32_t workers() const { return workers_; }
  const Moved& moved() const { return moved_; }
  uint32_t of(uint64_t node) const {
    if (!moved_.empty()) {
      const auto at = std::lower_bound(moved_.begin(), moved_.end(), std::pair(node, uint32_t{0}));
      if (at != moved_.end() && at->first == node) return at->second;
    }
    return serving_worker_of(node, workers_);
  }

  friend bool operator==(const SeedOwners&, const SeedOwners&) = default;

 private:
  uint32_t workers_;
  Moved moved_;
};

}  // namespace livegnn
