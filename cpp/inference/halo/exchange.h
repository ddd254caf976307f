// How the parts of a graph send each other what they need of a batch: in rounds, in each of which every part sends
// something to every other part, and waits until it has what the others send.
//
//   part 0  swap ──┐   ┌── swap ──┐
//   part 1  swap ──┼───┼── swap ──┼── ...      a round ends when all parts have sent
//   part 2  swap ──┘   └── swap ──┘
//
// Thread safety: each part has its own object, which one thread at a time uses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <stdexcept>
#include <type_traits>
#include <utility>
#include <vector>

namespace livegnn {

// What one part sends another in a round.
using Frame = std::vector<std::byte>;

// Another part has given up the batch, so its round never ends.
class ExchangeEnded : public std::runtime_error {
 public:
  ExchangeEnded() : std::runtime_error("another part of the graph has given up the batch") {}
};

class Exchange {
 public:
  Exchange() = default;
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;
  virtual ~Exchange() = default;

  virtual size_t parts() const = 0;
  // Sends a frame to each part, and returns those that they sent, by part; its own ones are ignored. The result is
  // valid until the next call. Throws ExchangeEnded. Requires: as many frames as there are parts.
  virtual std::span<const Frame> swap(std::vector<Frame> frames) = 0;
};

// Each number or array begins at a multiple of 8 bytes.
class FrameWriter {
 public:
  template <class T>
  void put(const T& value) {
    put_all(std::span<const T>(&value, 1));
  }
  // The reader must know their number.
  template <class T>
  void put_all(std::span<const T> values) {
    if (!values.empty()) std::memcpy(room(values.size_bytes()), values.data(), values.size_bytes());
  }
  // Room for this many floats, to be filled before anything else is put.
  float* floats(size_t count) { return reinterpret_cast<float*>(room(count * sizeof(float))); }

  const Frame& written() const { return frame_; }
  Frame take() { return std::move(frame_); }

 private:
  std::byte* room(size_t bytes) {
    const size_t at = frame_.size();
    frame_.resize(at + (bytes + 7) / 8 * 8);
    return frame_.data() + at;
  }

  Frame frame_;
};

// Sends the same to all other parts, and calls `read(frame)` with what each of them sent.
template <class Read>
void swap_same(Exchange* exchange, uint32_t self, const FrameWriter& own, const Read& read) {
  std::vector<Frame> frames(exchange->parts());
  for (uint32_t part = 0; part < frames.size(); ++part) {
    if (part != self) frames[part] = own.written();
  }
  const std::span<const Frame> received = exchange->swap(std::move(frames));
  for (uint32_t part = 0; part < received.size(); ++part) {
    if (part != self) read(received[part]);
  }
}

// Reads what was put, in the same order. Throws std::runtime_error where a frame ends too early. The frame must outlive
// it and the arrays that it returns.
class FrameReader {
 public:
  explicit FrameReader(const Frame& frame) : frame_(frame) {}

  template <class T>
  T get() {
    return get_all<T>(1)[0];
  }
  template <class T>
  std::span<const T> get_all(size_t count) {
    static_assert(std::is_trivially_copyable_v<T> && alignof(T) <= 8);
    if (count > (frame_.size() - at_) / sizeof(T)) throw std::runtime_error("a frame that ends too early");
    const auto* const values = reinterpret_cast<const T*>(frame_.data() + at_);
    at_ += (count * sizeof(T) + 7) / 8 * 8;
    return {values, count};
  }

 private:
  const Frame& frame_;
  size_t at_ = 0;
};

}  // namespace livegnn
