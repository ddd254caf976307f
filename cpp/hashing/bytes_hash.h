// A hash of 64 bits of a sequence of buffers, for messages between workers: it finds damage, and is no defence against
// bytes that are made to deceive. The value depends on the sizes of the buffers, and so on where each begins.
//
// Each buffer is padded with zeros to blocks of four words. Word i of a block enters lane i, which is rotated and
// multiplied; that is invertible, so one different word always gives another lane. The sizes enter one by one. docs/
// channels.md has the constants, because both ends of a link must compute the same.
//
// Thread safety: an object belongs to one thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace livegnn {

class BytesHash {
 public:
  void add(const unsigned char* data, size_t size);
  uint64_t value() const;

 private:
  static constexpr size_t kLanes = 4;

  void add_block(const unsigned char* data);

  std::array<uint64_t, kLanes> lanes_{0x9e3779b97f4a7c15ULL, 0x3c6ef372fe94f82aULL, 0xdaa66d2c7ddf743fULL,
                                      0x78dde6e5fd29f054ULL};
  uint64_t sizes_ = 0;
};

}  // namespace livegnn
