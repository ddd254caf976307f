// Maps the user's ids to dense 32-bit indices.
//
// While every node's id equals its index (the common case of a graph that was numbered before it was loaded) there is
// no hash table: a lookup is a comparison. The table is built when the first other id is added. Indices of removed
// nodes are reused, the one freed last first.
//
// If a batch finds too little room, it builds a new table of twice the size while readers use the old one.
//
// Invariants: `index_of(id_of(i)) == i` for every index in use; an index in `free_` is not in use.
// Thread safety: any number of readers, or one writer; the writer's `prepare` and `settle` may run concurrently with
// readers.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "memory/growing_array.h"
#include "memory/slot_table.h"

namespace livegnn {

inline constexpr uint32_t kNoIndex = UINT32_MAX;
inline constexpr int64_t kNoId = -1;

class IdMap {
 public:
  // All indices ever assigned are below this; tables have as many rows.
  size_t capacity() const { return ids_.size(); }
  size_t size() const { return ids_.size() - free_.size(); }
  bool in_use(uint32_t index) const { return index < ids_.size() && ids_[index] != kNoId; }
  // kNoId if the index is free. Requires: an index below `capacity`.
  int64_t id_of(uint32_t index) const { return ids_[index]; }

  uint32_t index_of(int64_t id) const {
    if (identity_) return id >= 0 && static_cast<size_t>(id) < ids_.size() && ids_[id] == id ? id : kNoIndex;
    const Slot* const slot = id >= 0 ? table_.find(key_of(id)) : nullptr;
    return slot == nullptr ? kNoIndex : slot->index;
  }

  // The index that the n-th insertion from now will get (n from 0), if nothing is erased before.
  uint32_t next_index(size_t n) const {
    return n < free_.size() ? free_[free_.size() - 1 - n] : static_cast<uint32_t>(ids_.size() + n - free_.size());
  }

  // Makes room for a batch that inserts these ids and then frees `freed` indices, without affecting readers; after
  // `adopt` the batch cannot fail. If it throws std::bad_alloc, nothing has changed.
  void prepare(std::span<const int64_t> added, size_t freed) {
    if (added.empty() && freed == 0) return;
    ids_.prepare(ids_.size() + added.size());
    free_.prepare(free_.size() + freed);
    bool identity = identity_;
    for (size_t n = 0; identity && n < added.size(); ++n) identity = added[n] == kNoId || added[n] == next_index(n);
    if (!identity) prepare_table(added.size());
  }
  void adopt() noexcept {
    ids_.adopt();
    free_.adopt();
    if (next_.has_room(0)) adopt_table();
  }
  // Call it after `adopt`, or instead of it.
  void settle() noexcept {
    ids_.settle();
    free_.settle();
    next_ = {};
  }

  // With kNoId the index is reserved without an id, until `release` frees it. Requires: the id is not in use.
  uint32_t insert(int64_t id) {
    const uint32_t index = next_index(0);
    if (id != kNoId && (identity_ ? id != index : !table_.has_room(1))) {
      prepare_table(1);
      adopt_table();
      next_ = {};
    }
    if (free_.empty()) {
      ids_.push_back(id);
    } else {
      free_.pop_back();
      ids_[index] = id;
    }
    if (!identity_ && id != kNoId) enter(id, index, &table_);
    return index;
  }
  void release(uint32_t index) { free_.push_back(index); }

  // If the id was inserted again under another index, it keeps that one. Requires: an index in use.
  void erase(uint32_t index) {
    assert(in_use(index));
    if (!identity_) {
      Slot* const slot = table_.find(key_of(ids_[index]));
      if (slot != nullptr && slot->index == index) table_.take_out(slot);
    }
    ids_[index] = kNoId;
    free_.push_back(index);
  }

  const std::vector<int64_t>& ids() const { return ids_.values(); }
  const std::vector<uint32_t>& free_list() const { return free_.values(); }
  // Throws std::runtime_error if the two do not fit together; then the map is unusable.
  void restore(std::vector<int64_t> ids, std::vector<uint32_t> free) {
    check_saved(ids, free);
    ids_ = std::move(ids);
    free_ = std::move(free);
    table_ = {};
    identity_ = true;
    for (uint32_t i = 0; i < ids_.size(); ++i) identity_ = identity_ && (ids_[i] == kNoId || ids_[i] == i);
    if (identity_) return;
    identity_ = false;
    table_ = table_of_all(0);
    if (table_.size() != size()) throw std::runtime_error("ids: expected each once, got an id that two of them have");
  }

  size_t bytes() const {
    return ids_.capacity() * sizeof(int64_t) + free_.capacity() * sizeof(uint32_t) + table_.bytes();
  }

 private:
  static void check_saved(const std::vector<int64_t>& ids, const std::vector<uint32_t>& free) {
    if (ids.size() >= kNoIndex)
      throw std::runtime_error("ids: expected fewer than " + std::to_string(kNoIndex) + ", got " +
                               std::to_string(ids.size()));
    std::vector<bool> listed(ids.size());
    for (uint32_t index : free) {
      if (index >= ids.size() || ids[index] != kNoId || listed[index]) {
        throw std::runtime_error("free: expected each index below " + std::to_string(ids.size()) +
                                 " that has no id, once, got " + std::to_string(index) +
                                 ", which is not there, in use, or listed twice");
      }
      listed[index] = true;
    }
    size_t unnamed = 0;
    for (int64_t id : ids) {
      if (id < kNoId)
        throw std::runtime_error("ids: expected at least -1, which means none, got one: no id can be " +
                                 std::to_string(id));
      unnamed += id == kNoId;
    }
    if (unnamed != free.size())
      throw std::runtime_error("free: expected " + std::to_string(unnamed) + " indices, got " +
                               std::to_string(free.size()) + ": an index that has no id and is not free");
  }

  struct Slot {
    uint64_t key;  // the id plus 1
    uint32_t index;

    bool empty() const { return key == 0; }
  };
  using Table = SlotTable<Slot>;

  static uint64_t key_of(int64_t id) { return static_cast<uint64_t>(id) + 1; }
  // Requires: the table has room; the id is not negative.
  static void enter(int64_t id, uint32_t index, Table* table) { table->insert_in_room(key_of(id))->index = index; }
  // A table of all current ids, with room for more.
  Table table_of_all(size_t more) const {
    Table table;
    table.reserve(size() + more);
    if (!identity_ && table_.has_room(0)) {
      table_.for_each([&](const Slot& slot) { table.insert_in_room(slot.key)->index = slot.index; });
      return table;
    }
    for (uint32_t i = 0; i < ids_.size(); ++i) {
      if (ids_[i] != kNoId) enter(ids_[i], i, &table);
    }
    return table;
  }
  void prepare_table(size_t more) {
    if (!identity_ && table_.has_room(more)) return;
    next_ = table_of_all(more);
  }
  void adopt_table() noexcept {
    std::swap(table_, next_);
    identity_ = false;
  }

  bool identity_ = true;
  GrowingArray<int64_t> ids_;  // by index; kNoId if free
  GrowingArray<uint32_t> free_;
  Table table_, next_;  // `next_` is the new table, and after `adopt` the replaced one
};

}  // namespace livegnn
