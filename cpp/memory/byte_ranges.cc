#include "memory/byte_ranges.h"

#include <cstring>

#include "hashing/crc32.h"

namespace livegnn {

bool are_within(size_t size, std::span<const int64_t> starts, std::span<const int64_t> lengths) {
  const auto end = static_cast<int64_t>(size);
  for (size_t i = 0; i < starts.size(); ++i) {
    if (starts[i] < 0 || lengths[i] < 0 || starts[i] > end || lengths[i] > end - starts[i]) return false;
  }
  return true;
}

void gather_ranges(Bytes bytes, std::span<const int64_t> starts, std::span<const int64_t> lengths, unsigned char* out) {
  for (size_t i = 0; i < starts.size(); ++i) {
    const auto length = static_cast<size_t>(lengths[i]);
    if (length > 0) std::memcpy(out, bytes.data() + starts[i], length);
    out += length;
  }
}

void copy_ranges(Bytes bytes, std::span<const int64_t> starts, std::span<const int64_t> lengths, unsigned char* out,
                 std::span<const int64_t> places) {
  for (size_t i = 0; i < starts.size(); ++i) {
    const auto length = static_cast<size_t>(lengths[i]);
    if (length > 0) std::memcpy(out + places[i], bytes.data() + starts[i], length);
  }
}

void checksum_ranges(Bytes bytes, std::span<const int64_t> starts, std::span<const int64_t> lengths, uint32_t* out) {
  for (size_t i = 0; i < starts.size(); ++i) {
    out[i] = crc32(bytes.data() + starts[i], static_cast<size_t>(lengths[i]));
  }
}

}  // namespace livegnn
