// Rows of some nodes that replace those of a table: which nodes are covered, and the rows that have been computed.
//
//   clean ── invalidate ──► stale ── want ──► wanted ── place ──► a row in a slot ── invalidate ──► stale
//
// Invariants: a covered node is stale, wanted, or has a row and an error. Rows do not move until `clear`. What a batch
// needs is reserved before it is committed; then `resize`, `invalidate` and (for as many nodes as reserved) `place`
// cannot fail. Slots are stored in pages, which do not move when the graph grows, because queries write to them
// meanwhile.
//
// Thread safety: none, the owner provides it (lazy.h); but `covers` may be called concurrently with `reserve`.
#pragma once

#include <algorithm>
#include <array>
#include <cassert>
#include <cstdint>
#include <memory>
#include <vector>

#include "inference/rounding/rounding.h"
#include "memory/growing_array.h"
#include "memory/table.h"

namespace livegnn {

class Overlay {
 public:
  explicit Overlay(size_t stride) : stride_(stride) {}

  bool covers(uint32_t node) const { return node / 64 < bits_.size() && (bits_[node / 64] >> (node % 64) & 1) != 0; }
  bool stale(uint32_t node) const { return has_slot(node) && slot(node) == kStale; }
  // Requires: the node has a row.
  float* row(uint32_t node) {
    assert(slot(node) >= kFirst);
    return at(slot(node) - kFirst);
  }
  const float* row(uint32_t node) const { return const_cast<Overlay*>(this)->row(node); }
  float* error(uint32_t node) { return errors_[slot(node) - kFirst].data(); }

  // Makes room for `capacity` nodes in all, for `invalidated` more covered nodes, and for `placed` more nodes with a
  // row.
  void reserve(size_t capacity, size_t invalidated, size_t placed);
  void resize(size_t capacity) noexcept { bits_.resize(std::max(bits_.size(), (capacity + 63) / 64)); }
  void settle() noexcept { bits_.settle(); }
  // Marks the node stale; a row that it has is no longer valid. Requires: it is not wanted.
  void invalidate(uint32_t node) {
    assert(slot(node) != kWanted);
    if (slot(node) == kStale) return;
    if (slot(node) == kClean) {
      bits_[node / 64] |= uint64_t{1} << (node % 64);
      nodes_.push_back(node);
    } else if (slot(node) >= kFirst) {
      free_.push_back(slot(node) - kFirst);
    }
    slot(node) = kStale;
    ++num_stale_;
  }
  // Records that the node is on a list of nodes whose rows will be computed. Requires: it is stale.
  void want(uint32_t node) {
    assert(stale(node));
    slot(node) = kWanted;
  }
  bool wanted(uint32_t node) const { return has_slot(node) && slot(node) == kWanted; }
  void unwant(uint32_t node) {
    if (slot(node) == kWanted) slot(node) = kStale;
  }
  // Allocates the row of a node; its contents are unspecified, its padding is zero. Requires: it is stale or wanted.
  void place(uint32_t node);

  const std::vector<uint32_t>& nodes() const { return nodes_; }  // the covered nodes
  size_t num_stale() const { return num_stale_; }
  void clear();
  size_t bytes() const;

 private:
  enum : uint32_t { kClean, kStale, kWanted, kFirst };
  static constexpr size_t kChunk = 256;  // rows
  static constexpr size_t kPage = 4096;  // slots

  bool has_slot(uint32_t node) const { return node / kPage < pages_.size(); }
  uint32_t& slot(uint32_t node) { return pages_[node / kPage][node % kPage]; }
  uint32_t slot(uint32_t node) const { return pages_[node / kPage][node % kPage]; }
  void reserve_rows(size_t slots);
  float* at(uint32_t slot) { return chunks_[slot / kChunk].data() + slot % kChunk * stride_; }

  size_t stride_, num_stale_ = 0;
  GrowingArray<uint64_t> bits_;                     // small enough to stay in the cache while in-edges are scanned
  std::vector<std::unique_ptr<uint32_t[]>> pages_;  // of slots, by node
  std::vector<uint32_t> nodes_, free_;              // `free_` has room for all existing slots
  std::vector<FloatBlock> chunks_;
  std::vector<std::array<float, kRowBounds>> errors_;  // by slot, for sums
};

}  // namespace livegnn
