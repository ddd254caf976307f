#include "store/earliest_times.h"

#include <algorithm>
#include <vector>

#include "testing/testing.h"

namespace livegnn::earliest_times_test {

using namespace testing;

// Beside the times of all edges: a bound is never later than the earliest, and is that one once it was looked at.
TEST(earliest_times_are_bounds_of_what_there_is) {
  Random random;
  for (int run = 0; run < 20; ++run) {
    EarliestTimes earliest;
    std::vector<std::vector<double>> times;  // of the edges of each node
    for (int turn = 0; turn < 300; ++turn) {
      const uint64_t kind = random.below(10);
      if (kind == 0 || times.empty()) {
        times.resize(times.size() + random.below(200));
        earliest.resize(times.size());
      } else if (kind < 7) {
        const uint32_t node = random.index(times.size());
        const double time = random.between(-100, 100);
        times[node].push_back(time);
        earliest.note(node, time);
      } else if (kind < 9) {
        auto& some = times[random.index(times.size())];
        if (!some.empty()) some.pop_back();
      }
      CHECK_EQ(earliest.num_blocks(), (times.size() + EarliestTimes::kBlock - 1) / EarliestTimes::kBlock);
      const double horizon = random.between(-100, 100);
      const bool looks = random.chance(0.1);
      for (size_t block = 0; block < earliest.num_blocks(); ++block) {
        double first = EarliestTimes::kNever;
        for (size_t node = block * EarliestTimes::kBlock;
             node < std::min(times.size(), (block + 1) * EarliestTimes::kBlock); ++node) {
          for (double time : times[node]) first = std::min(first, time);
        }
        CHECK(first >= horizon || earliest.before(block, horizon));
        if (!looks) continue;
        earliest.tighten(block, first);
        CHECK_EQ(earliest.before(block, horizon), first < horizon);
      }
    }
    earliest.forget();
    for (size_t block = 0; block < earliest.num_blocks(); ++block) CHECK(earliest.before(block, -1e300));
  }
}

}  // namespace livegnn::earliest_times_test
