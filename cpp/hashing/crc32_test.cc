#include "hashing/crc32.h"

#include <cstring>
#include <vector>

#include "testing/testing.h"

namespace livegnn::crc32_test {
namespace {

using testing::Random;

// Bit by bit, as the polynomial says.
uint32_t plain(const std::vector<unsigned char>& bytes) {
  uint32_t crc = ~0u;
  for (unsigned char byte : bytes) {
    crc ^= byte;
    for (int bit = 0; bit < 8; ++bit) crc = crc & 1 ? (crc >> 1) ^ 0xedb88320u : crc >> 1;
  }
  return ~crc;
}

}  // namespace

TEST(crc32_is_that_of_zlib) {
  const char* digits = "123456789";
  CHECK_EQ(crc32(reinterpret_cast<const unsigned char*>(digits), 9), 0xcbf43926u);
  CHECK_EQ(crc32(nullptr, 0), 0u);
}

TEST(crc32_of_any_length_and_in_parts) {
  Random random;
  for (size_t size = 0; size < 200; ++size) {
    std::vector<unsigned char> bytes(size);
    for (auto& byte : bytes) byte = static_cast<unsigned char>(random.index(256));
    const uint32_t expected = plain(bytes);
    CHECK_EQ(crc32(bytes.data(), size), expected);
    const size_t cut = random.index(size + 1);
    CHECK_EQ(crc32(bytes.data() + cut, size - cut, crc32(bytes.data(), cut)), expected);
  }
}

}  // namespace livegnn::crc32_test
