#include "presampling/cache/sample_cache.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

namespace livegnn {

SampleCache::SampleCache(QueryPlan plan, const std::vector<size_t>& feature_widths, uint32_t worker,
                         uint32_t sampling_workers)
    : plan_(std::move(plan)), worker_(worker), applied_(sampling_workers) {
  if (feature_widths.size() != plan_.num_node_types()) {
    throw std::invalid_argument("there are " + std::to_string(plan_.num_node_types()) + " node types, and widths of " +
                                std::to_string(feature_widths.size()));
  }
  for (const OneHopQuery& query : plan_.queries()) {
    // In the order in which they come, with columns for what they carry: as uniform cells have them.
    samples_.emplace_back(CellOptions{SampleBy::kUniform, query.count, query.weighted, query.timed});
  }
  for (size_t width : feature_widths) features_.emplace_back(width);
}

size_t SampleCache::bytes() const {
  size_t bytes = records_.capacity() * sizeof(Record) + gone_.capacity() * sizeof(EntryKey);
  if (filter_ != nullptr) bytes += filter_->bytes();
  for (const Samples& samples : samples_) bytes += samples.slots.bytes() + samples.cells.bytes();
  for (const FeatureTable& table : features_) bytes += table.bytes();
  return bytes;
}

void SampleCache::check(const Record& record) const {
  bool fits = false;
  if (record.kind == RecordKind::kSample && record.what < plan_.size()) {
    const OneHopQuery& query = plan_[record.what];
    const CellView& cell = record.sample;
    fits = cell.size >= 1 && cell.size <= query.count && (cell.weights != nullptr) == query.weighted &&
           (cell.times != nullptr) == query.timed;
  } else if (record.kind == RecordKind::kNoSample) {
    fits = record.what < plan_.size();
  } else if (record.kind == RecordKind::kFeatures && record.what < features_.size()) {
    fits = record.features.size() == features_[record.what].width();
  } else if (record.kind == RecordKind::kNoFeatures) {
    fits = record.what < features_.size();
  }
  if (!fits) throw std::runtime_error("published block: a record that does not fit the query of this serving worker");
}

void SampleCache::apply(std::span<const uint8_t> blocks) {
  while (!blocks.empty()) apply_block(&blocks);
}

void SampleCache::apply_block(std::span<const uint8_t>* blocks) {
  constexpr size_t kGroup = 32;  // whose cache misses are taken together
  const PublishedBlock block = PublishedBlock::read(blocks);
  if (block.header().receiver != worker_) {
    throw std::runtime_error("published block: it is for serving worker " + std::to_string(block.header().receiver) +
                             ", and this is number " + std::to_string(worker_));
  }
  if (!applied_.is_next(block.header())) return;
  records_.clear();
  block.for_each([&](const Record& record) {
    check(record);
    records_.push_back(record);
  });
  ++version_;
  for (size_t begin = 0; begin < records_.size(); begin += kGroup) {
    const size_t end = std::min(records_.size(), begin + kGroup);
    for (size_t i = begin; i < end; ++i) prefetch(records_[i]);
    for (size_t i = begin; i < end; ++i) prefetch_further(records_[i]);
    for (size_t i = begin; i < end; ++i) apply(records_[i]);
  }
  applied_.passed(block.header());
  settle();
}

void SampleCache::prefetch(const Record& record) const {
  if (record.kind == RecordKind::kSample || record.kind == RecordKind::kNoSample) {
    prefetch_sample(record.what, record.node);
  } else {
    features_[record.what].prefetch(record.node);
  }
}

void SampleCache::prefetch_further(const Record& record) const {
  if (record.kind == RecordKind::kSample) {
    prefetch_cell(record.what, record.node);
  } else if (record.kind == RecordKind::kFeatures) {
    features_[record.what].prefetch_row(record.node);
  }
}

void SampleCache::apply(const Record& record) {
  switch (record.kind) {
    case RecordKind::kSample:
      set_sample(&samples_[record.what], record.node, record.sample);
      break;
    case RecordKind::kNoSample:
    case RecordKind::kNoFeatures: {
      const bool sample = record.kind == RecordKind::kNoSample;
      const EntryKey key{sample ? RecordKind::kSample : RecordKind::kFeatures, record.what, record.node};
      if (may_be_evicted(key)) gone_.push_back(key);
      erase(key);
      break;
    }
    case RecordKind::kFeatures:
      if (features_[record.what].set(record.node, record.features.data()) && spills()) {
        *features_[record.what].marks_of(record.node) &= kUsed;
      }
      break;
    case RecordKind::kReference:
      break;  // `check` has refused it
  }
}

void SampleCache::erase(const EntryKey& key) {
  if (key.kind == RecordKind::kFeatures) {
    features_[key.what].erase(key.node);
    return;
  }
  Samples& samples = samples_[key.what];
  Slot* slot = samples.slots.find(key.node);
  if (slot == nullptr) return;
  CellRoot root = slot->root();
  samples.cells.free(&root);
  samples.slots.erase(slot);
}

void SampleCache::set_sample(Samples* samples, uint64_t node, const CellView& cell) {
  Slot* slot = samples->slots.insert(node);
  CellRoot root = slot->root();
  try {
    samples->cells.assign(&root, cell);
  } catch (...) {
    if (slot->empty()) samples->slots.erase(slot);
    throw;
  }
  slot->block = root.block;
  slot->size = static_cast<uint16_t>(root.size);
  slot->marks &= kUsed;  // it was looked up before, or not; the owner does not have it as it is
}

void SampleCache::settle() noexcept {
  for (Samples& samples : samples_) {
    if (!samples.cells.is_sparse(spills())) continue;
    samples.cells.compact([&](const auto& move) { samples.slots.for_each([&](Slot& slot) { move(&slot.block); }); });
  }
}

void SampleCache::restart(uint32_t sampling_worker) {
  if (sampling_worker >= applied_.next().size()) {
    throw std::invalid_argument("there is no sampling worker " + std::to_string(sampling_worker));
  }
  applied_.next()[sampling_worker] = 0;
  ++version_;
}

void SampleCache::clear() {
  for (Samples& samples : samples_) {
    samples.slots.for_each([&](Slot& slot) {
      CellRoot root = slot.root();
      samples.cells.free(&root);
    });
    samples.slots.clear();
  }
  for (FeatureTable& table : features_) table.clear();
  std::fill(applied_.next().begin(), applied_.next().end(), 0);
  if (filter_ != nullptr) filter_->clear();
  gone_.clear();
  ++version_;
  settle();
}

}  // namespace livegnn
