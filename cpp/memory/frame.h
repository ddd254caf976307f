// What one part of a graph sends another: numbers and arrays, one after the other.
//
// Thread safety: none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <stdexcept>
#include <type_traits>
#include <utility>
#include <vector>

namespace livegnn {

// Leaves memory as it is where a vector grows without a value.
template <class T>
struct Unset : std::allocator<T> {
  template <class Other>
  struct rebind {
    using other = Unset<Other>;
  };
  template <class... Given>
  void construct(T* place, Given&&... given) {
    if constexpr (sizeof...(Given) == 0) {
      ::new (place) T;
    } else {
      ::new (place) T(std::forward<Given>(given)...);
    }
  }
};

using Frame = std::vector<std::byte, Unset<std::byte>>;

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
  // Room for an array, to be filled before anything else is put.
  template <class T>
  T* open(size_t count) {
    return reinterpret_cast<T*>(room(count * sizeof(T)));
  }
  float* floats(size_t count) { return open<float>(count); }

  // Makes room for this many bytes more, so that they are put without a copy of the earlier ones.
  void reserve(size_t bytes) { frame_.reserve(frame_.size() + bytes); }

  bool empty() const { return frame_.empty(); }
  const Frame& written() const { return frame_; }
  Frame take() { return std::move(frame_); }

 private:
  std::byte* room(size_t bytes) {
    const size_t at = frame_.size();
    frame_.resize(at + (bytes + 7) / 8 * 8);
    if (bytes % 8 != 0) std::memset(frame_.data() + frame_.size() - 8, 0, 8);
    return frame_.data() + at;
  }

  Frame frame_;
};

// Reads what was put, in the same order. Throws std::runtime_error where a frame ends too early. The frame must outlive
// it and the arrays that it returns, and begin at a multiple of 8 bytes.
class FrameReader {
 public:
  explicit FrameReader(std::span<const std::byte> frame) : frame_(frame) {}

  bool at_end() const { return at_ >= frame_.size(); }
  template <class T>
  T get() {
    return get_all<T>(1)[0];
  }
  template <class T>
  std::span<const T> get_all(size_t count) {
    static_assert(std::is_trivially_copyable_v<T> && alignof(T) <= 8);
    if (at_ > frame_.size() || count > (frame_.size() - at_) / sizeof(T))
      throw std::runtime_error("a frame that ends too early");
    const auto* const values = reinterpret_cast<const T*>(frame_.data() + at_);
    at_ += (count * sizeof(T) + 7) / 8 * 8;
    return {values, count};
  }

 private:
  std::span<const std::byte> frame_;
  size_t at_ = 0;
};

}  // namespace livegnn
