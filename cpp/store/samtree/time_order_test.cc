#include "store/samtree/time_order.h"

#include <vector>

#include "store/samtree/time_order_model.h"
#include "testing/testing.h"

namespace livegnn::time_order_test {

using namespace testing;

namespace {

template <class Id>
void run(bool weighted, uint32_t spread, Random* random) {
  OrderedModel<Id> ordered(weighted);
  double now = 0;
  for (int turn = 0; turn < 120; ++turn) {
    change_at_random(&ordered, turn, spread, &now, random);
    for (int i = 0; i < 5; ++i) ordered.check(random);
  }
}

}  // namespace

TEST(time_order_agrees_with_a_sorted_list) {
  Random random;
  for (uint32_t spread : {50u, 1'000u, 30'000u}) {
    for (bool weighted : {false, true}) {
      run<uint32_t>(weighted, spread, &random);
      run<uint64_t>(weighted, spread, &random);
    }
  }
}

TEST(time_order_of_a_stream_fills_its_leaves) {
  // 12 bytes an edge and little more, where edges come in the order of their times.
  OrderedModel<uint32_t> ordered(false);
  std::vector<TimeOrder<uint32_t>::Change> change(1);
  ordered.change({{0, {0, 0, 1}}}, {});
  for (uint32_t i = 1; i < 100'000; ++i) {
    change[0] = {{static_cast<double>(i / 3), ~i, 1}, true};
    ordered.tree = {ordered.order.rebuild(ordered.tree, change, &ordered.work, &ordered.lane), i + 1};
    for (BlockRef ref : ordered.lane.retired) ordered.heap.free(ref);
    ordered.lane.made.clear(), ordered.lane.retired.clear();
  }
  ordered.order.check(ordered.tree);
  CHECK(ordered.heap.live_bytes() < 100'000 * 12.5);
}

}  // namespace livegnn::time_order_test
