// Maps the user's ids to dense 32-bit indices.
//
// While every node's id equals its index (the common case of a graph that was numbered before it was loaded) there is
// no hash table: a lookup is a comparison. The table is built when the first other id is added. Indices of removed
// nodes are reused, the one freed last first.
//
//   id ─► home entry, by the upper bits of the hash ─►  .. | id + 1, index | id + 2, index | 0 | ..   16 bytes each
//
// If a batch finds too little room, it builds a new table of twice the size while readers use the old one. Because the
// upper bits of the hash decide, both tables are traversed sequentially, at the speed of memory.
//
// Invariants: `index_of(id_of(i)) == i` for every index in use; an index in `free_` is not in use. There is no empty
// entry between an entry and its home.
// Thread safety: any number of readers, or one writer; the writer's `prepare` and `settle` may run concurrently with
// readers.
#pragma once

#include <tsl/robin_map.h>

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "hashing/mix_hash.h"
#include "memory/growing_array.h"
#include "memory/table.h"

namespace livegnn {

inline constexpr uint32_t kNoIndex = UINT32_MAX;
inline constexpr int64_t kNoId = -1;

// Maps non-negative ids to indices.
class IdTable {
 public:
  IdTable() = default;
  // Makes a table with room for this many ids.
  explicit IdTable(size_t size) {
    const size_t entries = std::bit_ceil(std::max<size_t>(16, size + size * 3 / 5));
    block_ = FloatBlock(entries * sizeof(Entry) / sizeof(float));
    mask_ = entries - 1;
    shift_ = 64 - std::countr_zero(entries);
  }

  size_t size() const { return size_; }
  bool has_room(size_t more) const { return block_.size() > 0 && (size_ + more) * 8 <= (mask_ + 1) * 5; }
  size_t bytes() const { return block_.size() * sizeof(float); }

  uint32_t find(int64_t id) const {
    const Entry& entry = entries()[place_of(key_of(id))];
    return entry.key == 0 ? kNoIndex : entry.index;
  }
  // Requires: `has_room(1)`; the id is not negative.
  void insert(int64_t id, uint32_t index) {
    assert(has_room(1) && id >= 0);
    Entry& entry = entries()[place_of(key_of(id))];
    size_ += entry.key == 0 ? 1 : 0;
    entry = {key_of(id), index};
  }
  void erase(int64_t id) {
    size_t hole = place_of(key_of(id));
    if (entries()[hole].key == 0) return;
    // Later entries move up, as far as their own homes allow.
    for (size_t i = (hole + 1) & mask_; entries()[i].key != 0; i = (i + 1) & mask_) {
      if (((i - home_of(entries()[i].key)) & mask_) < ((i - hole) & mask_)) continue;
      entries()[hole] = entries()[i];
      hole = i;
    }
    entries()[hole] = {};
    --size_;
  }
  void insert_all(const IdTable& from) {
    for (size_t i = 0; from.block_.size() > 0 && i <= from.mask_; ++i) {
      const Entry& entry = from.entries()[i];
      if (entry.key != 0) insert(static_cast<int64_t>(entry.key - 1), entry.index);
    }
  }

 private:
  struct Entry {
    uint64_t key;  // 0: empty
    uint32_t index;
  };

  static uint64_t key_of(int64_t id) { return static_cast<uint64_t>(id) + 1; }
  size_t home_of(uint64_t key) const { return static_cast<size_t>(MixHash{}(key) >> shift_); }
  size_t place_of(uint64_t key) const {
    size_t i = home_of(key);
    while (entries()[i].key != 0 && entries()[i].key != key) i = (i + 1) & mask_;
    return i;
  }
  Entry* entries() { return reinterpret_cast<Entry*>(block_.data()); }
  const Entry* entries() const { return reinterpret_cast<const Entry*>(block_.data()); }

  FloatBlock block_;  // zeroed, in huge pages if it is large
  size_t mask_ = 0, size_ = 0;
  int shift_ = 0;
};

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
    return id >= 0 ? table_.find(id) : kNoIndex;
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
    next_ = IdTable();
  }

  // With kNoId the index is reserved without an id, until `release` frees it. Requires: the id is not in use.
  uint32_t insert(int64_t id) {
    const uint32_t index = next_index(0);
    if (id != kNoId && (identity_ ? id != index : !table_.has_room(1))) {
      prepare_table(1);
      adopt_table();
      next_ = IdTable();
    }
    if (free_.empty()) {
      ids_.push_back(id);
    } else {
      free_.pop_back();
      ids_[index] = id;
    }
    if (!identity_ && id != kNoId) table_.insert(id, index);
    return index;
  }
  void release(uint32_t index) { free_.push_back(index); }

  // If the id was inserted again under another index, it keeps that one. Requires: an index in use.
  void erase(uint32_t index) {
    assert(in_use(index));
    if (!identity_ && table_.find(ids_[index]) == index) table_.erase(ids_[index]);
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
    table_ = IdTable();
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

  // A table of all current ids, with room for more.
  IdTable table_of_all(size_t more) const {
    IdTable table(size() + more);
    if (!identity_ && table_.has_room(0)) {
      table.insert_all(table_);
      return table;
    }
    for (uint32_t i = 0; i < ids_.size(); ++i) {
      if (ids_[i] != kNoId) table.insert(ids_[i], i);
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
  IdTable table_, next_;  // `next_` is the new table, and after `adopt` the replaced one
};

}  // namespace livegnn
