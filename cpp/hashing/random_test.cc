#include "hashing/random.h"

#include <bit>
#include <cstdint>
#include <set>
#include <vector>

#include "hashing/mix_hash.h"
#include "testing/chi_square.h"
#include "testing/testing.h"

namespace livegnn::random_test {

using namespace testing;

// A change of any one bit of a key changes each bit of its hash as often as not.
TEST(mix_hash_spreads_every_bit) {
  Random random;
  constexpr int kKeys = 4000;
  for (int bit = 0; bit < 64; ++bit) {
    std::vector<int> flips(64);
    for (int i = 0; i < kKeys; ++i) {
      const uint64_t key = i % 2 == 0 ? static_cast<uint64_t>(i) : random.below(UINT64_MAX);
      const uint64_t changed = MixHash{}(key) ^ MixHash {}(key ^ (uint64_t{1} << bit));
      for (int b = 0; b < 64; ++b) flips[static_cast<size_t>(b)] += static_cast<int>(changed >> b & 1);
    }
    // Six standard deviations, and what a finaliser of so few steps is known to lack.
    for (int count : flips) CHECK_NEAR(count, kKeys / 2.0, 6 * 0.5 * 63.2 + 0.02 * kKeys);
  }
}

TEST(mix_hash_is_one_to_one_on_small_keys) {
  std::set<size_t> hashes;
  for (uint64_t key = 0; key < 100'000; ++key) hashes.insert(MixHash{}(key));
  CHECK_EQ(hashes.size(), 100'000u);
}

TEST(random_stream_depends_on_its_place_alone) {
  RandomStream a(1, 2, 3), again(1, 2, 3), other_seed(2, 2, 3), other_purpose(1, 3, 3), other_place(1, 2, 4);
  std::set<uint64_t> numbers;
  for (int i = 0; i < 1000; ++i) {
    const uint64_t number = a.bits();
    CHECK_EQ(number, again.bits());
    numbers.insert({number, other_seed.bits(), other_purpose.bits(), other_place.bits()});
  }
  CHECK_EQ(numbers.size(), 4000u);
}

// Numbers of one stream, and the first ones of many, fall into each of 64 parts of what there is as often.
TEST(random_stream_is_uniform) {
  for (bool one_stream : {true, false}) {
    constexpr size_t kParts = 64, kNumbers = 64'000;
    const std::vector<double> probabilities(kParts, 1.0 / kParts);
    std::vector<size_t> uniform(kParts), below(kParts);
    RandomStream stream(5, 0, 0);
    for (uint64_t i = 0; i < kNumbers; ++i) {
      if (!one_stream) stream = RandomStream(5, 1, i);
      const double one = stream.uniform();
      CHECK(one >= 0 && one < 1);
      ++uniform[static_cast<size_t>(one * kParts)];
      ++below[stream.below(kParts)];
      const double positive = stream.positive();
      CHECK(positive > 0 && positive <= 1);
    }
    CHECK(chi_square(uniform, probabilities) < chi_square_limit(kParts - 1));
    CHECK(chi_square(below, probabilities) < chi_square_limit(kParts - 1));
  }
}

}  // namespace livegnn::random_test
