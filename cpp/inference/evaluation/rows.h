// References to stored rows, and memory for computed rows.
//
// Thread safety: none; every computation has its own memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "memory/prefetch.h"
#include "memory/table.h"

namespace livegnn {

// Memory that grows without keeping its contents. More is taken than is asked for, so that it seldom grows, but never
// much more: what a large request takes is what it needs.
class Scratch {
 public:
  float* reserve(size_t floats) {
    if (floats > block_.size()) block_ = FloatBlock(floats + std::min(floats / 2, kMostSpare));
    return block_.data();
  }
  float* data() { return block_.data(); }
  const float* data() const { return block_.data(); }
  size_t bytes() const { return block_.size() * sizeof(float); }

 private:
  static constexpr size_t kMostSpare = size_t{1} << 18;

  FloatBlock block_;
};

// The rows of one value in their table: one after the other, or at these slots.
struct Rows {
  float* data;
  size_t stride, width, count;
  const uint32_t* slots = nullptr;  // by row

  float* row(size_t i) const { return data + (slots == nullptr ? i : slots[i]) * stride; }
};

// Memory for rows that are computed to be read once. Addresses stay valid until `clear`.
class RowArena {
 public:
  float* take(size_t floats) {
    while (block_ < blocks_.size() && blocks_[block_].size() - used_ < floats) {
      ++block_;
      used_ = 0;
    }
    if (block_ == blocks_.size()) {
      blocks_.emplace_back(std::max(floats, kBlockFloats));
      floats_ += blocks_.back().size();
      used_ = 0;
    }
    float* rows = blocks_[block_].data() + used_;
    used_ += (floats + 15) / 16 * 16;  // rows start at a cache line, which may be the end of the block
    used_ = std::min(used_, blocks_[block_].size());
    return rows;
  }
  // If the caller has all rows of values that are not stored, by value: they need not be computed. `clear` keeps it.
  const std::vector<Rows>* whole = nullptr;

  void clear() {
    // Do not keep the memory of one large query for ever.
    if (floats_ > kKeptFloats) {
      blocks_.clear();
      floats_ = 0;
    }
    block_ = used_ = 0;
  }

 private:
  static constexpr size_t kBlockFloats = size_t{1} << 16, kKeptFloats = size_t{1} << 20;

  std::vector<FloatBlock> blocks_;
  size_t block_ = 0, used_ = 0, floats_ = 0;
};

// Brings a row's page into the TLB. Rows are scattered over tables far larger than the TLB covers, and the CPU may drop
// a prefetch whose page is not in it. Loads are not dropped, and those of a whole block wait for their pages together.
inline void touch(const float* row) {
  const float value = *row;
  asm volatile("" : : "x"(value));
}

// Prefetches the cache lines of a row whose page is in the TLB.
inline void fetch(const Rows& rows, uint32_t node) {
  if (node >= rows.count) return;
  for (size_t c = 0; c < rows.width; c += 16) prefetch(rows.row(node) + c);
}

}  // namespace livegnn
