// How work on rows is cut into blocks, and what it costs.
#pragma once

#include <cstddef>
#include <tuple>
#include <vector>

#include "memory/recent_needs.h"

namespace livegnn {

inline constexpr size_t kBlockRows = 32;  // rows a thread takes at a time
inline size_t blocks_of(size_t rows) { return (rows + kBlockRows - 1) / kBlockRows; }

// What work costs one thread, in nanoseconds, as measured: to decide whether a second thread is worth waking.
inline constexpr double kRowCost = 80, kMessageCost = 40, kFlopCost = 0.012;
// More than enough to wake every thread.
inline constexpr double kLong = 1e9;

// Room for `size` elements; what is in the room is left as it was.
template <class T>
void grow(std::vector<T>* room, size_t size) {
  if (room->size() < size) room->resize(size + size / 2);
}

// What a thread keeps from one call to the next: at the end of each call, what a hub has made large is given back.
template <class... T>
class Trimmed {
 public:
  explicit Trimmed(std::vector<T>*... kept) : kept_(kept...) {}
  Trimmed(const Trimmed&) = delete;
  ~Trimmed() {
    std::apply([](auto*... kept) { (trim(kept), ...); }, kept_);
  }

 private:
  static constexpr size_t kKeptBytes = size_t{1} << 18;

  template <class E>
  static void trim(std::vector<E>* kept) {
    if (bytes_of(*kept) > kKeptBytes) give_back(kept);
  }

  std::tuple<std::vector<T>*...> kept_;
};

}  // namespace livegnn
