// Rows of some nodes over those of a table: which nodes are covered, and the rows of those that have been computed.
//
//   clean ── spoil ──► stale ── want ──► wanted ── place ──► a row in a slot ── spoil ──► stale
//
// Invariants: a covered node is stale, wanted, or has a row and an error. Rows stay where they are until `clear`.
// Thread safety: none, the owner sees to it (lazy.h).
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "livegnn/table.h"

namespace livegnn {

class Overlay {
 public:
  explicit Overlay(size_t stride) : stride_(stride) {}

  bool covers(uint32_t node) const { return node / 64 < bits_.size() && (bits_[node / 64] >> (node % 64) & 1) != 0; }
  bool stale(uint32_t node) const { return node < slots_.size() && slots_[node] == kStale; }
  // Of a node that has a row.
  float* row(uint32_t node) { return at(slots_[node] - kFirst); }
  const float* row(uint32_t node) const { return const_cast<Overlay*>(this)->row(node); }
  float* error(uint32_t node) { return &errors_[slots_[node] - kFirst]; }

  void resize(size_t capacity) {
    bits_.resize(std::max(bits_.size(), (capacity + 63) / 64));
    slots_.resize(std::max(slots_.size(), capacity));
  }
  // Its row, if there is one, is worth nothing any more.
  void spoil(uint32_t node) {
    if (slots_[node] == kStale) return;
    if (slots_[node] == kClean) {
      bits_[node / 64] |= uint64_t{1} << (node % 64);
      nodes_.push_back(node);
    } else if (slots_[node] >= kFirst) {
      free_.push_back(slots_[node] - kFirst);
    }
    slots_[node] = kStale;
    ++num_stale_;
  }
  // Of a stale node: it is on a list of those whose rows will be computed.
  void want(uint32_t node) { slots_[node] = kWanted; }
  bool wanted(uint32_t node) const { return node < slots_.size() && slots_[node] == kWanted; }
  void unwant(uint32_t node) {
    if (slots_[node] == kWanted) slots_[node] = kStale;
  }
  // Room for the row of a node that is stale or wanted; what is in it is left as it was, its padding is zero.
  void place(uint32_t node);

  const std::vector<uint32_t>& nodes() const { return nodes_; }  // that are covered
  size_t num_stale() const { return num_stale_; }
  void clear();
  size_t bytes() const;

 private:
  enum : uint32_t { kClean, kStale, kWanted, kFirst };
  static constexpr size_t kChunk = 256;  // rows

  float* at(uint32_t slot) { return chunks_[slot / kChunk].data() + slot % kChunk * stride_; }

  size_t stride_, num_stale_ = 0;
  std::vector<uint64_t> bits_;   // few enough to lie in the cache while in-edges are scanned
  std::vector<uint32_t> slots_;  // by node
  std::vector<uint32_t> nodes_, free_;
  std::vector<FloatBlock> chunks_;
  std::vector<float> errors_;  // by slot, of aggregates
};

}  // namespace livegnn
