#include "presampling/samples/query_plan.h"

#include "testing/testing.h"

namespace livegnn::query_plan_test {
namespace {

using testing::Random;

// Users click on items, items are bought together, users know users.
const std::vector<PlannedEdgeType> kTypes{
    {0, 1, false, true, true}, {1, 1, true, false, false}, {0, 0, false, false, true}};

QueryPlan plan_of(std::vector<OneHopRequest> requests, uint32_t seed_type = 0) {
  return QueryPlan(seed_type, 2, kTypes, requests);
}

TEST(a_path_is_a_chain_of_one_hop_queries) {
  const QueryPlan plan = plan_of({{0, false, 25, SampleBy::kWeight},
                                  {1, true, 10, SampleBy::kUniform, {0}},
                                  {0, true, 5, SampleBy::kLatest, {1}, true}});
  CHECK_EQ(plan.num_hops(), 3u);
  CHECK(plan[0].of_seeds() && plan[0].key_type == 0 && plan[0].neighbor_type == 1 && plan[0].hop == 0);
  CHECK(plan[0].children == (std::vector<uint32_t>{1}));
  CHECK(plan[1].undirected && !plan[1].incoming);
  CHECK(plan[1].parents == (std::vector<uint32_t>{0}));
  CHECK(plan[2].key_type == 1 && plan[2].neighbor_type == 0 && plan[2].hop == 2 && plan[2].children.empty());
  CHECK(plan.cell_options(2, 7).query == 2 && plan.cell_options(2, 7).weighted && !plan.cell_options(2, 7).timed);
  // As in the paper: 1 + 25 + 25 * 10 cells, and the features of all nodes.
  CHECK_EQ(plan.max_sample_lookups(), 1u + 25 + 250);
  CHECK_EQ(plan.max_feature_lookups(), 1u + 25 + 250 + 1250);
}

TEST(several_edge_types_in_a_hop) {
  const QueryPlan plan = plan_of({{0, false, 3},
                                  {2, false, 2},
                                  {0, false, 4, SampleBy::kUniform, {1}},
                                  {1, false, 5, SampleBy::kUniform, {0}},
                                  {1, false, 6, SampleBy::kUniform, {2, 3}}});
  CHECK_EQ(plan.num_hops(), 3u);
  CHECK_EQ(plan[4].hop, 2u);
  CHECK(plan[2].children == (std::vector<uint32_t>{4}) && plan[3].children == (std::vector<uint32_t>{4}));
  CHECK_EQ(plan.max_sample_lookups(), 1u + 1 + 2 + 3 + (8 + 15));
  std::vector<OneHopRequest> path{{2, false, 1024}};
  for (int32_t i = 0; i < 9; ++i) path.push_back({2, true, 1024, SampleBy::kUniform, {i}});
  CHECK_EQ(plan_of(path).max_feature_lookups(), UINT64_MAX);
}

TEST(what_is_no_query_is_refused) {
  const auto refused = [](std::vector<OneHopRequest> requests, const char* why) {
    CHECK_THROWS(plan_of(requests), std::invalid_argument, why);
  };
  CHECK_THROWS(plan_of({{0, false, 3}}, 2), std::invalid_argument, "node type 2");
  refused({}, "from 1 to 1024 one-hop queries, not 0");
  refused(std::vector<OneHopRequest>(1025, {2, false, 3}), "not 1025");
  refused({{3, false, 3}}, "one-hop query 0: there is no edge type 3");
  refused({{0, false, 0}}, "a fan-out is from 1 to 1024, not 0");
  refused({{0, false, -5}}, "not -5");
  refused({{0, false, 1025}}, "not 1025");
  refused({{2, false, 3, SampleBy::kWeight}}, "asks for weights");
  refused({{2, false, 3, SampleBy::kUniform, {kSeeds}, true}}, "asks for weights");
  refused({{1, false, 3}}, "begin at node type 1, and its key nodes are of type 0");
  refused({{0, true, 3}}, "begin at node type 1");
  refused({{0, false, 3}, {0, false, 3, SampleBy::kUniform, {0}}}, "one-hop query 1: its edges begin at node type 0");
  refused({{2, false, 3, SampleBy::kUniform, {}}}, "come from nowhere");
  // A cycle needs a parent that comes later, or is the query itself.
  refused({{2, false, 3, SampleBy::kUniform, {0}}}, "its parent 0 is no earlier query");
  refused({{2, false, 3, SampleBy::kUniform, {1}}, {2, false, 3, SampleBy::kUniform, {0}}}, "its parent 1 is no");
  refused({{2, false, 3, SampleBy::kUniform, {-2}}}, "its parent -2");
  refused({{2, false, 3, SampleBy::kUniform, {kSeeds, kSeeds}}}, "is there twice");
  refused({{2, false, 3}, {2, false, 3, SampleBy::kUniform, {kSeeds, 0}}}, "different hops");
  refused({{2, false, 3}, {2, false, 3, SampleBy::kUniform, {0, kSeeds}}}, "different hops");
}

}  // namespace
}  // namespace livegnn::query_plan_test
