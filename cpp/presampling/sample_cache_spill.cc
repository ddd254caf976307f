// Entries that leave a cache because memory is short, and come back: the clock algorithm. A hand goes round all tables;
// an entry that was looked up since it last came by is passed over once.
#include <algorithm>
#include <cstring>
#include <new>
#include <stdexcept>

#include "presampling/sample_cache.h"

namespace livegnn {
namespace {

constexpr size_t kSlotBytes = 32;  // of an entry, about

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

EvictedEntries SampleCache::evict(size_t bytes) {
  if (!spills()) throw std::logic_error("a cache that does not spill evicts nothing");
  EvictedEntries out;
  std::vector<EntryKey> victims;
  const size_t tables = samples_.size() + features_.size();
  ++version_;
  size_t freed = 0, keys = 0;
  try {
    // Twice around: the first time may only take marks away.
    for (size_t steps = 2 * tables + 1; steps > 0 && freed < bytes; --steps) {
      victims.clear();
      keys = out.keys.size();
      freed += sweep(bytes - freed, &victims, &out);
      for (const EntryKey& key : victims) {
        filter_->add(hash_of(key));
        erase(key);
      }
      if (freed < bytes) hand_ = {(hand_.table + 1) % tables, 0};
    }
  } catch (const std::bad_alloc&) {
    truncate(keys, &out);  // what has not left yet stays
  }
  settle();
  return out;
}

size_t SampleCache::sweep(size_t bytes, std::vector<EntryKey>* victims, EvictedEntries* out) {
  writer_.clear();
  if (hand_.table < samples_.size()) {
    return sweep_samples(static_cast<uint32_t>(hand_.table), bytes, victims, out);
  }
  return sweep_features(static_cast<uint32_t>(hand_.table - samples_.size()), bytes, victims, out);
}

size_t SampleCache::sweep_samples(uint32_t query, size_t bytes, std::vector<EntryKey>* victims, EvictedEntries* out) {
  Samples& samples = samples_[query];
  const CellFormat& format = samples.cells.format();
  size_t freed = 0;
  for (; hand_.place < samples.slots.places() && freed < bytes; ++hand_.place) {
    Slot* slot = samples.slots.at(hand_.place);
    if (slot == nullptr) continue;
    if ((slot->marks & kUsed) != 0) {
      slot->marks &= static_cast<uint16_t>(~kUsed);
      continue;
    }
    const EntryKey key{RecordKind::kSample, query, slot->key};
    victims->push_back(key);
    freed += format.bytes(format.room(slot->size)) + kSlotBytes;
    if ((slot->marks & kKept) != 0) continue;
    writer_.clear();
    writer_.sample(query, slot->key, format, samples.cells.view(slot->root()));
    append(writer_.last_record(), key, out);
  }
  return freed;
}

size_t SampleCache::sweep_features(uint32_t type, size_t bytes, std::vector<EntryKey>* victims, EvictedEntries* out) {
  FeatureTable& table = features_[type];
  size_t freed = 0;
  for (; hand_.place < table.places() && freed < bytes; ++hand_.place) {
    const FeatureTable::Marked row = table.marked_at(hand_.place);
    if (row.row == nullptr) continue;
    if ((*row.marks & kUsed) != 0) {
      *row.marks &= ~kUsed;
      continue;
    }
    const EntryKey key{RecordKind::kFeatures, type, row.node};
    victims->push_back(key);
    freed += table.width() * sizeof(float) + kSlotBytes;
    if ((*row.marks & kKept) != 0) continue;
    writer_.clear();
    writer_.features(type, row.node, {row.row, table.width()});
    append(writer_.last_record(), key, out);
  }
  return freed;
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
