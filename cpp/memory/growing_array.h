// An array that grows beside its readers.
//
//   prepare   a larger copy is made aside, if there is not enough room        may fail; readers go on
//   adopt     the copy takes the array's place                                cannot fail; alone
//   settle    what it has replaced is freed                                   cannot fail; nobody reads the old array
//
// Room grows by half, so that each element is copied a constant number of times, whoever grows it and however slowly.
//
// Invariants: between `prepare` and `adopt` (or `settle`, which also forgets a copy that nobody wants) the elements
// stay as they are. Without `prepare` it is an ordinary vector.
// Thread safety: `prepare` and `settle` beside readers, all else alone.
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

  // Room for so many elements in all.
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

  // Up to the room that is there these cannot fail.
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
  std::vector<T> now_, next_;  // `next_`: the copy, and after `adopt` what it has replaced
  bool ready_ = false;         // `next_` is the copy
};

}  // namespace livegnn
