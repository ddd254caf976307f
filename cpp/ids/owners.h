// The worker that owns a node: the same class for sampling workers, for serving workers, and for the parts of a graph.
//
//   kModulo  a hash of the id, modulo the number of workers
//   kJump    jump consistent hashing of the id: with one worker more, the ids that change hands are those that the new
//            one takes, its fair share of each other's (an id goes from worker to worker as their number grows, each
//            time with the probability that is the new one's share)
//   kTable   a number for each index of one node type: a graph that was divided, or nodes that were placed one by one
//
// With the first two, ids that were moved belong to the workers that are said; a table says it for each node anyway.
// Streams between workers depend on the owners of ids: no bit of a rule may change.
//
// If a batch adds nodes, `prepare` makes room in a table while readers use the old one; then `assign` cannot fail.
//
// Invariant: every owner is below `workers()`, or kNoOwner, which an index without a node has.
// Thread safety: any number of readers, or one writer; `prepare` and `settle` may run concurrently with readers.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "hashing/mix_hash.h"
#include "ids/id_map.h"
#include "memory/growing_array.h"

namespace livegnn {

enum class OwnerRule : uint8_t { kModulo, kJump, kTable };

class Owners {
 public:
  using Moved = std::vector<std::pair<uint64_t, uint32_t>>;  // ids, and the workers that own them

  static constexpr uint32_t kMaxWorkers = 4000;
  static constexpr uint16_t kNoOwner = UINT16_MAX;

  // A table is empty. Throws std::invalid_argument if there are no workers or too many, or if an id was moved to none
  // of them, or twice, or in a table.
  explicit Owners(OwnerRule rule = OwnerRule::kModulo, uint32_t workers = 1, Moved moved = {})
      : rule_(rule), workers_(workers), moved_(std::move(moved)) {
    if (workers == 0 || workers > kMaxWorkers) {
      throw std::invalid_argument("there can be from 1 to " + std::to_string(kMaxWorkers) + " workers, not " +
                                  std::to_string(workers));
    }
    if (rule == OwnerRule::kTable && !moved_.empty()) throw std::invalid_argument("a table has no ids that were moved");
    std::sort(moved_.begin(), moved_.end());
    for (size_t i = 0; i < moved_.size(); ++i) {
      if (moved_[i].second >= workers || (i > 0 && moved_[i - 1].first == moved_[i].first)) {
        throw std::invalid_argument("id " + std::to_string(moved_[i].first) +
                                    " is moved twice, or to a worker that is none of " + std::to_string(workers));
      }
    }
  }
  // A table with an owner for each index. Throws std::invalid_argument.
  Owners(uint32_t workers, std::span<const uint16_t> by_index) : Owners(OwnerRule::kTable, workers) {
    for (size_t i = 0; i < by_index.size(); ++i) {
      if (by_index[i] >= workers && by_index[i] != kNoOwner) {
        throw std::invalid_argument("index " + std::to_string(i) + " is owned by worker " +
                                    std::to_string(by_index[i]) + ", which is none of " + std::to_string(workers));
      }
    }
    by_index_ = std::vector<uint16_t>(by_index.begin(), by_index.end());
  }

  OwnerRule rule() const { return rule_; }
  uint32_t workers() const { return workers_; }
  const Moved& moved() const { return moved_; }
  const std::vector<uint16_t>& table() const { return by_index_.values(); }
  size_t bytes() const { return moved_.capacity() * sizeof(moved_[0]) + by_index_.capacity() * sizeof(uint16_t); }

  // Requires: no table.
  uint32_t of_id(uint64_t id) const {
    assert(rule_ != OwnerRule::kTable);
    if (!moved_.empty()) {
      const auto at = std::lower_bound(moved_.begin(), moved_.end(), std::pair(id, uint32_t{0}));
      if (at != moved_.end() && at->first == id) return at->second;
    }
    return rule_ == OwnerRule::kModulo ? modulo(id) : jump(id);
  }
  // Requires: a table. kNoOwner where the table ends.
  uint32_t of_index(uint32_t index) const {
    assert(rule_ == OwnerRule::kTable);
    return index < by_index_.size() ? by_index_[index] : kNoOwner;
  }
  // By any rule; kNoOwner of what is no node of `ids`, in a table.
  uint32_t of_id(int64_t id, const IdMap& ids) const {
    return rule_ == OwnerRule::kTable ? of_index(ids.index_of(id)) : of_id(static_cast<uint64_t>(id));
  }
  // By any rule. Requires: an index below the capacity of `ids`.
  uint32_t of_index(uint32_t index, const IdMap& ids) const {
    if (rule_ == OwnerRule::kTable) return of_index(index);
    return ids.in_use(index) ? of_id(static_cast<uint64_t>(ids.id_of(index))) : kNoOwner;
  }

  // Room in a table for indices below `capacity`; then `adopt` and `assign` cannot fail. Throws std::bad_alloc, with
  // nothing changed.
  void prepare(size_t capacity) { by_index_.prepare(capacity); }
  void adopt() noexcept { by_index_.adopt(); }
  void settle() noexcept { by_index_.settle(); }
  // Requires: a table; kNoOwner, or one of the workers.
  void assign(uint32_t index, uint16_t worker) {
    assert(rule_ == OwnerRule::kTable && (worker < workers_ || worker == kNoOwner));
    if (index >= by_index_.size()) by_index_.resize(size_t{index} + 1, kNoOwner);
    by_index_[index] = worker;
  }

  friend bool operator==(const Owners& a, const Owners& b) {
    return a.rule_ == b.rule_ && a.workers_ == b.workers_ && a.moved_ == b.moved_ && a.table() == b.table();
  }

 private:
  uint32_t modulo(uint64_t id) const {
    return workers_ == 1 ? 0 : static_cast<uint32_t>(MixHash{}(id ^ 0x9e3779b97f4a7c15ULL) % workers_);
  }
  uint32_t jump(uint64_t id) const {
    if (workers_ == 1) return 0;
    uint64_t worker = 0;
    for (uint64_t next = 0; next < workers_;) {
      worker = next;
      // From worker b to w or further with a probability of (b + 1) / w.
      const uint64_t drawn = MixHash{}((id ^ 0xd1b54a32d192ed03ULL) + worker * 0x9e3779b97f4a7c15ULL) >> 33;
      next = ((worker + 1) << 31) / (drawn + 1);
    }
    return static_cast<uint32_t>(worker);
  }

  OwnerRule rule_;
  uint32_t workers_;
  Moved moved_;
  GrowingArray<uint16_t> by_index_;
};

}  // namespace livegnn
