#include "presampling/view/sample_assembly.h"

#include <vector>

#include "sampling/sampling_model.h"
#include "testing/testing.h"

namespace livegnn::sample_assembly_test {

using namespace testing;

namespace {

// The same as one-hop queries of the sampler.
std::vector<OneHop> drawn_by(const std::vector<OneHopRequest>& requests) {
  std::vector<OneHop> all;
  for (const auto& one : requests) {
    all.push_back({one.edge_type, one.incoming, {one.by, false, static_cast<int32_t>(one.count)}, one.parents});
  }
  return all;
}

void check_same(const Subgraph& a, const Subgraph& b) {
  for (size_t t = 0; t < a.nodes.size(); ++t) {
    CHECK(vector_of(a.nodes[t].ids) == vector_of(b.nodes[t].ids));
    CHECK(a.nodes[t].num_sampled == b.nodes[t].num_sampled);
  }
  CHECK_EQ(a.edges.size(), b.edges.size());
  for (size_t e = 0; e < a.edges.size(); ++e) {
    CHECK_EQ(a.edges[e].edge_type, b.edges[e].edge_type);
    CHECK(vector_of(a.edges[e].row) == vector_of(b.edges[e].row));
    CHECK(vector_of(a.edges[e].col) == vector_of(b.edges[e].col));
    CHECK(vector_of(a.edges[e].weight) == vector_of(b.edges[e].weight));
    CHECK(vector_of(a.edges[e].time) == vector_of(b.edges[e].time));
    CHECK(a.edges[e].num_sampled == b.edges[e].num_sampled);
  }
  CHECK(vector_of(a.inverse[0]) == vector_of(b.inverse[0]));
}

}  // namespace

TEST(an_assembled_sample_is_what_the_sampler_draws) {
  Random random;
  Shop shop(300, 200, 4'000);
  Sampler sampler(shop.graph);
  const std::vector<OneHopRequest> requests = {
      {kFollows, false, 7, SampleBy::kLatest},      {kFollows, true, 4, SampleBy::kLatest},
      {kBuys, false, 5, SampleBy::kLatest, {0, 1}}, {kBuys, false, 3, SampleBy::kLatest},
      {kFollows, true, 2, SampleBy::kLatest, {1}},  {kBuys, true, 6, SampleBy::kLatest, {2}}};
  PresamplingView view(shop.graph, 0, requests, 3, 2);
  SampleAssembly assembly(view);
  for (size_t seeds : {0, 1, 2, 30, 300}) {
    std::vector<int64_t> users;
    for (size_t i = 0; i < seeds; ++i) users.push_back(static_cast<int64_t>(random.below(300) * 10));
    SubgraphRequest request;
    request.seeds = {{0, users}};
    request.one_hops = drawn_by(requests);
    for (bool attributes : {false, true}) {
      request.attributes = attributes;
      check_same(assembly.sample(users, attributes), sampler.subgraph(request));
    }
    CHECK(assembly.num_lookups() <= view.plan().max_sample_lookups() * seeds);
  }
}

TEST(a_sample_is_a_fixed_number_of_look_ups) {
  // Every user follows all others and buys everything; nobody is drawn twice, so the bound is reached or missed by
  // whoever was there already.
  Shop shop(400, 300, 60'000);
  const std::vector<OneHopRequest> requests = {
      {kFollows, false, 5}, {kFollows, false, 4, SampleBy::kUniform, {0}}, {kBuys, false, 3, SampleBy::kWeight, {1}}};
  PresamplingView view(shop.graph, 0, requests, 3, 1);
  SampleAssembly assembly(view);
  CHECK_EQ(view.plan().max_sample_lookups(), 1u + 5 + 20);
  size_t most = 0;
  for (int64_t user = 0; user < 400; ++user) {
    const Subgraph sample = assembly.sample(std::vector<int64_t>{user * 10}, false);
    CHECK(assembly.num_lookups() <= 26);
    most = std::max(most, assembly.num_lookups());
    CHECK(sample.nodes[1].ids.size() <= 60);
  }
  CHECK(most > 20);
}

TEST(an_unknown_seed_is_refused_and_leaves_the_assembly_usable) {
  Shop shop(20, 10, 100);
  PresamplingView view(shop.graph, 0, {{kFollows, false, 3}}, 3, 1);
  SampleAssembly assembly(view);
  CHECK_THROWS(assembly.sample(std::vector<int64_t>{10, 5}, true), SampleError, "no such node");
  CHECK_EQ(assembly.sample(std::vector<int64_t>{10, 20}, true).nodes[0].num_sampled[0], 2);
}

}  // namespace livegnn::sample_assembly_test
