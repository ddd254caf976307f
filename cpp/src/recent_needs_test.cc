#include "livegnn/recent_needs.h"

#include <vector>

#include "livegnn/graph_store.h"
#include "parallel.h"
#include "testing.h"

namespace livegnn {
namespace {

using testing::Random;

// Edges of distinct pairs, for one batch.
std::vector<EdgeUpdate> updates_of(size_t count, uint32_t nodes, Random* random) {
  std::vector<EdgeUpdate> updates;
  const uint32_t first = random->index(nodes);
  for (size_t i = 0; i < count; ++i) {
    updates.push_back({static_cast<uint32_t>((first + i) % nodes),
                       static_cast<uint32_t>((first + i / nodes) % nodes),
                       random->chance(0.5),
                       {}});
  }
  return updates;
}

}  // namespace

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

// A batch that stands alone leaves what small ones need, on every kind of list; batches of one size take nothing anew.
TEST(recent_needs_of_batches_are_given_back) {
  Random random;
  ThreadPool pool(2);
  for (const EdgeOptions& options :
       {EdgeOptions{}, EdgeOptions{{true, true, true}, true}, EdgeOptions{{false, true, false}, false, false, false}}) {
    GraphStore store(options);
    store.resize(4000, 4000);
    auto apply = [&](size_t count) {
      store.prepare(updates_of(count, 4000, &random), &pool);
      store.commit();
      store.settle();
    };
    for (int i = 0; i < 10; ++i) apply(200);
    const size_t before = store.memory().batches;
    apply(300'000);
    CHECK(store.memory().batches <= before);
    for (int i = 0; i < 10; ++i) apply(50'000);
    const size_t steady = store.memory().batches;
    CHECK(steady > 50'000 * sizeof(EdgeUpdate));
    for (int i = 0; i < 10; ++i) apply(50'000);
    CHECK(store.memory().batches <= steady + steady / 8);
    for (size_t i = 0; i < RecentNeeds::kLate; ++i) apply(200);
    CHECK(store.memory().batches <= before + before / 2);
  }
}

}  // namespace livegnn
