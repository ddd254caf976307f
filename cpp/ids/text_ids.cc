#include "ids/text_ids.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <new>

namespace livegnn {
namespace {

constexpr size_t kSmallTable = 1024;
constexpr size_t kMovedAtOnce = 32;  // buckets, at every change while a table is being replaced
constexpr size_t kFewQueued = 256;
constexpr size_t kKeptPerPin = 32;  // texts that are examined again when a pin is released
constexpr uint64_t kOpen = UINT64_MAX;

// Bytes that a text takes in addition to its slot.
size_t outside(const std::string& text) { return text.capacity() > 15 ? text.capacity() + 17 : 0; }

}  // namespace

// -- the table

bool TextIds::HashTable::allocate(size_t new_capacity) {
  // calloc's memory is zeroed on first access, so no call waits for it.
  entries.reset(static_cast<Entry*>(std::calloc(new_capacity, sizeof(Entry))));
  capacity = entries ? new_capacity : 0;
  size = 0;
  return entries != nullptr;
}

void TextIds::HashTable::insert(Entry entry) {
  size_t at = home(entry.hash);
  while (entries[at].slot != 0) at = (at + 1) & (capacity - 1);
  entries[at] = entry;
  ++size;
}

// Later entries move up, as far as their homes allow.
void TextIds::HashTable::erase(size_t at) {
  const size_t mask = capacity - 1;
  for (size_t next = (at + 1) & mask; entries[next].slot != 0; next = (next + 1) & mask) {
    if (((next - home(entries[next].hash)) & mask) < ((next - at) & mask)) continue;
    entries[at] = entries[next];
    at = next;
  }
  entries[at] = {};
  --size;
}

uint32_t TextIds::hash_of(std::string_view text) {
  const uint64_t hash = std::hash<std::string_view>()(text);
  return static_cast<uint32_t>(hash ^ (hash >> 32));
}

// The entry of a text; the table's capacity if it is not there.
size_t TextIds::find_in(const HashTable& table, uint32_t hash, std::string_view text, const TextIds& ids) {
  if (table.size == 0) return table.capacity;
  for (size_t at = table.home(hash); table.entries[at].slot != 0; at = (at + 1) & (table.capacity - 1)) {
    const Entry& entry = table.entries[at];
    if (entry.hash == hash && ids.slot(entry.slot - 1).text == text) return at;
  }
  return table.capacity;
}

uint32_t TextIds::find_slot(uint32_t hash, std::string_view text) const {
  for (const HashTable* table : {&table_, &old_}) {
    const size_t at = find_in(*table, hash, text, *this);
    if (at < table->capacity) return table->entries[at].slot - 1;
  }
  return kNoIndex;
}

void TextIds::move_some(size_t buckets) {
  if (!old_.entries) return;
  for (const size_t end = std::min(old_.capacity, moved_ + buckets); moved_ < end; ++moved_) {
    while (old_.entries[moved_].slot != 0) {
      table_.insert(old_.entries[moved_]);
      old_.erase(moved_);
    }
  }
  if (moved_ == old_.capacity) old_ = {};
}

void TextIds::change_capacity(size_t capacity) {
  move_some(old_.capacity);
  HashTable larger;
  if (!larger.allocate(capacity)) throw std::bad_alloc();
  old_ = std::move(table_);
  table_ = std::move(larger);
  moved_ = 0;
  if (old_.size == 0) old_ = {};
}

// Makes room for one more entry.
void TextIds::make_room() {
  if (table_.capacity == 0) change_capacity(kSmallTable);
  if (size_ + 1 > table_.capacity / 4 * 3) change_capacity(table_.capacity * 2);
  move_some(kMovedAtOnce);
}

// -- texts and slots

const TextIds::Slot* TextIds::named(int64_t number) const {
  const auto index = static_cast<uint32_t>(number);
  if (number < 0 || index / kRun >= runs_.size() || !runs_[index / kRun]) return nullptr;
  const Slot& found = slot(index);
  return found.used && found.generation == static_cast<uint64_t>(number) >> 32 ? &found : nullptr;
}

int64_t TextIds::find_locked(std::string_view text) const {
  const uint32_t index = find_slot(hash_of(text), text);
  return index == kNoIndex ? kNoId : number_of(index);
}

// The lowest free slot; it is not yet taken.
uint32_t TextIds::take_slot() {
  while (first_free_ < free_.size() && free_[first_free_] == 0) ++first_free_;
  if (first_free_ == free_.size()) {
    runs_.reserve(runs_.size() + 1 > runs_.capacity() ? 2 * runs_.size() + 1 : 0);
    free_.reserve(runs_.capacity());
    next_generation_.reserve(runs_.capacity());
    runs_.push_back(nullptr);
    free_.push_back(~uint64_t{0});
    next_generation_.push_back(0);
  }
  auto& run = runs_[first_free_];
  if (!run) {
    run = std::make_unique<Run>();
    for (Slot& made : run->slots) made.generation = next_generation_[first_free_];
  }
  return static_cast<uint32_t>(first_free_ * kRun + std::countr_zero(free_[first_free_]));
}

void TextIds::enqueue(uint32_t index) {
  Slot& one = slot(index);
  if (one.queued) return;
  one.queued = true;
  one.next = queue_;
  queue_ = index;
  ++queued_;
}

int64_t TextIds::intern_locked(std::string_view text) {
  const uint32_t hash = hash_of(text);
  uint32_t index = find_slot(hash, text);
  if (index == kNoIndex) {
    make_room();
    index = take_slot();
    Slot& made = slot(index);
    made.text = text;
    made.born = clock_;
    made.nodes = 0;
    made.used = true;
    free_[index / kRun] &= ~(uint64_t{1} << index % kRun);
    table_.insert({hash, index + 1});
    ++size_;
    text_bytes_ += outside(made.text);
    enqueue(index);
  }
  slot(index).last_used = clock_;
  return number_of(index);
}

void TextIds::give_back(uint32_t index) {
  Slot& one = slot(index);
  const uint32_t hash = hash_of(one.text);
  for (HashTable* table : {&table_, &old_}) {
    const size_t at = find_in(*table, hash, one.text, *this);
    if (at == table->capacity) continue;
    table->erase(at);
    break;
  }
  --size_;
  text_bytes_ -= outside(one.text);
  std::string().swap(one.text);
  one.used = false;
  const size_t run = index / kRun;
  if (++one.generation == 1u << 31) return;  // a number is an id, and ids are not negative: the slot is not used again
  free_[run] |= uint64_t{1} << index % kRun;
  first_free_ = std::min(first_free_, run);
  if (free_[run] != ~uint64_t{0}) return;
  for (const Slot& gone : runs_[run]->slots) {
    next_generation_[run] = std::max(next_generation_[run], gone.generation);
  }
  runs_[run].reset();
}

int64_t TextIds::intern(std::string_view text) {
  std::unique_lock alone(lock_);
  return intern_locked(text);
}

int64_t TextIds::find(std::string_view text) const {
  std::shared_lock shared(lock_);
  return find_locked(text);
}

std::optional<std::string> TextIds::text(int64_t number) const {
  std::shared_lock shared(lock_);
  const Slot* found = named(number);
  return found == nullptr ? std::nullopt : std::optional(found->text);
}

// -- holders

void TextIds::retain(std::span<const int64_t> numbers) noexcept {
  for (; !numbers.empty(); numbers = numbers.subspan(std::min(kAtOnce, numbers.size()))) {
    std::unique_lock alone(lock_);
    for (int64_t number : numbers.first(std::min(kAtOnce, numbers.size()))) {
      if (named(number) != nullptr) ++slot(static_cast<uint32_t>(number)).nodes;
    }
  }
}

void TextIds::release(std::span<const int64_t> numbers) noexcept {
  for (; !numbers.empty(); numbers = numbers.subspan(std::min(kAtOnce, numbers.size()))) {
    std::unique_lock alone(lock_);
    for (int64_t number : numbers.first(std::min(kAtOnce, numbers.size()))) {
      if (named(number) == nullptr) continue;
      const auto index = static_cast<uint32_t>(number);
      Slot& one = slot(index);
      if (one.nodes == 0 || --one.nodes > 0) continue;
      one.last_used = clock_;
      enqueue(index);
    }
  }
}

// Processes some entries of the queue `todo`; false when it is empty.
bool TextIds::collect_some(uint32_t* todo, size_t* kept) {
  std::unique_lock alone(lock_);
  // For each pin, sorted by start: the latest end among all pins up to this one.
  std::vector<std::pair<uint64_t, uint64_t>> reach;
  reach.reserve(pins_.size());
  uint64_t furthest = 0;
  for (const auto& [from, to] : pins_) reach.emplace_back(from, furthest = std::max(furthest, to));
  for (size_t i = 0; i < kAtOnce + pins_.size() && *todo != kNoIndex; ++i) {
    const uint32_t index = *todo;
    Slot& one = slot(index);
    *todo = one.next;
    one.queued = false;
    --queued_;
    if (one.nodes > 0) continue;
    auto after = std::upper_bound(reach.begin(), reach.end(), std::pair(one.last_used, kOpen));
    if (after != reach.begin() && std::prev(after)->second >= one.born) {
      enqueue(index);
      ++*kept;
      continue;
    }
    give_back(index);
    move_some(kMovedAtOnce);
    if (!old_.entries && table_.capacity > kSmallTable && size_ < table_.capacity / 8) {
      change_capacity(table_.capacity / 4);
    }
  }
  return *todo != kNoIndex;
}

void TextIds::collect() noexcept {
  std::unique_lock one(collecting_, std::try_to_lock);
  if (!one) return;
  uint32_t todo;
  {
    std::unique_lock alone(lock_);
    todo = std::exchange(queue_, kNoIndex);
  }
  size_t kept = 0;
  try {
    while (collect_some(&todo, &kept)) {
    }
  } catch (const std::bad_alloc&) {  // there is no memory to free memory with: try again next time
  }
  std::unique_lock alone(lock_);
  while (todo != kNoIndex) {
    const uint32_t index = todo;
    Slot& one = slot(index);
    todo = one.next;
    one.next = queue_;
    queue_ = index;
  }
  kept_ = kept;
}

void TextIds::collect_if_due() noexcept {
  {
    std::shared_lock shared(lock_);
    if (queued_ <= kFewQueued + 2 * kept_) return;
  }
  collect();
}

size_t TextIds::size() const {
  std::shared_lock shared(lock_);
  return size_;
}

size_t TextIds::bytes() const {
  std::shared_lock shared(lock_);
  size_t bytes = text_bytes_ + (table_.capacity + old_.capacity) * sizeof(Entry) +
                 runs_.capacity() * (sizeof(runs_[0]) + sizeof(free_[0]) + sizeof(next_generation_[0]));
  for (const auto& run : runs_) bytes += run ? sizeof(Run) : 0;
  return bytes;
}

TextPin::TextPin(std::shared_ptr<TextIds> ids) : ids_(std::move(ids)) {
  if (!ids_) return;
  std::unique_lock alone(ids_->lock_);
  from_ = ids_->clock_ + 1;
  ids_->pins_.emplace(from_, kOpen);
  ids_->clock_ = from_;
}

void TextPin::close() noexcept {
  if (!ids_) return;
  std::unique_lock alone(ids_->lock_);
  uint64_t& to = ids_->pins_.find(from_)->second;
  if (to == kOpen) to = ids_->clock_++;
}

void TextPin::let_go() noexcept {
  if (!ids_) return;
  {
    std::unique_lock alone(ids_->lock_);
    ids_->pins_.erase(from_);
    // Some texts may have been kept because of this pin; over time, all are examined again.
    ids_->kept_ -= std::min(ids_->kept_, kKeptPerPin);
  }
  ids_->collect_if_due();
  ids_.reset();
}

}  // namespace livegnn
