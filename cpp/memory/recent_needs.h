// Decides when working memory is given back.
//
// The working memory of a batch or a sample is kept for the next one. A single large one must not leave its memory
// behind, and several equally large ones must not allocate it again each time. So the second largest of the last
// sixty-four needs decides: a single large need is given back at once, and a repeated one is kept. At most twice that
// much is held, or `small`, which is always kept.
//
// Needs are counted in the units by which the memory grows. They only affect memory, never results.
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
  // Few batches reach a hub, and those that do must not allocate its memory again each time.
  static constexpr size_t kLate = 64;

  explicit RecentNeeds(size_t small) : small_(small) {}

  // Call it after each use. True: more is held than recent uses needed, and the owner must give all of it back.
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

// Returns freed memory to the system, if enough was freed to matter.
void return_freed(size_t bytes);

}  // namespace livegnn
