#include <map>
#include <tuple>

#include "presampling/shard/sampling_shard.h"
#include "presampling/worker_model.h"
#include "testing/testing.h"

namespace livegnn::sampling_shard_edges_test {
namespace {

using testing::Random;
using Counts = std::map<std::pair<uint64_t, uint32_t>, uint32_t>;  // by node and worker

Counts counts_of(const SubscriptionTable& table) {
  Counts counts;
  table.for_each([&](uint64_t node, uint32_t worker, uint32_t count) { counts[{node, worker}] = count; });
  return counts;
}

void check_same(const SamplingShard& a, const SamplingShard& b) {
  for (size_t q = 0; q < a.plan().size(); ++q) {
    a.cells(q).check();
    CHECK_EQ(a.cells(q).size(), b.cells(q).size());
    b.cells(q).for_each([&](uint64_t node, const CellView& cell) {
      const CellView other = a.cells(q).find(node);
      CHECK_EQ(cell.size, other.size);
      for (uint32_t i = 0; i < cell.size; ++i) {
        const Neighbor x = a.cells(q).format().neighbor_at(other, i), y = b.cells(q).format().neighbor_at(cell, i);
        CHECK(std::tie(x.id, x.weight, x.time) == std::tie(y.id, y.weight, y.time));
      }
    });
    CHECK(counts_of(a.subscriptions(q)) == counts_of(b.subscriptions(q)));
  }
  for (size_t type = 0; type < a.options().feature_widths.size(); ++type) {
    CHECK(counts_of(a.feature_subscriptions(type)) == counts_of(b.feature_subscriptions(type)));
  }
}

// Rows move while edges of the same call are under way, and what one of them touches others have fetched.
TEST(edges_in_one_call_do_what_they_do_one_by_one) {
  Random random;
  for (size_t round = 0; round < testing::draws(12, 30); ++round) {
    ShardOptions options = testing::random_shard_options(&random, random.chance(0.5));
    options.sampling_workers = 1;
    const auto uniform = [&](uint32_t type, int32_t parent) {
      return OneHopRequest{type, false, 1 + static_cast<int64_t>(random.below(30)), SampleBy::kUniform, {parent}};
    };
    // Cells of ids alone, over one type, which has a way of its own; or all kinds.
    const bool plain = random.chance(0.5);
    const QueryPlan plan = plain
                               ? QueryPlan(0, 3, testing::kMarketTypes,
                                           std::vector<OneHopRequest>{uniform(2, kSeeds), uniform(2, 0), uniform(2, 1)})
                               : testing::random_market_plan(&random);
    SamplingShard together(plan, options), alone(plan, options);
    const uint64_t ids = 1 + random.below(round % 3 == 0 ? 3000 : 60);
    for (int call = 0; call < 12; ++call) {
      const uint32_t type = plain ? 2 : random.index(testing::kMarketTypes.size());
      const bool has = random.chance(call < 8 ? 0.9 : 0.3);
      testing::PlainEdges edges;
      for (uint64_t i = random.below(600); i > 0; --i) {
        edges.add(random.below(ids), random.below(ids),
                  {random.chance(0.1) ? -1.0f : random.between(0, 5), static_cast<double>(random.below(50))});
      }
      for (size_t i = 0; i < edges.sources.size(); ++i) {
        testing::PlainEdges one;
        one.add(edges.sources[i], edges.targets[i], {edges.weights[i], edges.times[i]});
        has ? alone.add_edges(type, one.batch()) : alone.remove_edges(type, {one.sources, one.targets});
      }
      has ? together.add_edges(type, edges.batch()) : together.remove_edges(type, {edges.sources, edges.targets});
      check_same(together, alone);
    }
  }
}

// An edge that is late beside another of its own call, which may be published with it or not.
TEST(an_edge_that_comes_late_in_its_call_changes_nothing) {
  Random random;
  const QueryPlan plan(0, 3, testing::kMarketTypes,
                       std::vector<OneHopRequest>{{0, false, 3, SampleBy::kUniform, {kSeeds}, false, true}});
  for (const bool keep_edges : {false, true}) {
    SamplingShard shard(plan, {0, 1, 1, 5, keep_edges, testing::kMarketWidths});
    testing::PlainEdges edges;
    std::map<std::pair<uint64_t, uint64_t>, double> latest;
    for (int i = 0; i < 2'000; ++i) {
      const uint64_t source = random.below(100), target = random.below(3);
      const auto time = static_cast<double>(random.below(1000));
      edges.add(source, target, {1, time});
      double& known = latest.try_emplace({source, target}, time).first->second;
      known = std::max(known, time);
    }
    shard.add_edges(0, edges.batch());
    for (const auto& [edge, time] : latest) {
      const CellView cell = shard.cells(0).find(edge.first);
      const auto at = std::find(cell.ids, cell.ids + cell.size, edge.second) - cell.ids;
      CHECK(at < cell.size);
      CHECK_EQ(cell.times[at], time);
    }
  }
}

}  // namespace
}  // namespace livegnn::sampling_shard_edges_test
