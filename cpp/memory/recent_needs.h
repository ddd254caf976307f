// When memory to work in is given back.
//
// What a batch or a sample works in is kept for the next. One that is much larger than the others must not leave its
// memory behind, and ones that are all as large must not take it anew each time. So what counts is the second largest
// of the last sixty-four needs: a need that stands alone is given back at once, and one that comes again is kept. What
// is held is at most twice that, or `small`, which is never worth the trouble.
//
// Needs are numbers of whatever the memory grows with. It decides nothing but where memory lies.
//
// Thread safety: one thread at a time.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

namespace livegnn {

class RecentNeeds {
 public:
  // Few batches reach a hub, and those that do must not each take its memory anew.
  static constexpr size_t kLate = 64;

  explicit RecentNeeds(size_t small) : small_(small) {}

  // After each use. True: more is held than needed of late, and the owner gives all of it back.
  bool outgrown(size_t need) {
    recent_[next_++ % recent_.size()] = need;
    held_ = std::max(held_, need);
    if (held_ <= small_) return false;
    size_t largest = 0, second = 0;
    for (size_t one : recent_) {
      second = std::max(second, std::min(largest, one));
      largest = std::max(largest, one);
    }
    if (held_ / 2 <= second) return false;
    held_ = 0;
    return true;
  }

 private:
  size_t small_;
  std::array<size_t, kLate> recent_{};
  size_t next_ = 0, held_ = 0;
};

// Assigning `{}` would keep the memory.
template <class T>
void give_back(T* container) {
  T().swap(*container);
}

template <class T>
size_t bytes_of(const std::vector<T>& vector) {
  return vector.capacity() * sizeof(T);
}
template <class T>
size_t bytes_of(const std::vector<std::vector<T>>& vectors) {
  size_t bytes = vectors.capacity() * sizeof(vectors[0]);
  for (const auto& vector : vectors) bytes += bytes_of(vector);
  return bytes;
}

// Freed memory goes back to the system; where so much was freed that it matters.
void return_freed(size_t bytes);

}  // namespace livegnn
