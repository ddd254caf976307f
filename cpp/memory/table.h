// Rows of float32, one for each node or edge, for features, aggregates and embeddings; in memory or in a mapped file.
//
// Layout:   | width floats | padding up to stride | width floats | padding | ...
// The stride of wide rows is a whole number of cache lines, so that a row never touches more lines than necessary.
//
// Invariants: padding is zero; rows past `rows()` do not exist; a new row is zero. Rows of width 0 take no memory.
// Growth has three steps: `prepare` makes the rows' block larger, or a larger copy of it, `resize` installs the copy
// and takes no time, `settle` frees what it has replaced.
//
// Thread safety: `prepare` and `settle` may run concurrently with readers; beyond that none, the owner must not grow or
// write the table while it is read.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <utility>

#include "memory/scratch_file.h"

#ifdef __linux__
#include <sys/mman.h>
#include <sys/resource.h>

#include "memory/huge_pages.h"
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

// A block of zeroed floats. Large blocks come directly from the operating system: their pages are zeroed when first
// touched, by the thread that touches them, and are huge pages if the system allows it. Rows are read at random, and
// without huge pages nearly every row costs a TLB miss in addition to the cache miss.
//
// A large block can grow where it is: more addresses are reserved than it uses, which takes no memory. To copy a
// gigabyte would take a quarter of a second, in the middle of a batch.
class FloatBlock {
 public:
  FloatBlock() = default;
  explicit FloatBlock(size_t floats) : size_(floats) {
    if (floats == 0) return;
    const size_t bytes = bytes_of(floats);
#ifdef __linux__
    if (bytes >= kHugePage) {
      map(bytes);
      return;
    }
#endif
    data_ = static_cast<float*>(::operator new(bytes, std::align_val_t{kCacheLine}));
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
    ::operator delete(data_, std::align_val_t{kCacheLine});
  }

  float* data() { return data_; }
  const float* data() const { return data_; }
  size_t size() const { return size_; }

  // Makes it this much larger where it is, while readers go on; returns false if it cannot. Requires: more than `size`.
  bool extend([[maybe_unused]] size_t floats) noexcept {
#ifdef __linux__
    const size_t bytes = bytes_of(floats);
    if (mapping_ == nullptr || bytes > reserved()) return false;
    if (mprotect(data_, bytes, PROT_READ | PROT_WRITE) != 0) return false;
    madvise(data_, bytes, MADV_HUGEPAGE);
    size_ = floats;
    return true;
#else
    return false;
#endif
  }

 private:
  static size_t bytes_of(size_t floats) { return (floats * sizeof(float) + kCacheLine - 1) / kCacheLine * kCacheLine; }

#ifdef __linux__
  static constexpr size_t kReserved = 32;                   // times the first size
  static constexpr size_t kMostReserved = size_t{1} << 43;  // bytes; a process has 2^47

  void map(size_t bytes) {
    mapped_ = (may_reserve(bytes) ? kReserved : 1) * bytes + kHugePage;
    mapping_ = mmap(nullptr, mapped_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapping_ == MAP_FAILED) {
      mapping_ = nullptr;
      throw std::bad_alloc();
    }
    const auto address = (reinterpret_cast<uintptr_t>(mapping_) + kHugePage - 1) / kHugePage * kHugePage;
    data_ = reinterpret_cast<float*>(address);
    if (mprotect(data_, bytes, PROT_READ | PROT_WRITE) != 0) {
      munmap(mapping_, mapped_);
      mapping_ = nullptr;
      throw std::bad_alloc();
    }
    madvise(data_, bytes, MADV_HUGEPAGE);
  }

  // Where addresses are limited, those that are reserved would lack elsewhere.
  static bool may_reserve(size_t bytes) {
    rlimit limit{};
    return bytes <= kMostReserved / kReserved && getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur == RLIM_INFINITY;
  }

  size_t reserved() const {
    return static_cast<size_t>(static_cast<char*>(mapping_) + mapped_ - reinterpret_cast<char*>(data_));
  }
#endif

  void swap(FloatBlock& other) {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(mapping_, other.mapping_);
    std::swap(mapped_, other.mapped_);
  }

  float* data_ = nullptr;
  size_t size_ = 0;
  void* mapping_ = nullptr;  // what to give back, if the block is a mapping of its own
  size_t mapped_ = 0;
};

class Table {
 public:
  Table() = default;
  explicit Table(size_t width) : width_(width), stride_(width == 0 ? 0 : row_stride(width)) {}
  // The rows are stored in a file in `directory`, so that they may outgrow memory; an empty name means memory. Throws
  // std::system_error.
  Table(size_t width, const std::string& directory) : Table(width) {
    if (!directory.empty() && width > 0) file_ = std::make_unique<ScratchFile>(directory);
  }

  size_t width() const { return width_; }
  size_t stride() const { return stride_; }
  size_t rows() const { return rows_; }
  size_t bytes() const { return (block_.size() + next_.size()) * sizeof(float); }
  // Null if the rows are in memory.
  const ScratchFile* file() const { return file_.get(); }
  size_t mapped_bytes() const { return file_ == nullptr ? 0 : file_->size() * sizeof(float); }

  // Requires: there is such a row, or i is 0.
  float* row(size_t i) {
    assert(i < rows_ || i == 0);
    return data_ + i * stride_;
  }
  const float* row(size_t i) const { return const_cast<Table*>(this)->row(i); }

  // Does the part of `resize` to more rows that takes time or can fail, while readers go on. The rows must not change
  // until `resize` or `settle`. Throws std::bad_alloc or std::system_error; then nothing has changed.
  void prepare(size_t rows) {
    if (rows * stride_ <= capacity() || (ready_ && rows * stride_ <= next_.size())) return;
    // Growth is geometric, so that adding nodes one by one copies each row a constant number of times.
    const size_t floats = (rows_ == 0 ? rows : rows + rows / 2) * stride_;
    if (file_ != nullptr) {
      file_->reserve(floats);
      return;
    }
    if (block_.extend(floats)) return;
    FloatBlock bigger(floats);
    if (rows_ > 0) std::memcpy(bigger.data(), data_, rows_ * stride_ * sizeof(float));
    next_ = std::move(bigger);
    ready_ = true;
  }
  // Call it when no reader uses what `resize` has replaced, or instead of `resize`.
  void settle() noexcept {
    next_ = {};
    ready_ = false;
    if (file_ != nullptr) file_->settle();
  }

  // After `prepare` it cannot fail.
  void resize(size_t rows) {
    if (rows * stride_ > capacity()) prepare(rows);
    if (rows * stride_ > capacity()) {
      if (file_ != nullptr) {
        file_->adopt();
        data_ = file_->data();
      } else {
        std::swap(block_, next_);
        data_ = block_.data();
      }
    } else if (rows < rows_ && width_ > 0) {
      std::memset(row(rows), 0, (rows_ - rows) * stride_ * sizeof(float));
    }
    ready_ = false;
    rows_ = rows;
  }

  // Requires: there is such a row.
  void write(size_t i, const float* values) {
    assert(i < rows_);
    if (width_ > 0) std::memcpy(row(i), values, width_ * sizeof(float));
  }
  void clear_row(size_t i) {
    assert(i < rows_);
    if (width_ > 0) std::memset(row(i), 0, width_ * sizeof(float));
  }

 private:
  size_t capacity() const { return file_ != nullptr ? file_->size() : block_.size(); }

  size_t width_ = 0, stride_ = 0, rows_ = 0;
  float* data_ = nullptr;
  FloatBlock block_, next_;  // the rows; and the copy that `prepare` made, or the old rows after `resize`
  bool ready_ = false;       // `next_` is a copy of the current rows
  std::unique_ptr<ScratchFile> file_;
};

}  // namespace livegnn
