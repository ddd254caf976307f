// Rows where they lie, and memory for rows that are made to be read.
//
// Thread safety: none; who computes has memory of its own.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "memory/table.h"

namespace livegnn {

// Memory that grows and does not keep what was in it.
class Scratch {
 public:
  float* reserve(size_t floats) {
    if (floats > block_.size()) block_ = FloatBlock(floats + floats / 2);
    return block_.data();
  }
  float* data() { return block_.data(); }
  const float* data() const { return block_.data(); }
  size_t bytes() const { return block_.size() * sizeof(float); }

 private:
  FloatBlock block_;
};

// The rows of one value, where they lie.
struct Rows {
  float* data;
  size_t stride, width, count;

  float* row(size_t i) const { return data + i * stride; }
};

// Memory for rows that are computed to be read once. What was taken stays where it is until `clear`.
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
    used_ += (floats + 15) / 16 * 16;  // rows begin with a cache line, which may be the end of the block
    used_ = std::min(used_, blocks_[block_].size());
    return rows;
  }
  // Where somebody has all rows of values that are not stored, by value: they need not be computed. Outlives `clear`.
  const std::vector<Rows>* whole = nullptr;

  void clear() {
    // What one large question needed is not held for ever.
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

// Brings a row's page into the TLB. Rows lie anywhere in tables far larger than it covers, and a prefetch whose page it
// does not hold may be dropped; loads are not, and those of a whole block wait for their pages together.
inline void touch(const float* row) {
  const float value = *row;
  asm volatile("" : : "x"(value));
}

// The cache lines of a row whose page is at hand.
inline void fetch(const Rows& rows, uint32_t node) {
  if (node >= rows.count) return;
  for (size_t c = 0; c < rows.width; c += 16) __builtin_prefetch(rows.row(node) + c);
}

}  // namespace livegnn
