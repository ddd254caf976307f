#include "memory/byte_ranges.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "hashing/crc32.h"
#include "testing/testing.h"

namespace livegnn::byte_ranges_test {
namespace {

using testing::Random;

bool within(size_t size, int64_t start, int64_t length) {
  return are_within(size, std::vector<int64_t>{start}, std::vector<int64_t>{length});
}

}  // namespace

TEST(byte_ranges_are_copied_and_summed_in_their_order) {
  Random random;
  for (int round = 0; round < 100; ++round) {
    std::vector<unsigned char> bytes(random.index(300));
    for (auto& byte : bytes) byte = static_cast<unsigned char>(random.index(256));
    std::vector<int64_t> starts, lengths;
    std::vector<unsigned char> expected;
    std::vector<uint32_t> sums;
    for (size_t i = random.index(20); i > 0; --i) {
      const size_t start = random.index(bytes.size() + 1), length = random.index(bytes.size() - start + 1);
      starts.push_back(static_cast<int64_t>(start));
      lengths.push_back(static_cast<int64_t>(length));
      expected.insert(expected.end(), bytes.data() + start, bytes.data() + start + length);
      sums.push_back(crc32(bytes.data() + start, length));
    }
    CHECK(are_within(bytes.size(), starts, lengths));
    std::vector<unsigned char> copied(expected.size());
    gather_ranges(bytes, starts, lengths, copied.data());
    CHECK(copied == expected);
    // The last range first, with a byte between each two.
    std::vector<int64_t> places(starts.size());
    std::vector<unsigned char> spread(expected.size() + starts.size(), 7), wanted = spread;
    for (size_t i = starts.size(), place = 0; i-- > 0; place += static_cast<size_t>(lengths[i]) + 1) {
      places[i] = static_cast<int64_t>(place);
      std::copy_n(bytes.data() + starts[i], lengths[i], wanted.data() + place);
    }
    copy_ranges(bytes, starts, lengths, spread.data(), places);
    CHECK(spread == wanted);
    std::vector<uint32_t> found(starts.size());
    checksum_ranges(bytes, starts, lengths, found.data());
    CHECK(found == sums);
  }
}

TEST(byte_ranges_beyond_the_block_are_seen) {
  constexpr int64_t kLargest = std::numeric_limits<int64_t>::max();
  CHECK(within(10, 10, 0));
  CHECK(within(10, 0, 10));
  CHECK(!within(10, 0, 11));
  CHECK(!within(10, 11, 0));
  CHECK(!within(10, -1, 1));
  CHECK(!within(10, 1, -1));
  CHECK(!within(10, 5, kLargest));
}

}  // namespace livegnn::byte_ranges_test
