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

// A block of zeroed floats. Large blocks come straight from the operating system: their pages are zeroed when first
// touched, by the thread that touches them, and are huge where the system allows it. Rows are read at random, and
// without huge pages nearly every row costs a miss in the TLB beside the one in the cache.
class FloatBlock {
 public:
  FloatBlock() = default;
  explicit FloatBlock(size_t floats) : size_(floats) {
    if (floats == 0) return;
    const size_t bytes = (floats * sizeof(float) + kCacheLine - 1) / kCacheLine * kCacheLine;
#ifdef __linux__
    if (bytes >= kHugePage) {
      mapped_ = bytes + kHugePage;
      mapping_ = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (mapping_ == MAP_FAILED) {
        mapping_ = nullptr;
        throw std::bad_alloc();
      }
      const auto address = (reinterpret_cast<uintptr_t>(mapping_) + kHugePage - 1) / kHugePage * kHugePage;
      data_ = reinterpret_cast<float*>(address);
      madvise(data_, bytes, MADV_HUGEPAGE);
      return;
    }
#endif
    data_ = static_cast<float*>(std::aligned_alloc(kCacheLine, bytes));
    if (data_ == nullptr) throw std::bad_alloc();
    std::memset(data_, 0, bytes);
  }
  FloatBlock(FloatBlock&& other) noexcept { swap(other); }
  FloatBlock& operator=(FloatBlock&& other) noexcept {
    swap(other);
    return *this;
  }
  ~FloatBlock() {
#ifdef __linux__
    if (mapping_ != nullptr) {
      munmap(mapping_, mapped_);
      return;
    }
#endif
    std::free(data_);
  }

  float* data() { return data_; }
  const float* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  static constexpr size_t kHugePage = size_t{1} << 21;

  void swap(FloatBlock& other) {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(mapping_, other.mapping_);
    std::swap(mapped_, other.mapped_);
  }

  float* data_ = nullptr;
  size_t size_ = 0;
  void* mapping_ = nullptr;  // what to give back, where the block is a mapping of its own
  size_t mapped_ = 0;
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
