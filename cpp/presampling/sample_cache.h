// The query-aware sample cache of one serving worker (Helios, section 6): the samples and features that its seeds can
// need, as sampling workers have published them. A query is then a fixed number of look-ups here.
//
// Invariants: what a block says replaces what was there; blocks of a sampling worker are applied in their order, each
// once. Entries that are dropped leave nothing.
// Thread safety: any number of readers, or one writer. A view of a sample and a row are good until the next change.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "presampling/cell_heap.h"
#include "presampling/feature_table.h"
#include "presampling/publication.h"
#include "presampling/query_plan.h"
#include "presampling/slot_table.h"

namespace livegnn {

// What a reader has looked up; each reader counts its own.
struct Lookups {
  uint64_t samples = 0, features = 0;
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
  // Forgets everything, and begins at block 0 of each sampling worker again.
  void clear();
  // Begins at block 0 of one sampling worker again, and forgets nothing: `SamplingShard::publish_all` tells all that is
  // needed as it is. What the worker took back in blocks that did not come stays. Throws std::invalid_argument if there
  // is no such worker.
  void restart(uint32_t sampling_worker);

  // -- look-ups. A sample of which nothing was published is empty; features are null.

  CellView sample(uint32_t query, uint64_t node, Lookups* lookups) const {
    ++lookups->samples;
    const Slot* slot = samples_[query].slots.find(node);
    return slot == nullptr ? CellView{} : samples_[query].cells.view(slot->root());
  }
  const float* features(uint32_t node_type, uint64_t node, Lookups* lookups) const {
    ++lookups->features;
    return features_[node_type].find(node);
  }
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
  struct Slot {
    uint64_t key;
    BlockRef block;
    uint32_t size;

    bool empty() const { return size == 0; }
    CellRoot root() const { return {block, size}; }
  };
  struct Samples {
    explicit Samples(const CellOptions& options) : cells(options) {}
    SlotTable<Slot> slots;
    CellHeap cells;
  };

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
};

}  // namespace livegnn
