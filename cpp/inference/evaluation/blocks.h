// Divides work on rows into blocks and estimates its cost.
#pragma once

#include <cstddef>
#include <tuple>
#include <vector>

#include "memory/recent_needs.h"

namespace livegnn {

inline constexpr size_t kBlockRows = 32;  // rows that a thread takes at a time
inline size_t blocks_of(size_t rows) { return (rows + kBlockRows - 1) / kBlockRows; }

// Measured cost of work on one thread, in nanoseconds; used to decide whether to wake a second thread.
inline constexpr double kRowCost = 80, kMessageCost = 40, kFlopCost = 0.012;
// A cost large enough to wake every thread.
inline constexpr double kLong = 1e9;

// Makes room for at least `size` elements; existing elements keep their values.
template <class T>
void grow(std::vector<T>* room, size_t size) {
  if (room->size() < size) room->resize(size + size / 2);
}

// Buffers that a thread keeps between calls; at the end of each call, memory that a hub made large is given back.
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
