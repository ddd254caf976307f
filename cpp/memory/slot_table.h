// An open table from 64-bit ids to small slots: the ground of all tables by id.
//
//   id ─► home slot, by the upper bits of the hash ─►  .. | slot | slot | empty | ..
//
// A slot that is erased is filled by those after it, so there are no tombstones: keys that come and go leave nothing.
// Because the upper bits of the hash decide, growing and shrinking traverse both tables sequentially, at the speed of
// memory. The table grows when five eighths are full, and shrinks when a sixteenth is.
//
// Other open tables are none of these, because they are laid out for what is asked of them most: NumberSet and
// NodeNumbers are cleared for each sample and have keys of 4 bytes, NodeTable has rows of as many words as there are
// columns, RowCache lies in memory that processes share.
//
// Invariants: there is no empty slot between a slot and its home; a key has one slot.
// Thread safety: any number of readers, or one writer. Pointers to slots are good until the next insertion or erasure.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <new>
#include <type_traits>
#include <utility>

#include "hashing/mix_hash.h"
#include "memory/prefetch.h"
#include "memory/table.h"

namespace livegnn {

// `Slot` has a `uint64_t key` and `bool empty() const`, and is empty if all its bytes are 0; any key may be in use.
template <class Slot>
class SlotTable {
  static_assert(std::is_trivially_copyable_v<Slot> && sizeof(Slot) % sizeof(float) == 0);

 public:
  SlotTable() = default;
  SlotTable(SlotTable&& other) noexcept { swap(other); }
  SlotTable& operator=(SlotTable&& other) noexcept {
    swap(other);
    return *this;
  }

  size_t size() const { return size_; }
  size_t bytes() const { return block_.size() * sizeof(float); }

  void prefetch(uint64_t key) const {
    if (size_ > 0) livegnn::prefetch(slots() + home_of(key));
  }
  // Null if there is no such key.
  Slot* find(uint64_t key) {
    if (size_ == 0) return nullptr;
    Slot* const slot = slots() + place_of(key);
    return slot->empty() ? nullptr : slot;
  }
  const Slot* find(uint64_t key) const { return const_cast<SlotTable*>(this)->find(key); }

  // Whether so many insertions need no memory.
  bool has_room(size_t more) const { return block_.size() > 0 && (size_ + more) * 8 <= num_slots() * 5; }
  // Makes room for that. If it throws std::bad_alloc, nothing has changed.
  void reserve(size_t more) {
    const size_t slots = slots_for(size_ + more);
    if (slots > num_slots()) rebuild(slots);
  }
  // The slot of this key. If it is new it is `empty()` but for its key: the caller fills it, or calls `erase`, before
  // anything else is done with the table. If it throws std::bad_alloc, nothing has changed.
  Slot* insert(uint64_t key) {
    if (!has_room(1)) {
      if (Slot* const slot = find(key)) return slot;
      reserve(std::max<size_t>(1, size_ / 2));
    }
    return insert_in_room(key);
  }
  // The same. Requires: `has_room(1)`.
  Slot* insert_in_room(uint64_t key) {
    Slot* const slot = slots() + place_of(key);
    return slot->empty() ? take(slot, key) : slot;
  }
  void erase(Slot* erased) noexcept {
    take_out(erased);
    shrink();
  }
  // The same, and the room for another stays.
  void take_out(Slot* erased) noexcept {
    size_t hole = static_cast<size_t>(erased - slots());
    // Later slots move up, as far as their own homes allow.
    for (size_t i = (hole + 1) & mask_; !slots()[i].empty(); i = (i + 1) & mask_) {
      if (((i - home_of(slots()[i].key)) & mask_) < ((i - hole) & mask_)) continue;
      slots()[hole] = slots()[i];
      hole = i;
    }
    slots()[hole] = Slot{};
    --size_;
  }
  void clear() noexcept {
    block_ = FloatBlock();
    mask_ = size_ = 0;
    shift_ = 63;
  }

  // Slots by their place, for whoever goes through a part of the table; null if it is empty. Requires: below `places`.
  size_t places() const { return num_slots(); }
  Slot* at(size_t place) { return slots()[place].empty() ? nullptr : slots() + place; }

  // In no order. `visit` must neither insert nor erase.
  template <class Visit>
  void for_each(Visit&& visit) {
    for (size_t i = 0, n = num_slots(); i < n; ++i) {
      if (!slots()[i].empty()) visit(slots()[i]);
    }
  }
  template <class Visit>
  void for_each(Visit&& visit) const {
    for (size_t i = 0, n = num_slots(); i < n; ++i) {
      if (!slots()[i].empty()) visit(slots()[i]);
    }
  }

 private:
  static constexpr size_t kFewest = 16;

  Slot* take(Slot* slot, uint64_t key) {
    slot->key = key;
    ++size_;
    return slot;
  }

  static size_t slots_for(size_t size) { return std::bit_ceil(std::max(kFewest, size + (size * 3 + 4) / 5)); }
  size_t num_slots() const { return block_.size() > 0 ? mask_ + 1 : 0; }
  Slot* slots() { return reinterpret_cast<Slot*>(block_.data()); }
  const Slot* slots() const { return reinterpret_cast<const Slot*>(block_.data()); }
  size_t home_of(uint64_t key) const { return static_cast<size_t>(MixHash{}(key) >> shift_); }
  size_t place_of(uint64_t key) const {
    size_t i = home_of(key);
    while (!slots()[i].empty() && slots()[i].key != key) i = (i + 1) & mask_;
    return i;
  }

  void rebuild(size_t num) {
    SlotTable next;
    next.block_ = FloatBlock(num * sizeof(Slot) / sizeof(float));
    next.mask_ = num - 1;
    next.shift_ = 64 - std::countr_zero(num);
    for_each([&](const Slot& slot) { next.slots()[next.place_of(slot.key)] = slot; });
    next.size_ = size_;
    swap(next);
  }
  void swap(SlotTable& other) noexcept {
    std::swap(block_, other.block_);
    std::swap(mask_, other.mask_);
    std::swap(size_, other.size_);
    std::swap(shift_, other.shift_);
  }
  void shrink() noexcept {
    if (size_ == 0) return clear();
    if (num_slots() <= kFewest || size_ * 16 > num_slots()) return;
    try {
      rebuild(slots_for(size_ * 2));
    } catch (const std::bad_alloc&) {
      // The larger table does as well.
    }
  }

  FloatBlock block_;  // zeroed, in huge pages if it is large
  size_t mask_ = 0, size_ = 0;
  int shift_ = 63;
};

}  // namespace livegnn
