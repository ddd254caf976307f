#include "presampling/tables/evicted_filter.h"

#include "testing/testing.h"

namespace livegnn::evicted_filter_test {

using testing::Random;

TEST(a_filter_finds_what_was_added_and_little_else) {
  Random random;
  const uint64_t salt = random.below(UINT64_MAX);
  for (size_t bytes : {1, 5000, 1 << 20}) {
    EvictedFilter filter(bytes);
    const size_t keys = filter.bytes() * 8 / 12;
    for (uint64_t i = 0; i < keys; ++i) filter.add(salt + i);
    for (uint64_t i = 0; i < keys; ++i) CHECK(filter.may_have(salt + i));
    size_t wrong = 0;
    for (uint64_t i = 0; i < 10'000; ++i) wrong += filter.may_have(salt + keys + i);
    CHECK(wrong < 150);
    filter.clear();
    for (uint64_t i = 0; i < 1000; ++i) CHECK(!filter.may_have(salt + i));
  }
}

}  // namespace livegnn::evicted_filter_test
