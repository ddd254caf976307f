#include "memory/growing_array.h"

#include <algorithm>
#include <vector>

#include "testing/allocations.h"
#include "testing/testing.h"

namespace livegnn::growing_array_test {

using namespace testing;

TEST(growing_array_is_like_a_vector) {
  Random random;
  for (int run = 0; run < 20; ++run) {
    GrowingArray<int> array;
    std::vector<int> expected;
    auto check = [&] {
      CHECK_EQ(array.size(), expected.size());
      CHECK(std::equal(array.begin(), array.end(), expected.begin()));
    };
    for (int turn = 0; turn < 200; ++turn) {
      const size_t size = expected.size() + random.below(random.chance(0.1) ? 1000 : 5);
      if (random.chance(0.7)) array.prepare(random.chance(0.8) ? size : size + random.below(90));
      check();
      // Who only prepares may think better of it; who adopts has room, and frees later.
      if (random.chance(0.2)) array.settle();
      const int* before = array.data();
      array.adopt();
      check();
      if (size <= array.capacity()) {
        const int* there = array.data();
        check_allocates_nothing([&] { array.resize(size, turn); });
        CHECK_EQ(array.data(), there);
      } else {
        CHECK_EQ(array.data(), before);  // nothing was prepared
        array.resize(size, turn);
      }
      expected.resize(size, turn);
      check();
      if (random.chance(0.5)) array.settle();
      for (int i = 0; i < 3 && !expected.empty(); ++i) {
        const size_t at = random.below(expected.size());
        array[at] = expected[at] = static_cast<int>(random.below(1000));
      }
      if (random.chance(0.3)) array.push_back(turn), expected.push_back(turn);
      if (random.chance(0.3) && !expected.empty()) array.pop_back(), expected.pop_back();
      check();
    }
  }
}

// However slowly it grows, an element is copied a constant number of times.
TEST(growing_array_grows_by_half) {
  GrowingArray<int> array;
  size_t copies = 0;
  for (size_t size = 1; size <= 100'000; ++size) {
    array.prepare(size);
    const int* before = array.data();
    array.adopt();
    array.push_back(0);
    copies += array.data() == before ? 0 : array.size();
    array.settle();
  }
  CHECK(copies < 4 * array.size());
}

TEST(growing_array_that_cannot_grow_stays_as_it_was) {
  GrowingArray<int> array;
  array = std::vector<int>{1, 2, 3};
  CHECK_EQ(fail_each_allocation([&] { array.prepare(100); }, [&] { CHECK((array.values() == std::vector{1, 2, 3})); }),
           1u);
  CHECK((array.values() == std::vector{1, 2, 3}));
}

}  // namespace livegnn::growing_array_test
