// Sums of very many rows. If terms are added one after the other, each is rounded to the precision of the whole sum,
// and if terms are alike all these roundings have the same sign: a float32 sum of a million times one third is wrong by
// a percent. So terms are added in blocks of kSumBlock, one after the other, and the sums of blocks in pairs, as a
// binary counter carries: level l holds the sum of 2^l adjacent blocks.
//
//   terms   ████ ████ ████ ████ ████ ████ ██      (kSumBlock each, except the last)
//   levels  2: ─────────────────                  1: ─────────    and the last one, in the row itself
//
// A sum may fit into float32 although a sum of some of its terms does not. So a sum that is not finite is computed once
// more, `widely`: from terms scaled down by 2^kWideBits, and then scaled up.
//
// Invariants: a sum is a function of the sequence of its terms, whatever the portions in which they are added. Up to
// kSumBlock terms it is the plain sum from the first to the last.
// Thread safety: none; every thread has its own object.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "program/kernels.h"

namespace livegnn {

// Large enough that joining blocks costs little compared with the terms, and that few neighbours are one block; small
// enough that the rounding of a block, at worst kSumBlock * 2^-24 of it, is far below the tolerance of drift.
inline constexpr size_t kSumBlock = 128;

// Terms are scaled down by this, so that any possible number of them fits into float32, even with the largest values.
inline constexpr int kWideBits = 40;
inline constexpr float kWide = 0x1p-40f;

// Whether a softmax's sum of weights was computed widely. Other sums contain the weight of the reference, which is 1;
// if it is removed again, they are computed again from all neighbours long before they become this small (rounding.h).
inline bool is_wide(float weights) { return weights < 0x1p-16f; }

// The sums of complete blocks.
class BlockSums {
 public:
  void open(size_t width) {
    width_ = width;
    blocks_ = 0;
  }

  bool empty() const { return blocks_ == 0; }

  // Moves the sum of the next kSumBlock terms out of `row`, which is zero afterwards.
  void push(float* row) {
    size_t level = 0;
    for (uint64_t carry = blocks_; carry & 1; carry >>= 1, ++level) add(rows_.data() + level * width_, row);
    if (rows_.size() < (level + 1) * width_) rows_.resize((level + 1) * width_);
    std::memcpy(rows_.data() + level * width_, row, width_ * sizeof(float));
    std::memset(row, 0, width_ * sizeof(float));
    ++blocks_;
  }

  // Completes the sum: `row` holds the sum of the terms after the last complete block, and then the sum of all terms.
  void join(float* row) {
    for (uint64_t left = blocks_; left != 0; left &= left - 1) {
      add(rows_.data() + static_cast<size_t>(std::countr_zero(left)) * width_, row);
    }
    blocks_ = 0;
  }

  // Multiplies `count` columns, starting with `column`, of everything that has been pushed.
  void scale(size_t column, size_t count, float factor) {
    for (uint64_t left = blocks_; left != 0; left &= left - 1) {
      float* const row = rows_.data() + static_cast<size_t>(std::countr_zero(left)) * width_ + column;
      for (size_t c = 0; c < count; ++c) row[c] *= factor;
    }
  }

 private:
  // row = before + row
  void add(const float* before, float* row) const {
    for (size_t c = 0; c < width_; ++c) row[c] = before[c] + row[c];
  }

  size_t width_ = 0;
  uint64_t blocks_ = 0;      // there is a row for level l if bit l is set
  std::vector<float> rows_;  // by level
};

// A sum of weighted rows.
class RowSum {
 public:
  // `out` receives the sum; `width` floats, padding included.
  void open(size_t width, float* out, bool widely = false) {
    width_ = width;
    out_ = out;
    widely_ = widely;
    filled_ = 0;
    blocks_.open(width);
    std::memset(out, 0, width * sizeof(float));
  }

  // coefficients[i] * rows[indices[i]], i ascending
  void add(size_t count, const float* const* rows, const uint32_t* indices, const float* coefficients) {
    in_portions(count, [&](size_t first, size_t portion) {
      kernels().add_rows(width_, portion, rows, indices + first, scale(portion, coefficients + first), out_);
    });
  }

  // coefficients[i] * table[ids[i]], i ascending; null coefficients are ones.
  void gather(size_t count, const float* table, size_t stride, const uint32_t* ids, const float* coefficients) {
    in_portions(count, [&](size_t first, size_t portion) {
      kernels().gather_rows(width_, portion, table, stride, ids + first,
                            scale(portion, coefficients == nullptr ? nullptr : coefficients + first), out_);
    });
  }

  // Completes the sum.
  void close() {
    if (!blocks_.empty()) blocks_.join(out_);
    for (size_t c = 0; widely_ && c < width_; ++c) out_[c] = std::ldexp(out_[c], kWideBits);
  }

 private:
  const float* scale(size_t count, const float* coefficients) {
    if (!widely_) return coefficients;
    for (size_t i = 0; i < count; ++i) scaled_[i] = coefficients == nullptr ? kWide : kWide * coefficients[i];
    return scaled_;
  }

  template <class Add>
  void in_portions(size_t count, const Add& add) {
    for (size_t first = 0; first < count;) {
      if (filled_ == kSumBlock) {
        blocks_.push(out_);
        filled_ = 0;
      }
      const size_t portion = std::min(count - first, kSumBlock - filled_);
      add(first, portion);
      first += portion;
      filled_ += portion;
    }
  }

  size_t width_ = 0, filled_ = 0;
  float* out_ = nullptr;
  bool widely_ = false;
  float scaled_[kSumBlock];
  BlockSums blocks_;
};

// Adds all terms at once, into a row that need not be zeroed.
inline void sum_rows(size_t width, size_t count, const float* const* rows, const uint32_t* indices,
                     const float* coefficients, float* out) {
  if (count <= kSumBlock) {  // nearly always
    std::memset(out, 0, width * sizeof(float));
    kernels().add_rows(width, count, rows, indices, coefficients, out);
    return;
  }
  static thread_local RowSum sum;
  sum.open(width, out);
  sum.add(count, rows, indices, coefficients);
  sum.close();
}

// The same, but repeated widely if needed, so that the result is finite whenever the sum fits.
inline void sum_all_rows(size_t width, size_t count, const float* const* rows, const uint32_t* indices,
                         const float* coefficients, float* out) {
  sum_rows(width, count, rows, indices, coefficients, out);
  if (kernels().finite(width, out)) return;
  static thread_local RowSum sum;
  sum.open(width, out, true);
  sum.add(count, rows, indices, coefficients);
  sum.close();
}

}  // namespace livegnn
