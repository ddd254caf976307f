// Rows of float32, one a node, for features, aggregates and embeddings.
//
// Layout:   | width floats | padding up to stride | width floats | padding | ...
// The stride is a whole number of cache lines for wide rows, so that a row never straddles one more line than it must.
//
// Invariants: padding is zero; rows past `rows()` do not exist; a fresh row is zero.
// Thread safety: none; the owner serialises growth and writing against reading.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#ifdef __linux__
#include <sys/mman.h>
#endif

namespace livegnn {

inline constexpr size_t kCacheLine = 64;

// Narrow rows are padded to a power of two, wide ones to a cache line.
inline size_t row_stride(size_t width) {
  if (width > 8) return (width + 15) / 16 * 16;
  size_t stride = 1;
  while (stride < width) stride *= 2;
  return stride;
}

// A block of zeroed floats. Large blocks ask for huge pages: rows are read at random, and without them
// nearly every row costs a miss in the TLB beside the one in the cache.
class FloatBlock {
 public:
  FloatBlock() = default;
  explicit FloatBlock(size_t floats) : size_(floats) {
    if (floats == 0) return;
    constexpr size_t kHuge = size_t{1} << 21;
    size_t bytes = floats * sizeof(float);
    size_t alignment = bytes >= kHuge ? kHuge : kCacheLine;
    bytes = (bytes + alignment - 1) / alignment * alignment;
    data_ = static_cast<float*>(std::aligned_alloc(alignment, bytes));
    if (data_ == nullptr) throw std::bad_alloc();
#ifdef __linux__
    if (alignment == kHuge) madvise(data_, bytes, MADV_HUGEPAGE);
#endif
    std::memset(data_, 0, bytes);
  }
  FloatBlock(FloatBlock&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  FloatBlock& operator=(FloatBlock&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~FloatBlock() { std::free(data_); }

  float* data() { return data_; }
  const float* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  float* data_ = nullptr;
  size_t size_ = 0;
};

class Table {
 public:
  Table() = default;
  explicit Table(size_t width) : width_(width), stride_(row_stride(width)) {}

  size_t width() const { return width_; }
  size_t stride() const { return stride_; }
  size_t rows() const { return rows_; }
  size_t bytes() const { return block_.size() * sizeof(float); }

  float* row(size_t i) { return block_.data() + i * stride_; }
  const float* row(size_t i) const { return block_.data() + i * stride_; }

  // Growth is geometric, so that adding nodes one by one copies each row a constant number of times.
  void resize(size_t rows) {
    if (rows * stride_ > block_.size()) {
      size_t capacity = block_.size() / (stride_ == 0 ? 1 : stride_);
      size_t grown = rows_ == 0 ? rows : rows + rows / 2;
      FloatBlock bigger((grown > capacity ? grown : capacity) * stride_);
      if (rows_ > 0) std::memcpy(bigger.data(), block_.data(), rows_ * stride_ * sizeof(float));
      block_ = std::move(bigger);
    } else if (rows < rows_) {
      std::memset(row(rows), 0, (rows_ - rows) * stride_ * sizeof(float));
    }
    rows_ = rows;
  }

  void write(size_t i, const float* values) { std::memcpy(row(i), values, width_ * sizeof(float)); }
  void clear_row(size_t i) { std::memset(row(i), 0, width_ * sizeof(float)); }

 private:
  size_t width_ = 0, stride_ = 0, rows_ = 0;
  FloatBlock block_;
};

}  // namespace livegnn
