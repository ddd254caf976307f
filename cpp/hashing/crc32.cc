#include "hashing/crc32.h"

#include <array>
#include <bit>
#include <cstring>

namespace livegnn {
namespace {

constexpr size_t kStep = 8;
using Tables = std::array<std::array<uint32_t, 256>, kStep>;

// Table k says what a byte does to the checksum when k bytes follow it in the same step.
constexpr Tables make_tables() {
  Tables tables{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = crc & 1 ? (crc >> 1) ^ 0xedb88320u : crc >> 1;
    tables[0][byte] = crc;
  }
  for (size_t k = 1; k < kStep; ++k) {
    for (size_t byte = 0; byte < 256; ++byte) {
      const uint32_t crc = tables[k - 1][byte];
      tables[k][byte] = (crc >> 8) ^ tables[0][crc & 0xff];
    }
  }
  return tables;
}

constexpr Tables kTables = make_tables();

}  // namespace

uint32_t crc32(const unsigned char* data, size_t size, uint32_t before) {
  static_assert(std::endian::native == std::endian::little);
  uint32_t crc = ~before;
  for (; size >= kStep; data += kStep, size -= kStep) {
    uint64_t word;
    std::memcpy(&word, data, kStep);
    word ^= crc;
    crc = 0;
    for (size_t k = 0; k < kStep; ++k) crc ^= kTables[kStep - 1 - k][word >> (8 * k) & 0xff];
  }
  for (; size > 0; ++data, --size) crc = (crc >> 8) ^ kTables[0][(crc ^ *data) & 0xff];
  return ~crc;
}

}  // namespace livegnn
