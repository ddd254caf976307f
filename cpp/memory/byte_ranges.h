// Many ranges of one block of bytes at a time: their copies, and their checksums.
//
// Ranges may overlap and stand in any order; each must lie within the block (`are_within`). Thread safety: functions of
// their arguments.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace livegnn {

using Bytes = std::span<const unsigned char>;

// Whether range i, `lengths[i]` bytes from `starts[i]` on, lies within `size` bytes, for all i.
bool are_within(size_t size, std::span<const int64_t> starts, std::span<const int64_t> lengths);

// Copies the ranges to `out`, which has room for the sum of their lengths.
void gather_ranges(Bytes bytes, std::span<const int64_t> starts, std::span<const int64_t> lengths, unsigned char* out);

// Copies range i to `out + places[i]`, where it lies within `out` as it lies within `bytes`.
void copy_ranges(Bytes bytes, std::span<const int64_t> starts, std::span<const int64_t> lengths, unsigned char* out,
                 std::span<const int64_t> places);

// The CRC-32 of each range (hashing/crc32.h).
void checksum_ranges(Bytes bytes, std::span<const int64_t> starts, std::span<const int64_t> lengths, uint32_t* out);

}  // namespace livegnn
