// Rows of features by the nodes' ids: those of a sampling worker's own nodes, or those that a serving worker needs.
//
//   id ─► slot | id | row |  ─►  chunk of 2 MiB | row | row | ..      chunk | row | ..
//
// A row that goes is replaced by the last one, so rows are contiguous; chunks come and go at the end, so no row is
// copied because the table grows.
//
// Invariants: `node_of(row)` is the node of each row below `size()`, and its slot names that row.
// Thread safety: any number of readers, or one writer. A row is good until the next change.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "memory/prefetch.h"
#include "memory/recent_needs.h"
#include "memory/slot_table.h"
#include "memory/table.h"
#include "views/arrays.h"

namespace livegnn {

class FeatureTable {
 public:
  explicit FeatureTable(size_t width) : width_(width), stride_(width == 0 ? 0 : row_stride(width)) {
    while (shift_ > 0 && (stride_ << shift_) * sizeof(float) > kChunkBytes) --shift_;
  }
  FeatureTable(const FeatureTable&) = delete;
  FeatureTable& operator=(const FeatureTable&) = delete;

  size_t width() const { return width_; }
  size_t size() const { return slots_.size(); }
  size_t bytes() const {
    size_t bytes = slots_.bytes() + bytes_of(nodes_) + chunks_.capacity() * sizeof(FloatBlock);
    for (const FloatBlock& chunk : chunks_) bytes += chunk.size() * sizeof(float);
    return bytes;
  }

  static constexpr uint32_t kNoRow = UINT32_MAX;
  // kNoRow if the node has none.
  uint32_t row_of(uint64_t node) const {
    const Slot* slot = slots_.find(node);
    return slot == nullptr ? kNoRow : slot->place - 1;
  }
  // Null if the node has none; not null for a row of width 0.
  const float* find(uint64_t node) const {
    const uint32_t at = row_of(node);
    return at == kNoRow ? nullptr : row(at);
  }
  // The same, and sets a mark of the row, which other readers may do at the same time.
  const float* find_marking(uint64_t node, uint32_t mark) const {
    const Slot* slot = slots_.find(node);
    if (slot == nullptr) return nullptr;
    std::atomic_ref<uint32_t> marks(const_cast<Slot*>(slot)->marks);
    if ((marks.load(std::memory_order_relaxed) & mark) == 0) marks.fetch_or(mark, std::memory_order_relaxed);
    return row(slot->place - 1);
  }
  // Marks of rows are their readers'. A new row has none; one that gets other values keeps its own.
  struct Marked {
    uint64_t node;
    uint32_t* marks;
    const float* row;
  };
  // By the place of its slot; the node of a place without one has no row.
  size_t places() const { return slots_.places(); }
  Marked marked_at(size_t place) {
    Slot* slot = slots_.at(place);
    return slot == nullptr ? Marked{} : Marked{slot->key, &slot->marks, row(slot->place - 1)};
  }
  // Requires: the node has a row.
  uint32_t* marks_of(uint64_t node) { return &slots_.find(node)->marks; }

  // Requires: a row below `size`.
  const float* row(uint32_t at) const { return const_cast<FeatureTable*>(this)->row_at(at); }
  uint64_t node_of(uint32_t at) const { return nodes_[at]; }

  // In two steps, because the second reads what the first fetches.
  void prefetch(uint64_t node) const { slots_.prefetch(node); }
  void prefetch_row(uint64_t node) const {
    const Slot* slot = slots_.find(node);
    if (slot == nullptr || width_ == 0) return;
    const auto* const from = reinterpret_cast<const unsigned char*>(row(slot->place - 1));
    for (size_t i = 0; i < std::min<size_t>(width_ * sizeof(float), 8 * kCacheLine); i += kCacheLine) {
      livegnn::prefetch(from + i);
    }
  }

  // Returns whether the row is new, or not what it was before. If it throws std::bad_alloc, nothing has changed.
  // Requires: as many values as the table is wide.
  bool set(uint64_t node, const float* values) {
    if (const Slot* slot = slots_.find(node)) {
      float* const row = row_at(slot->place - 1);
      if (width_ == 0 || std::memcmp(row, values, width_ * sizeof(float)) == 0) return false;
      std::memcpy(row, values, width_ * sizeof(float));
      return true;
    }
    const size_t place = nodes_.size();
    if (place >= kNoRow) throw std::bad_alloc();
    if (nodes_.size() == nodes_.capacity()) nodes_.reserve(place + place / 2 + 16);
    const size_t chunk = place >> shift_;
    if (chunk == chunks_.size()) chunks_.emplace_back(chunk_floats(place));
    if (chunk == 0) grow_first_chunk(place);
    slots_.insert(node)->place = static_cast<uint32_t>(place + 1);
    nodes_.push_back(node);
    if (width_ > 0) std::memcpy(row_at(static_cast<uint32_t>(place)), values, width_ * sizeof(float));
    return true;
  }
  // Returns whether there was a row.
  bool erase(uint64_t node) noexcept {
    Slot* slot = slots_.find(node);
    if (slot == nullptr) return false;
    const uint32_t hole = slot->place - 1, last = static_cast<uint32_t>(nodes_.size() - 1);
    slots_.erase(slot);
    if (hole != last) {
      nodes_[hole] = nodes_[last];
      slots_.find(nodes_[hole])->place = hole + 1;
      if (width_ > 0) std::memcpy(row_at(hole), row_at(last), width_ * sizeof(float));
    }
    nodes_.pop_back();
    while (chunks_.size() > (nodes_.size() + chunk_rows() - 1) >> shift_) chunks_.pop_back();
    give_back_nodes();
    return true;
  }
  void clear() noexcept {
    slots_.clear();
    give_back(&nodes_);
    give_back(&chunks_);
  }

  // As arrays whose names begin with `prefix`. `load` throws std::runtime_error if they are no such table, and then it
  // is empty.
  void save(const std::string& prefix, Arrays* to) const;
  void load(const std::string& prefix, const ArrayViews& from);

 private:
  static constexpr size_t kChunkBytes = size_t{2} << 20;

  struct Slot {
    uint64_t key;
    uint32_t place;  // the row plus 1
    uint32_t marks;

    bool empty() const { return place == 0; }
  };

  size_t chunk_rows() const { return size_t{1} << shift_; }
  // The first chunk begins small, so that a small table takes little memory.
  size_t chunk_floats(size_t place) const {
    return place == 0 ? std::min<size_t>(16, chunk_rows()) * stride_ : chunk_rows() * stride_;
  }
  void grow_first_chunk(size_t place) {
    if (width_ == 0 || (place + 1) * stride_ <= chunks_[0].size()) return;
    FloatBlock larger(std::min(chunk_rows() * stride_, 2 * chunks_[0].size()));
    std::memcpy(larger.data(), chunks_[0].data(), place * stride_ * sizeof(float));
    chunks_[0] = std::move(larger);
  }
  void give_back_nodes() noexcept {
    if (nodes_.capacity() < 64 || nodes_.size() * 4 > nodes_.capacity()) return;
    try {
      nodes_.shrink_to_fit();
      if (!chunks_.empty() && nodes_.empty()) chunks_.clear();
      if (chunks_.empty()) give_back(&chunks_);
    } catch (const std::bad_alloc&) {
      // The larger array does as well.
    }
  }
  float* row_at(uint32_t at) {
    static float none = 0;
    return width_ == 0 ? &none : chunks_[at >> shift_].data() + (at & (chunk_rows() - 1)) * stride_;
  }

  size_t width_, stride_;
  int shift_ = 16;  // rows of a chunk, as a power of two
  SlotTable<Slot> slots_;
  std::vector<uint64_t> nodes_;  // by row
  std::vector<FloatBlock> chunks_;
};

inline void FeatureTable::save(const std::string& prefix, Arrays* to) const {
  std::vector<int64_t> nodes;
  std::vector<float> values;
  nodes.reserve(size());
  values.reserve(size() * width_);
  for (uint32_t i = 0; i < nodes_.size(); ++i) {
    nodes.push_back(std::bit_cast<int64_t>(nodes_[i]));
    values.insert(values.end(), row(i), row(i) + width_);
  }
  to->put(prefix + "nodes", std::move(nodes));
  to->put(prefix + "features", std::move(values), width_);
}

inline void FeatureTable::load(const std::string& prefix, const ArrayViews& from) {
  clear();
  const auto nodes = from.at<int64_t>(prefix + "nodes");
  const auto values = from.of_size<float>(prefix + "features", nodes.size() * width_, width_);
  try {
    for (size_t i = 0; i < nodes.size(); ++i) {
      const auto node = std::bit_cast<uint64_t>(nodes[i]);
      if (row_of(node) != kNoRow) throw std::runtime_error("features: a node that is there twice");
      set(node, values.data() + i * width_);
    }
  } catch (...) {
    clear();
    throw;
  }
}

}  // namespace livegnn
