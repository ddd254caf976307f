// Entries that leave a cache because memory is short, and come back: the clock algorithm. A hand goes round all tables;
// an entry that was looked up since it last came by is passed over once.
#include <algorithm>
#include <cstring>
#include <new>
#include <stdexcept>

#include "presampling/cache/sample_cache.h"

namespace livegnn {
namespace {

constexpr size_t kSlotBytes = 32;                  // of an entry, about
constexpr size_t kPlacesAtOnce = size_t{1} << 16;  // that readers wait for: a millisecond or two

void append(std::span<const uint8_t> record, const EntryKey& key, EvictedEntries* out) {
  const size_t begin = out->words.size();
  out->words.resize(begin + record.size() / sizeof(uint64_t));
  std::memcpy(out->words.data() + begin, record.data(), record.size());
  out->ends.push_back(out->words.size());
  out->keys.push_back(key);
}

void truncate(size_t keys, EvictedEntries* out) {
  out->keys.resize(keys);
  out->ends.resize(keys);
  out->words.resize(keys == 0 ? 0 : out->ends.back());
}

}  // namespace

void SampleCache::spill(size_t filter_bytes) {
  if (filter_ == nullptr) filter_ = std::make_unique<EvictedFilter>(filter_bytes);
}

bool SampleCache::evict(Eviction* eviction) {
  if (!spills()) throw std::logic_error("a cache that does not spill evicts nothing");
  const size_t keys = eviction->entries.keys.size();
  if (eviction->passed == 0) {
    // Round and round: the first time may only take marks away, and a slot that moves into a hole may be missed once.
    for (size_t table = 0; table < num_tables(); ++table) eviction->most += 3 * places_of(table);
  }
  ++version_;
  bool more = true;
  try {
    sweep(eviction);
    for (const EntryKey& key : victims_) {
      filter_->add(hash_of(key));
      erase(key);
    }
    more = eviction->freed < eviction->bytes && eviction->passed < eviction->most;
  } catch (const std::bad_alloc&) {
    truncate(keys, &eviction->entries);  // what has not left yet stays
    more = false;
  }
  victims_.clear();
  if (!more) settle();
  return more;
}

size_t SampleCache::places_of(size_t table) const {
  return table < samples_.size() ? samples_[table].slots.places() : features_[table - samples_.size()].places();
}

// Goes on from the hand, within one table.
void SampleCache::sweep(Eviction* eviction) {
  victims_.clear();
  const size_t table = hand_.table, places = places_of(table);
  const size_t end = std::min(places, hand_.place + kPlacesAtOnce);
  ++eviction->passed;  // also where there is nothing: it ends in any case
  for (; hand_.place < end && eviction->freed < eviction->bytes; ++hand_.place) {
    ++eviction->passed;
    eviction->freed += table < samples_.size()
                           ? pass_sample(static_cast<uint32_t>(table), &eviction->entries)
                           : pass_features(static_cast<uint32_t>(table - samples_.size()), &eviction->entries);
  }
  if (hand_.place >= places) hand_ = {(table + 1) % num_tables(), 0};
}

// What is at the hand: takes its mark away, or puts it among the victims and returns its bytes.
size_t SampleCache::pass_sample(uint32_t query, EvictedEntries* out) {
  Samples& samples = samples_[query];
  Slot* slot = samples.slots.at(hand_.place);
  if (slot == nullptr) return 0;
  if ((slot->marks & kUsed) != 0) {
    slot->marks &= static_cast<uint16_t>(~kUsed);
    return 0;
  }
  const CellFormat& format = samples.cells.format();
  const EntryKey key{RecordKind::kSample, query, slot->key};
  victims_.push_back(key);
  if ((slot->marks & kKept) == 0) {
    writer_.clear();
    writer_.sample(query, slot->key, format, samples.cells.view(slot->root()));
    append(writer_.last_record(), key, out);
  }
  return format.bytes(format.room(slot->size)) + kSlotBytes;
}

size_t SampleCache::pass_features(uint32_t type, EvictedEntries* out) {
  const FeatureTable::Marked row = features_[type].marked_at(hand_.place);
  if (row.row == nullptr) return 0;
  if ((*row.marks & kUsed) != 0) {
    *row.marks &= ~kUsed;
    return 0;
  }
  const size_t width = features_[type].width();
  const EntryKey key{RecordKind::kFeatures, type, row.node};
  victims_.push_back(key);
  if ((*row.marks & kKept) == 0) {
    writer_.clear();
    writer_.features(type, row.node, {row.row, width});
    append(writer_.last_record(), key, out);
  }
  return width * sizeof(float) + kSlotBytes;
}

void SampleCache::restore(const EntryKey& key, std::span<const uint8_t> bytes, bool kept) {
  const Record record = PublishedBlock::read_record(bytes);
  check(record);
  if (record.kind != key.kind || record.what != key.what || record.node != key.node) {
    throw std::runtime_error("evicted entry: it is another one than was asked for");
  }
  const auto marks = static_cast<uint16_t>(kUsed | (kept ? kKept : 0));
  if (key.kind == RecordKind::kFeatures) {
    FeatureTable& table = features_[key.what];
    if (table.row_of(key.node) != FeatureTable::kNoRow) return;
    table.set(key.node, record.features.data());
    *table.marks_of(key.node) = marks;
  } else {
    Samples& samples = samples_[key.what];
    if (samples.slots.find(key.node) != nullptr) return;
    set_sample(&samples, key.node, record.sample);
    samples.slots.find(key.node)->marks = marks;
  }
  ++version_;
}

}  // namespace livegnn
