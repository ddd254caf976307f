// Maps text ids to integers: the rest of the core only uses integer ids. The numbers have no meaning, and are never
// saved.
//
//   text ─► table of hashes ─► slot ─► text        number = generation of the slot << 32 | slot
//
// A text is kept while a node of the graph has it (`retain`, `release`: one count for all node types), and while
// another object may still hold its number: an update whose ids have not been read yet, a delta, a what-if, the
// history. These objects do not count references. Each has a *pin*, an interval of a clock that ticks when a pin is
// opened or closed. A text that no node has is freed when no pin's interval overlaps the interval in which the text was
// in use. So a pin that is held for ever keeps the texts that were in use while it was open, not later ones.
//
// Slots are reused, numbers are not (except after 2^32 generations of one slot): the number of a freed text is unknown,
// and never stands for another text. The lowest free slot is used first, and runs of free slots are returned to the
// system. While no text was ever freed, texts are numbered in the order in which they are added.
//
// Invariants: a text in the table has one slot, and that slot holds the text. A slot without nodes is in the queue of
// candidates for freeing, once. The table is at least an eighth full, or small; it grows and shrinks incrementally, a
// few entries at every change, so that no call waits for all of them.
// Thread safety: any thread may call everything. The code calls no foreign code and holds its lock for at most
// `kAtOnce` texts at a time, so a thread may wait for it whatever other locks it holds.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ids/id_map.h"
#include "threads/fair_lock.h"

namespace livegnn {

class TextIds {
 public:
  static constexpr size_t kAtOnce = 64;

  TextIds() = default;
  TextIds(const TextIds&) = delete;
  TextIds& operator=(const TextIds&) = delete;

  // The number of a text, which gets one if it has none. The caller must have a pin open, because the pin may be the
  // only holder. Throws std::bad_alloc, and then nothing has changed.
  int64_t intern(std::string_view text);
  // kNoId if the text has no number.
  int64_t find(std::string_view text) const;
  // Nothing if the text was freed.
  std::optional<std::string> text(int64_t number) const;

  // The same for many texts: `text_at(i)` is the i-th text; `visit(i, text)` receives null for one that was freed.
  template <class TextAt>
  void intern(size_t count, const TextAt& text_at, int64_t* numbers);
  template <class TextAt>
  void find(size_t count, const TextAt& text_at, int64_t* numbers) const;
  template <class Visit>
  void read(const int64_t* numbers, size_t count, const Visit& visit) const;

  // Records that nodes with these numbers were added, or removed. kNoId is ignored.
  void retain(std::span<const int64_t> numbers) noexcept;
  void release(std::span<const int64_t> numbers) noexcept;

  // Frees what neither nodes nor pins hold, if that may be as much as what they hold.
  void collect_if_due() noexcept;
  // Frees it in any case.
  void collect() noexcept;

  size_t size() const;   // texts with a number
  size_t bytes() const;  // approximate memory of the texts

  // The lock of all this, for a thread that forks, and for the process that it makes (`FairLock::renew`).
  FairLock& lock() const { return lock_; }

 private:
  friend class TextPin;

  struct Slot {
    std::string text;
    uint64_t born, last_used;  // on the clock; `last_used` is valid if no node has it
    uint32_t nodes = 0;
    uint32_t generation = 0;
    uint32_t next = 0;  // in the queue
    bool used = false, queued = false;
  };
  static constexpr uint32_t kRun = 64;  // slots that are allocated and freed together
  struct Run {
    Slot slots[kRun];
  };
  struct Entry {
    uint32_t hash, slot;  // slot + 1; 0: empty
  };
  struct Freed {
    void operator()(Entry* entries) const { std::free(entries); }
  };
  struct HashTable {  // linear probing, without tombstones
    std::unique_ptr<Entry[], Freed> entries;
    size_t capacity = 0, size = 0;
    bool allocate(size_t new_capacity);
    size_t home(uint32_t hash) const { return hash & (capacity - 1); }
    void insert(Entry entry);
    void erase(size_t at);
  };
  using Pins = std::map<uint64_t, uint64_t>;  // from, to

  static uint32_t hash_of(std::string_view text);
  Slot& slot(uint32_t index) { return runs_[index / kRun]->slots[index % kRun]; }
  const Slot& slot(uint32_t index) const { return runs_[index / kRun]->slots[index % kRun]; }
  const Slot* named(int64_t number) const;
  static size_t find_in(const HashTable& table, uint32_t hash, std::string_view text, const TextIds& ids);
  uint32_t find_slot(uint32_t hash, std::string_view text) const;
  int64_t number_of(uint32_t index) const { return int64_t{slot(index).generation} << 32 | index; }
  int64_t find_locked(std::string_view text) const;
  int64_t intern_locked(std::string_view text);
  uint32_t take_slot();
  void enqueue(uint32_t index);
  void make_room();
  void move_some(size_t buckets);
  void change_capacity(size_t capacity);
  void give_back(uint32_t index);
  bool collect_some(uint32_t* todo, size_t* kept);

  mutable FairLock lock_;
  std::vector<std::unique_ptr<Run>> runs_;
  std::vector<uint64_t> free_;             // by run: a bit for each slot
  std::vector<uint32_t> next_generation_;  // by run: for its slots when it is allocated again
  size_t first_free_ = 0;                  // no run before it has a free slot
  HashTable table_, old_;                  // `old_` while entries move from it
  size_t moved_ = 0;                       // buckets of `old_` that are empty
  size_t size_ = 0, text_bytes_ = 0;
  uint32_t queue_ = kNoIndex;
  size_t queued_ = 0, kept_ = 0;  // kept: number of entries in the queue after it was last processed
  uint64_t clock_ = 0;
  Pins pins_;
  std::mutex collecting_;
};

// Holds every text that is in use between its construction and `close`, for as long as it exists. Without texts
// (integer ids) it does nothing.
class TextPin {
 public:
  explicit TextPin(std::shared_ptr<TextIds> ids);
  ~TextPin() { let_go(); }
  TextPin(const TextPin&) = delete;
  TextPin& operator=(const TextPin&) = delete;

  // Texts that come into use from now on are not held.
  void close() noexcept;
  // Releases all texts.
  void let_go() noexcept;

 private:
  std::shared_ptr<TextIds> ids_;
  uint64_t from_;
};

template <class TextAt>
void TextIds::intern(size_t count, const TextAt& text_at, int64_t* numbers) {
  for (size_t begin = 0; begin < count; begin += kAtOnce) {
    const size_t end = begin + std::min(kAtOnce, count - begin);
    bool known = true;
    {
      std::shared_lock shared(lock_);
      // A text without nodes will be used again, and the table must record that.
      for (size_t i = begin; i < end; ++i) {
        numbers[i] = find_locked(text_at(i));
        known = known && numbers[i] != kNoId && named(numbers[i])->nodes > 0;
      }
    }
    if (known) continue;
    std::unique_lock alone(lock_);
    for (size_t i = begin; i < end; ++i) numbers[i] = intern_locked(text_at(i));
  }
}

template <class TextAt>
void TextIds::find(size_t count, const TextAt& text_at, int64_t* numbers) const {
  for (size_t begin = 0; begin < count; begin += kAtOnce) {
    std::shared_lock shared(lock_);
    for (size_t i = begin; i < begin + std::min(kAtOnce, count - begin); ++i) numbers[i] = find_locked(text_at(i));
  }
}

template <class Visit>
void TextIds::read(const int64_t* numbers, size_t count, const Visit& visit) const {
  for (size_t begin = 0; begin < count; begin += kAtOnce) {
    std::shared_lock shared(lock_);
    for (size_t i = begin; i < begin + std::min(kAtOnce, count - begin); ++i) {
      const Slot* found = named(numbers[i]);
      visit(i, found == nullptr ? nullptr : &found->text);
    }
  }
}

}  // namespace livegnn
