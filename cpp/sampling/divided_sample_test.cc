// Samples that parts draw, beside those of the undivided graph.
#include "sampling/divided_sample.h"

#include <optional>
#include <vector>

#include "sampling/divided_model.h"
#include "testing/testing.h"

namespace livegnn::divided_sample_test {

using namespace testing;

namespace {

std::optional<Subgraph> draw(Divided* divided, const SubgraphRequest& request, const std::vector<double>& until) {
  DividedSample sample(divided->asking.get(), divided->names->graph, request, kSeeds, until);
  for (auto asked = sample.ask(); asked && !asked->empty(); asked = sample.ask()) {
    const std::vector<Frame> answers = divided->answer(*asked);
    if (!sample.take(spans(answers))) return std::nullopt;
  }
  return sample.finish();
}

void check_same(const Subgraph& got, const Subgraph& expected) {
  for (size_t t = 0; t < expected.nodes.size(); ++t) {
    CHECK(vector_of(got.nodes[t].ids) == vector_of(expected.nodes[t].ids));
    CHECK(vector_of(got.nodes[t].batch) == vector_of(expected.nodes[t].batch));
    CHECK(got.nodes[t].num_sampled == expected.nodes[t].num_sampled);
  }
  for (size_t e = 0; e < expected.edges.size(); ++e) {
    CHECK(vector_of(got.edges[e].row) == vector_of(expected.edges[e].row));
    CHECK(vector_of(got.edges[e].col) == vector_of(expected.edges[e].col));
    CHECK(vector_of(got.edges[e].weight) == vector_of(expected.edges[e].weight));
    CHECK(vector_of(got.edges[e].time) == vector_of(expected.edges[e].time));
  }
}

}  // namespace

TEST(parts_draw_what_the_whole_graph_draws) {
  for (uint32_t count : {1u, 2u, 3u}) {
    Divided divided(count);
    uint64_t seed = 0;
    for (SampleBy by : {SampleBy::kUniform, SampleBy::kWeight, SampleBy::kLatest}) {
      for (bool replace : {false, true}) {
        for (bool disjoint : {false, true}) {
          if (by == SampleBy::kLatest && replace) continue;
          SubgraphRequest request = request_of(by, replace, disjoint, ++seed);
          const std::vector<double> until = disjoint ? std::vector<double>{0.3, 0.9, 0.5, 0.1, 0.7} : std::vector{0.5};
          const auto got = draw(&divided, request, until);
          request.until = until;
          for (const auto& [type, ids] : kSeeds) request.seeds.push_back({type, ids});
          check_same(*got, divided.sampler.subgraph(request));
        }
      }
    }
  }
}

}  // namespace livegnn::divided_sample_test
