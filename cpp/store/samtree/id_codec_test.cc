#include "store/samtree/id_codec.h"

#include <algorithm>
#include <limits>
#include <set>
#include <vector>

#include "testing/testing.h"

namespace livegnn::id_codec_test {
namespace {

using testing::Random;

// `n` distinct ids that need `bits` bits beyond their base.
template <class Id>
std::vector<Id> random_ids(uint32_t n, uint32_t bits, Random* random) {
  const Id mask = bits == 8 * sizeof(Id) ? std::numeric_limits<Id>::max() : static_cast<Id>((Id{1} << bits) - 1);
  const Id base = static_cast<Id>(random->below(std::numeric_limits<Id>::max() - mask));
  std::set<Id> chosen{base};
  if (n > 1) chosen.insert(base + mask);
  while (chosen.size() < n) chosen.insert(static_cast<Id>(base + (static_cast<Id>(random->below(UINT64_MAX)) & mask)));
  std::vector<Id> ids(chosen.begin(), chosen.end());
  for (size_t i = ids.size(); i > 1; --i) std::swap(ids[i - 1], ids[random->index(i)]);
  return ids;
}

template <class Id>
void check_column(IdFormat<Id> format, const std::vector<uint8_t>& column, uint32_t room, const std::vector<Id>& ids) {
  const auto n = static_cast<uint32_t>(ids.size());
  CHECK_EQ(column.size(), IdCodec<Id>::bytes(format.bits, room));
  std::vector<Id> decoded(n);
  IdCodec<Id>::decode(format, column.data(), room, n, decoded.data());
  CHECK(decoded == ids);
  for (uint32_t i = 0; i < n; ++i) {
    CHECK_EQ(IdCodec<Id>::get(format, column.data(), room, i), ids[i]);
    CHECK_EQ(IdCodec<Id>::find(format, column.data(), room, n, ids[i]), i);
  }
}

template <class Id>
void check_all_widths() {
  using Codec = IdCodec<Id>;
  Random random;
  for (uint32_t bits = 8; bits <= 8 * sizeof(Id); ++bits) {
    for (uint32_t n : {1u, 2u, 7u, 8u, 9u, 31u, 64u, 100u, 255u}) {
      if (n > (bits < 32 ? (1u << bits) : UINT32_MAX)) continue;
      const auto ids = random_ids<Id>(n, bits, &random);
      const auto format = Codec::choose(ids.data(), n, true);
      CHECK_EQ(format.bits, n == 1 ? 0u : bits);
      // A vector as long as the column, so that a sanitizer sees a step past its end; what is not there yet is rubbish.
      const uint32_t room = n + random.index(24);
      std::vector<uint8_t> column(Codec::bytes(format.bits, room), 0xA5);
      Codec::encode(format, ids.data(), n, column.data(), room);
      check_column(format, column, room, ids);

      for (int i = 0; i < 50; ++i) {
        const auto other = static_cast<Id>(ids[random.index(n)] + static_cast<Id>(random.index(5)) - 2);
        const auto at = std::find(ids.begin(), ids.end(), other);
        CHECK_EQ(Codec::find(format, column.data(), room, n, other),
                 at == ids.end() ? Codec::kAbsent : static_cast<uint32_t>(at - ids.begin()));
      }

      auto more = ids;
      while (more.size() < room) {
        const auto next = static_cast<Id>(format.base + static_cast<Id>(random.below(UINT64_MAX)));
        if (format.bits == 0 || random.chance(0.02)) break;
        if (!format.fits(next) || std::find(more.begin(), more.end(), next) != more.end()) continue;
        const auto at = static_cast<uint32_t>(more.size());
        // Twice: the first was given up, and lies there still.
        Codec::append(format, column.data(), room, at, static_cast<Id>(format.base + (next - format.base) / 2));
        Codec::append(format, column.data(), room, at, next);
        more.push_back(next);
        check_column(format, column, room, more);
      }
    }
  }
}

}  // namespace

TEST(id_codec_returns_ids_of_32_bits) { check_all_widths<uint32_t>(); }
TEST(id_codec_returns_ids_of_64_bits) { check_all_widths<uint64_t>(); }

TEST(id_codec_takes_a_base_across_a_power_of_two) {
  const std::vector<uint32_t> ids{65500, 65600, 65700};  // no common prefix, but a range of 200
  const auto format = IdCodec<uint32_t>::choose(ids.data(), 3, true);
  CHECK_EQ(format.base, 65500u);
  CHECK_EQ(format.bits, 8u);
  CHECK(format.fits(65755));
  CHECK(!format.fits(65756));
  CHECK(!format.fits(65499));
}

TEST(id_codec_keeps_ids_in_full_when_told) {
  const std::vector<uint64_t> ids{1, 2, 3};
  CHECK_EQ((IdCodec<uint64_t>::choose(ids.data(), 3, false).bits), 64u);
  CHECK((IdCodec<uint64_t>::choose(ids.data(), 3, false).fits(UINT64_MAX)));
}

}  // namespace livegnn::id_codec_test
