// An array that can grow while it is being read.
//
//   prepare   makes a larger copy, if there is not enough room                may fail; readers go on
//   adopt     replaces the array with the copy                                cannot fail; exclusive
//   settle    frees the replaced array                                        cannot fail; no reader uses the old array
//
// Capacity grows by half, so that each element is copied a constant number of times, however slowly the array grows.
//
// Invariants: between `prepare` and `adopt` (or `settle`, which also discards an unused copy) the elements must not
// change. Without `prepare` it is an ordinary vector.
// Thread safety: `prepare` and `settle` may run concurrently with readers; everything else needs exclusive access.
#pragma once

#include <cassert>
#include <cstddef>
#include <utility>
#include <vector>

namespace livegnn {

template <class T>
class GrowingArray {
 public:
  size_t size() const { return now_.size(); }
  bool empty() const { return now_.empty(); }
  size_t capacity() const { return now_.capacity(); }
  T* data() { return now_.data(); }
  const T* data() const { return now_.data(); }
  // Requires: there is such an element.
  T& operator[](size_t i) {
    assert(i < now_.size());
    return now_[i];
  }
  const T& operator[](size_t i) const {
    assert(i < now_.size());
    return now_[i];
  }
  T* begin() { return now_.data(); }
  T* end() { return now_.data() + now_.size(); }
  const T* begin() const { return now_.data(); }
  const T* end() const { return now_.data() + now_.size(); }
  T& back() { return now_.back(); }
  const T& back() const { return now_.back(); }
  const std::vector<T>& values() const { return now_; }

  // Makes room for this many elements in all.
  void prepare(size_t size) {
    if (size <= now_.capacity() || (ready_ && size <= next_.capacity())) return;
    std::vector<T> larger;
    larger.reserve(now_.empty() ? size : size + size / 2);
    larger.insert(larger.end(), now_.begin(), now_.end());
    next_ = std::move(larger);
    ready_ = true;
  }
  void adopt() noexcept {
    if (ready_) now_.swap(next_);
    ready_ = false;
  }
  void settle() noexcept {
    std::vector<T>().swap(next_);  // assigning `{}` would keep the memory
    ready_ = false;
  }

  // These cannot fail while there is room.
  void resize(size_t size, T fill = {}) {
    adopt();
    now_.resize(size, fill);
  }
  void push_back(T value) { now_.push_back(value); }
  // Requires: it is not empty.
  void pop_back() {
    assert(!now_.empty());
    now_.pop_back();
  }
  void assign(size_t size, T value) { *this = std::vector<T>(size, value); }
  GrowingArray& operator=(std::vector<T> values) {
    now_ = std::move(values);
    settle();
    return *this;
  }

 private:
  std::vector<T> now_, next_;  // `next_`: the copy, and after `adopt` the replaced array
  bool ready_ = false;         // `next_` is the copy
};

}  // namespace livegnn
