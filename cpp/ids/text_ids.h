// Texts as integers: the rest of the core knows integer ids alone. A number says nothing, and is never saved.
//
//   text ─► table of hashes ─► slot ─► text        number = generation of the slot << 32 | slot
//
// A text is kept while a node of the graph has it (`retain`, `release`: one count for all node types), and while
// somebody may still hold its number: an update whose ids are not yet asked for, a delta, a what-if, the history.
// These do not count numbers. Each has a *pin*, an interval of a clock that ticks when a pin is opened or closed; a
// text that nodes no longer have is given back when no pin's interval meets the one in which the text was in use. So a
// pin that is held for ever keeps what was there while it was open, not what came later.
//
// Slots are given out again, numbers are not, but for one slot's 2^32 generations: a number that outlived its text
// names nothing, never another text. The lowest free slot is taken first, and runs of free slots go back to the
// system; while no text was ever given back, texts are numbered in the order in which they come.
//
// Invariants: a text in the table has one slot, and its slot has it. A slot without nodes is in the queue of those that
// may go, once. The table is at least an eighth full, or small; it grows and shrinks aside, a few entries at every
// change, so that nobody waits for all of them.
// Thread safety: all of it. Nothing is called from inside, and the lock is held for `kAtOnce` texts at a time, so it
// may be waited for whatever else is held.
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

  // The number of a text, which it gets if it has none. To be called with a pin open: it may be the only holder.
  // Throws std::bad_alloc, and then nothing has changed.
  int64_t intern(std::string_view text);
  // kNoId if it has none.
  int64_t find(std::string_view text) const;
  // Nothing if the text was given back.
  std::optional<std::string> text(int64_t number) const;

  // The same of many: `text_at(i)` is the i-th text; `visit(i, text)`, with null for one that was given back.
  template <class TextAt>
  void intern(size_t count, const TextAt& text_at, int64_t* numbers);
  template <class TextAt>
  void find(size_t count, const TextAt& text_at, int64_t* numbers) const;
  template <class Visit>
  void read(const int64_t* numbers, size_t count, const Visit& visit) const;

  // Nodes have come by these numbers, or have gone. kNoId is nobody's.
  void retain(std::span<const int64_t> numbers) noexcept;
  void release(std::span<const int64_t> numbers) noexcept;

  // Gives back what neither nodes nor pins hold, if that may be as much as they do.
  void collect_if_due() noexcept;
  // Whatever it is.
  void collect() noexcept;

  size_t size() const;   // texts that have a number
  size_t bytes() const;  // what they take, about

 private:
  friend class TextPin;

  struct Slot {
    std::string text;
    uint64_t born, last_used;  // by the clock; `last_used` where no node has it
    uint32_t nodes = 0;
    uint32_t generation = 0;
    uint32_t next = 0;  // in the queue
    bool used = false, queued = false;
  };
  static constexpr uint32_t kRun = 64;  // slots that come and go together
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
  std::vector<uint32_t> next_generation_;  // by run: of its slots when it is made again
  size_t first_free_ = 0;                  // no run before it has a free slot
  HashTable table_, old_;                  // `old_` while entries move from it
  size_t moved_ = 0;                       // buckets of `old_` that are empty
  size_t size_ = 0, text_bytes_ = 0;
  uint32_t queue_ = kNoIndex;
  size_t queued_ = 0, kept_ = 0;  // kept: in the queue after the last time it was looked through
  uint64_t clock_ = 0;
  Pins pins_;
  std::mutex collecting_;
};

// Holds every text that is in use from when it is made until it is closed, for as long as it is there. Without texts,
// where ids are integers, it does nothing.
class TextPin {
 public:
  explicit TextPin(std::shared_ptr<TextIds> ids);
  ~TextPin() { let_go(); }
  TextPin(const TextPin&) = delete;
  TextPin& operator=(const TextPin&) = delete;

  // What comes into use from now on is not held.
  void close() noexcept;
  // Nothing is held any more.
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
      // A text that no node has is about to be used again, which must be noted.
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
