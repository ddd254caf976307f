#include "sampling/one_hops.h"

#include "sampling/sampling.h"
#include "sampling/sampling_model.h"
#include "testing/testing.h"

namespace livegnn::one_hops_test {

using namespace testing;

namespace {

constexpr NeighborStrategy kThree{SampleBy::kUniform, false, 3};

}  // namespace

TEST(one_hop_queries_are_planned_by_hop_and_type) {
  Shop shop(5, 5, 10);
  const auto plan = plan_one_hops(shop.graph,
                                  {{kFollows, false, kThree, {-1}},
                                   {kBuys, false, kThree, {-1}},
                                   {kFollows, true, kThree, {0}},
                                   {kAlike, true, kThree, {1}},
                                   {kFollows, false, kThree, {0}}},
                                  false);
  CHECK_EQ(num_hops(plan), 2u);
  CHECK_EQ(plan[1].key_type, 0u);
  CHECK_EQ(plan[1].neighbor_type, 1u);
  CHECK_EQ(plan[3].hop, 1u);
  // Two along one edge type in one hop draw independently.
  CHECK(plan[2].purpose != plan[4].purpose);
  CHECK(plan[0].purpose != plan[4].purpose);
  CHECK_EQ(num_hops({}), 0u);
}

TEST(one_hop_queries_that_fit_nothing_are_refused) {
  Shop shop(5, 5, 10);
  auto plan = [&](std::vector<OneHop> all, bool bounded = false) { plan_one_hops(shop.graph, all, bounded); };
  CHECK_THROWS(plan({{9, false, kThree, {-1}}}), SampleError, "no such edge type");
  CHECK_THROWS(plan({{kFollows, false, kThree, {}}}), SampleError, "must have a parent");
  CHECK_THROWS(plan({{kFollows, false, kThree, {0}}}), SampleError, "an earlier one-hop query, got 0");
  CHECK_THROWS(plan({{kFollows, false, kThree, {-2}}}), SampleError, "got -2");
  CHECK_THROWS(plan({{kFollows, false, kThree, {-1}}, {kFollows, false, kThree, {-1, 0}}}), SampleError, "one hop");
  CHECK_THROWS(plan({{kAlike, false, {SampleBy::kWeight, false, 3}, {-1}}}), SampleError, "no weights");
  CHECK_THROWS(plan({{kOneWay, true, kThree, {-1}}}), SampleError, "in-neighbors");
  CHECK_THROWS(plan({{kAlike, false, kThree, {-1}}}, true), SampleError, "no times");
}

}  // namespace livegnn::one_hops_test
