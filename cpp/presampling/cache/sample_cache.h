// The query-aware sample cache of one serving worker (Helios, section 6): the samples and features that its seeds can
// need, as sampling workers have published them. A query is then a fixed number of look-ups here.
//
// A cache that spills (sample_cache_spill.cc) lets entries go that were not looked up lately, for its owner to keep
// elsewhere, and takes them back. A filter knows which may have gone: a look-up that finds nothing and `may_be_evicted`
// is not answered yet.
//
// Invariants: what a block says replaces what was there; blocks of a sampling worker are applied in their order, each
// once. Entries that are dropped leave nothing.
// Thread safety: any number of readers, or one writer; readers mark what they look up. A view of a sample and a row are
// good until the next change.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "memory/slot_table.h"
#include "presampling/samples/publication.h"
#include "presampling/samples/query_plan.h"
#include "presampling/tables/cell_heap.h"
#include "presampling/tables/evicted_filter.h"
#include "presampling/tables/feature_table.h"

namespace livegnn {

// What a reader has looked up; each reader counts its own.
struct Lookups {
  uint64_t samples = 0, features = 0;
};

// An entry of a cache: a sample (RecordKind::kSample) or a row of features (kFeatures).
struct EntryKey {
  RecordKind kind;
  uint32_t what;  // a one-hop query, or a node type
  uint64_t node;

  friend bool operator==(const EntryKey&, const EntryKey&) = default;
};

// Entries that have left a cache and were never given to its owner as they are: each as a record (publication.h).
struct EvictedEntries {
  std::vector<EntryKey> keys;
  std::vector<uint64_t> words;  // of all records, one after the other
  std::vector<size_t> ends;     // of each record, in words

  std::span<const uint8_t> record(size_t i) const {
    const size_t begin = i == 0 ? 0 : ends[i - 1];
    return {reinterpret_cast<const uint8_t*>(words.data() + begin), (ends[i] - begin) * sizeof(uint64_t)};
  }
};

// How far an eviction is.
struct Eviction {
  size_t bytes;  // that are to leave
  EvictedEntries entries{};
  size_t freed = 0;             // bytes, about
  size_t passed = 0, most = 0;  // places of tables, and how many are passed at most
};

class SampleCache {
 public:
  // Throws std::invalid_argument if the widths are not those of all node types.
  SampleCache(QueryPlan plan, const std::vector<size_t>& feature_widths, uint32_t worker, uint32_t sampling_workers);

  const QueryPlan& plan() const { return plan_; }
  size_t num_samples(uint32_t query) const { return samples_[query].slots.size(); }
  size_t num_features(uint32_t node_type) const { return features_[node_type].size(); }
  const FeatureTable& features(uint32_t node_type) const { return features_[node_type]; }
  size_t bytes() const;

  // Applies whole blocks; those that were applied before are passed over. Throws std::runtime_error if one is spoiled,
  // or not for this worker, or some before it are missing; those before that one are applied.
  void apply(std::span<const uint8_t> blocks);
  // The same for the first block alone; leaves what follows it in `*blocks`.
  void apply_block(std::span<const uint8_t>* blocks);
  // Forgets everything, and begins at block 0 of each sampling worker again.
  void clear();
  // Begins at block 0 of one sampling worker again, and forgets nothing: `SamplingShard::publish_all` tells all that is
  // needed as it is. What the worker took back in blocks that did not come stays. Throws std::invalid_argument if there
  // is no such worker.
  void restart(uint32_t sampling_worker);
  // Other sampling workers, so many, go on from where the ones before have ended. Begins at block 0 of each, and
  // forgets nothing.
  void restart_all(uint32_t sampling_workers) { applied_ = BlockOrder(sampling_workers); }

  // -- look-ups. A sample of which nothing was published is empty; features are null.

  CellView sample(uint32_t query, uint64_t node, Lookups* lookups) const {
    ++lookups->samples;
    const Slot* slot = samples_[query].slots.find(node);
    if (slot == nullptr) return {};
    if (filter_ != nullptr) mark_used(slot);
    return samples_[query].cells.view(slot->root());
  }
  const float* features(uint32_t node_type, uint64_t node, Lookups* lookups) const {
    ++lookups->features;
    return filter_ == nullptr ? features_[node_type].find(node) : features_[node_type].find_marking(node, kUsed);
  }
  // Whether the owner may have the entry. Of no other entry that is not here.
  bool may_be_evicted(const EntryKey& key) const { return filter_ != nullptr && filter_->may_have(hash_of(key)); }

  // -- spilling. The owner has entries in the form in which they were evicted last, until `take_gone` names them.

  // From now on entries may be evicted; the filter takes so many bytes.
  void spill(size_t filter_bytes);
  bool spills() const { return filter_ != nullptr; }
  // Lets entries go that were not looked up since this last passed them; if there are none, others. It does a part of
  // that, in a bounded time, and returns whether there is more to do. If memory is lacking it ends early.
  bool evict(Eviction* eviction);
  // Takes an entry back, unless there is one by this key. `kept`: the owner has it as it is. Throws std::runtime_error
  // if the bytes are no such record.
  void restore(const EntryKey& key, std::span<const uint8_t> record, bool kept);
  // Entries that blocks have taken back and that may have been evicted: the owner must forget them.
  std::vector<EntryKey> take_gone() { return std::exchange(gone_, {}); }
  // A number that grows with every change.
  uint64_t version() const { return version_; }

  // In two steps, because the second reads what the first fetches.
  void prefetch_sample(uint32_t query, uint64_t node) const { samples_[query].slots.prefetch(node); }
  void prefetch_cell(uint32_t query, uint64_t node) const {
    if (const Slot* slot = samples_[query].slots.find(node)) samples_[query].cells.prefetch(slot->root());
  }
  // `visit(node, CellView)` for each sample of a query, in no order.
  template <class Visit>
  void for_each_sample(uint32_t query, Visit&& visit) const {
    const Samples& samples = samples_[query];
    samples.slots.for_each([&](const Slot& slot) { visit(slot.key, samples.cells.view(slot.root())); });
  }

 private:
  // Marks of entries.
  static constexpr uint32_t kUsed = 1, kKept = 2;  // looked up lately; the owner has it as it is

  struct Slot {
    uint64_t key;
    BlockRef block;
    uint16_t size;
    uint16_t marks;

    bool empty() const { return size == 0; }
    CellRoot root() const { return {block, size}; }
  };
  static_assert(sizeof(Slot) == 16);
  struct Samples {
    explicit Samples(const CellOptions& options) : cells(options) {}
    SlotTable<Slot> slots;
    CellHeap cells;
  };

  struct Hand {  // where `evict` goes on
    size_t table = 0, place = 0;
  };

  static uint64_t hash_of(const EntryKey& key) {
    return key.node * 0x9e3779b97f4a7c15ULL + (uint64_t{key.what} << 8 | static_cast<uint64_t>(key.kind));
  }
  static void mark_used(const Slot* slot) {
    std::atomic_ref<uint16_t> marks(const_cast<Slot*>(slot)->marks);
    if ((marks.load(std::memory_order_relaxed) & kUsed) == 0) {
      marks.fetch_or(static_cast<uint16_t>(kUsed), std::memory_order_relaxed);
    }
  }
  size_t num_tables() const { return samples_.size() + features_.size(); }
  size_t places_of(size_t table) const;
  void sweep(Eviction* eviction);
  size_t pass_sample(uint32_t query, EvictedEntries* out);
  size_t pass_features(uint32_t type, EvictedEntries* out);
  void erase(const EntryKey& key);
  void check(const Record& record) const;
  void prefetch(const Record& record) const;
  void prefetch_further(const Record& record) const;
  void apply(const Record& record);
  void set_sample(Samples* samples, uint64_t node, const CellView& cell);
  void settle() noexcept;

  QueryPlan plan_;
  uint32_t worker_;
  std::deque<Samples> samples_;        // by query
  std::deque<FeatureTable> features_;  // by node type
  BlockOrder applied_;
  std::vector<Record> records_;  // of the current block
  uint64_t version_ = 0;

  // Only of a cache that spills.
  std::unique_ptr<EvictedFilter> filter_;
  PublicationWriter writer_{0, 0};  // of records
  std::vector<EntryKey> gone_, victims_;
  Hand hand_;
};

}  // namespace livegnn
