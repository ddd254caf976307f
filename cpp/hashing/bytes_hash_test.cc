#include "hashing/bytes_hash.h"

#include <vector>

#include "testing/testing.h"

namespace livegnn::bytes_hash_test {
namespace {

using testing::Random;
using Buffers = std::vector<std::vector<unsigned char>>;

uint64_t mix(uint64_t key) {
  key = (key ^ (key >> 30)) * 0xbf58476d1ce4e5b9ULL;
  key = (key ^ (key >> 27)) * 0x94d049bb133111ebULL;
  return key ^ (key >> 31);
}

// Byte by byte, as the header of the class says.
uint64_t plain(const Buffers& buffers) {
  uint64_t sizes = 0;
  uint64_t lanes[4];
  for (size_t lane = 0; lane < 4; ++lane) lanes[lane] = (lane + 1) * 0x9e3779b97f4a7c15ULL;
  for (const auto& buffer : buffers) {
    sizes = mix(sizes + buffer.size() + 0x9e3779b97f4a7c15ULL);
    for (size_t begin = 0; begin < buffer.size(); begin += 32) {
      for (size_t lane = 0; lane < 4; ++lane) {
        uint64_t word = 0;
        for (size_t byte = 0; byte < 8; ++byte) {
          const size_t at = begin + lane * 8 + byte;
          if (at < buffer.size()) word |= uint64_t{buffer[at]} << (8 * byte);
        }
        const uint64_t entered = lanes[lane] ^ word;
        lanes[lane] = (entered << 29 | entered >> 35) * 0xd1342543de82ef95ULL;
      }
    }
  }
  for (uint64_t lane : lanes) sizes = mix(sizes ^ lane);
  return sizes;
}

uint64_t hash(const Buffers& buffers) {
  BytesHash hash;
  for (const auto& buffer : buffers) hash.add(buffer.data(), buffer.size());
  return hash.value();
}

std::vector<unsigned char> random_bytes(Random& random, size_t size) {
  std::vector<unsigned char> bytes(size);
  for (auto& byte : bytes) byte = static_cast<unsigned char>(random.index(256));
  return bytes;
}

}  // namespace

TEST(bytes_hash_is_that_of_its_description) {
  Random random;
  CHECK_EQ(hash({}), plain({}));
  for (size_t size = 0; size < 200; ++size) {
    Buffers buffers{random_bytes(random, size)};
    if (random.chance(0.5)) buffers.push_back(random_bytes(random, random.index(80)));
    CHECK_EQ(hash(buffers), plain(buffers));
  }
}

TEST(bytes_hash_differs_after_any_flipped_bit) {
  Random random;
  for (size_t size : {1, 8, 31, 32, 33, 100}) {
    Buffers buffers{random_bytes(random, size), random_bytes(random, 5)};
    const uint64_t before = hash(buffers);
    for (auto& buffer : buffers) {
      for (auto& byte : buffer) {
        for (int bit = 0; bit < 8; ++bit) {
          byte = static_cast<unsigned char>(byte ^ 1 << bit);
          CHECK(hash(buffers) != before);
          byte = static_cast<unsigned char>(byte ^ 1 << bit);
        }
      }
    }
  }
}

TEST(bytes_hash_depends_on_where_buffers_begin) {
  Random random;
  const auto bytes = random_bytes(random, 64);
  const uint64_t whole = hash({bytes});
  for (size_t cut = 0; cut <= bytes.size(); ++cut) {
    const auto middle = bytes.begin() + static_cast<std::ptrdiff_t>(cut);
    CHECK(hash({{bytes.begin(), middle}, {middle, bytes.end()}}) != whole);
  }
  auto padded = bytes;
  padded.push_back(0);
  CHECK(hash({padded}) != whole);
}

}  // namespace livegnn::bytes_hash_test
