#include "memory/recent_needs.h"

#include <vector>

#include "testing/testing.h"

namespace livegnn::recent_needs_test {
using testing::Random;

TEST(recent_needs_give_back_what_stands_alone_and_keep_what_comes_again) {
  RecentNeeds needs(10);
  CHECK(!needs.outgrown(10));   // small
  CHECK(needs.outgrown(1000));  // the only one
  CHECK(!needs.outgrown(1000));
  CHECK(!needs.outgrown(900));
  // Those of late count, and the largest of them alone does not.
  int given_back = 0;
  for (size_t i = 0; i < RecentNeeds::kLate + 12; ++i) given_back += needs.outgrown(100) ? 1 : 0;
  CHECK_EQ(given_back, 1);
  CHECK(needs.outgrown(5000));
  for (size_t i = 0; i < RecentNeeds::kLate; ++i) CHECK(!needs.outgrown(150));
}

// At any time at most twice what the second largest of the last kLate needed.
TEST(recent_needs_are_bounded) {
  Random random;
  RecentNeeds needs(16);
  std::vector<size_t> all;
  size_t held = 0;
  for (int i = 0; i < 5000; ++i) {
    const size_t need = random.below(size_t{1} << random.below(20));
    all.push_back(need);
    held = std::max(held, need);
    if (needs.outgrown(need)) held = 0;
    std::vector<size_t> last(all.end() - static_cast<int64_t>(std::min(RecentNeeds::kLate, all.size())), all.end());
    last.push_back(0);
    std::sort(last.rbegin(), last.rend());
    CHECK(held <= std::max<size_t>(16, 2 * last[1] + 1));
  }
}

}  // namespace livegnn::recent_needs_test
