// Which serving workers need something of a node, and how often: reference counts by node and worker. There is one
// table for the cells of each one-hop query whose key nodes are neighbours, and one for the features of each node type.
//
//   id ─► slot | id | worker | count |             one worker: 16 bytes a node
//         slot | id | block  | 0     | ─► | number of workers | worker, count | worker, count | ..
//
// Invariants: counts are positive; a node without a count has no slot, so nodes that come and go leave nothing; a node
// with one worker has no block.
// Thread safety: any number of readers, or one writer.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "memory/block_heap.h"
#include "presampling/slot_table.h"
#include "views/arrays.h"

namespace livegnn {

inline constexpr uint32_t kMaxServingWorkers = 4000;  // so that the workers of a node fit into a block

enum class Subscribed : uint8_t { kAsBefore, kNow, kNoLonger };

class SubscriptionTable {
 public:
  SubscriptionTable() = default;
  SubscriptionTable(const SubscriptionTable&) = delete;
  SubscriptionTable& operator=(const SubscriptionTable&) = delete;

  size_t size() const { return slots_.size(); }  // nodes that somebody needs
  size_t bytes() const { return slots_.bytes() + heap_.resident_bytes(); }
  void prefetch(uint64_t node) const { slots_.prefetch(node); }

  bool has(uint64_t node) const { return slots_.find(node) != nullptr; }
  uint32_t count(uint64_t node, uint32_t worker) const {
    const Slot* slot = slots_.find(node);
    if (slot == nullptr) return 0;
    for (const Count& one : counts_of(*slot)) {
      if (one.worker == worker) return one.count;
    }
    return 0;
  }
  // `visit(worker)` for each that needs the node, in no order.
  template <class Visit>
  void for_each_worker(uint64_t node, Visit&& visit) const {
    const Slot* slot = slots_.find(node);
    if (slot == nullptr) return;
    for (const Count& one : counts_of(*slot)) visit(one.worker);
  }
  // `visit(node, worker, count)`, in no order.
  template <class Visit>
  void for_each(Visit&& visit) const {
    slots_.for_each([&](const Slot& slot) {
      for (const Count& one : counts_of(slot)) visit(slot.key, one.worker, one.count);
    });
  }

  // Adds to a count, and says whether the worker needs the node now, or no longer. Throws std::runtime_error if the
  // count would be negative, or more than 32 bits hold, and std::bad_alloc; then nothing has changed.
  Subscribed add(uint64_t node, uint32_t worker, int64_t change) {
    // Nearly always the one worker that a node has, once more or less.
    Slot* slot = slots_.find(node);
    if (slot == nullptr && change == 1) {
      slot = slots_.insert(node);
      slot->ref = worker;
      slot->count = 1;
      return Subscribed::kNow;
    }
    const int64_t count = slot == nullptr ? 0 : int64_t{slot->count} + change;
    if (slot == nullptr || slot->count == 0 || slot->ref != worker || count <= 0 || count > int64_t{UINT32_MAX}) {
      return add_to(slot, node, worker, change);
    }
    slot->count = static_cast<uint32_t>(count);
    return Subscribed::kAsBefore;
  }
  // Gives memory back if much is free; call it after a batch.
  void settle();
  void clear() noexcept;

  // As arrays whose names begin with `prefix`. `load` throws std::runtime_error if they are no such table, and then it
  // is empty.
  void save(const std::string& prefix, Arrays* to) const;
  void load(const std::string& prefix, const ArrayViews& from);

 private:
  struct Count {
    uint32_t worker, count;
  };
  struct Slot {
    uint64_t key;
    uint32_t ref;    // the worker; or the block of several, if `count` is 0
    uint32_t count;  // of the one worker

    bool empty() const { return count == 0 && ref == 0; }
  };
  struct Counts {
    Count* first;
    size_t size;
    Count* begin() const { return first; }
    Count* end() const { return first + size; }
  };

  static size_t bytes_for(size_t workers) { return sizeof(uint64_t) + workers * sizeof(Count); }
  Counts block_at(BlockRef block) const {
    auto* const words = static_cast<uint64_t*>(heap_.at(block));
    return {reinterpret_cast<Count*>(words + 1), static_cast<size_t>(*words)};
  }
  Counts counts_of(const Slot& slot) const {
    if (slot.count == 0) return block_at(slot.ref);
    static_assert(offsetof(Slot, ref) + sizeof(uint32_t) == offsetof(Slot, count) && sizeof(Slot) == 16);
    return {reinterpret_cast<Count*>(const_cast<uint32_t*>(&slot.ref)), 1};
  }
  Subscribed add_to(Slot* slot, uint64_t node, uint32_t worker, int64_t change);
  void add_worker(Slot* slot, Count count);
  void remove_worker(Slot* slot, Count* removed);

  SlotTable<Slot> slots_;
  BlockHeap heap_;
};

}  // namespace livegnn
