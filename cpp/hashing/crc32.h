// The CRC-32 of zlib, gzip and PNG (polynomial 0x04c11db7, reflected), eight bytes at a step.
//
// Thread safety: a function of its arguments; the table is a constant.
#pragma once

#include <cstddef>
#include <cstdint>

namespace livegnn {

// The checksum of `size` bytes. `before`: that of the bytes which stand before them, 0 for none.
uint32_t crc32(const unsigned char* data, size_t size, uint32_t before = 0);

}  // namespace livegnn
