#include "sampling/sampling.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <map>
#include <mutex>
#include <set>
#include <shared_mutex>
#include <thread>

#include "sampling/sampling_model.h"
#include "testing/chi_square.h"
#include "testing/testing.h"

namespace livegnn::sampling_test {

using namespace testing;

namespace {

void check_same(const Subgraph& a, const Subgraph& b) {
  for (size_t t = 0; t < a.nodes.size(); ++t) {
    CHECK(vector_of(a.nodes[t].ids) == vector_of(b.nodes[t].ids));
    CHECK(vector_of(a.nodes[t].batch) == vector_of(b.nodes[t].batch));
    CHECK(a.nodes[t].num_sampled == b.nodes[t].num_sampled);
  }
  for (size_t f = 0; f < a.edges.size(); ++f) {
    CHECK(vector_of(a.edges[f].row) == vector_of(b.edges[f].row));
    CHECK(vector_of(a.edges[f].col) == vector_of(b.edges[f].col));
    CHECK(a.edges[f].num_sampled == b.edges[f].num_sampled);
  }
}

TEST(samples_are_the_same_on_any_number_of_threads) {
  Shop shop(4'000, 3'000, 60'000);
  Sampler sampler(shop.graph);
  const auto users = every_tenth(4'000);
  for (SampleBy by : {SampleBy::kUniform, SampleBy::kWeight, SampleBy::kLatest}) {
    NeighborRequest neighbors;
    neighbors.strategy = {by, false, 20};
    neighbors.wanted = {true, true, false};
    neighbors.seed = 8;
    const auto first = sampler.neighbors(neighbors, users);
    for (bool disjoint : {false, true}) {
      SubgraphRequest request;
      request.seeds = {{0, users}};
      request.fan_outs = {{kFollows, {8, 4}}, {kBuys, {3, 20}}};
      request.by = by;
      request.incoming = false;
      request.disjoint = disjoint;
      request.seed = 5;
      const auto subgraph = sampler.subgraph(request);
      CHECK(subgraph.edges[1].row.size() > 10'000);
      for (size_t threads : {2, 3}) {
        request.threads = neighbors.threads = threads;
        check_same(subgraph, sampler.subgraph(request));
        const auto again = sampler.neighbors(neighbors, users);
        CHECK(vector_of(first.rowptr) == vector_of(again.rowptr));
        CHECK(vector_of(first.ids) == vector_of(again.ids));
        CHECK(vector_of(first.weight) == vector_of(again.weight));
        CHECK(vector_of(first.time) == vector_of(again.time));
      }
      request.seed = 6;
      CHECK(by == SampleBy::kLatest ||
            vector_of(sampler.subgraph(request).nodes[1].ids) != vector_of(subgraph.nodes[1].ids));
    }
  }
}

TEST(a_node_sample_has_its_law) {
  Shop shop(60, 50, 900);
  // Some nodes go, so that indices are free.
  Stage stage(shop.graph);
  const std::vector<int64_t> gone = {30, 110, 120};
  stage.remove_nodes(0, gone.data(), gone.size());
  apply(&shop.graph, &stage);
  const Sampler sampler(shop.graph);
  const GraphStore& follows = *shop.graph.edges[kFollows].store;
  for (NodesBy by : {NodesBy::kUniform, NodesBy::kDegree, NodesBy::kWeight}) {
    for (bool incoming : {false, true}) {
      std::vector<double> weights(60);
      double total = 0;
      for (uint32_t i = 0; i < 60; ++i) {
        const auto& trees = incoming ? follows.in() : follows.out();
        const bool is_gone = i == 3 || i == 11 || i == 12;
        weights[i] = is_gone                   ? 0
                     : by == NodesBy::kUniform ? 1
                     : by == NodesBy::kDegree  ? trees.degree(i)
                                               : trees.weight_sum(i);
        total += weights[i];
      }
      for (double& weight : weights) weight /= total;
      for (bool replace : {false, true}) {
        std::vector<size_t> seen(60);
        for (uint64_t seed = 0; seed < 10'000; ++seed) {
          const auto drawn = sampler.nodes({by == NodesBy::kUniform ? 0 : kFollows, by, incoming, replace, 3, seed});
          CHECK_EQ(drawn.size(), 3u);
          const auto ids = vector_of(drawn);
          if (!replace) CHECK_EQ(std::set<int64_t>(ids.begin(), ids.end()).size(), 3u);
          // The first has the distribution of a single draw, with replacement each.
          for (size_t i = 0; i < (replace ? 3 : 1); ++i) ++seen[static_cast<size_t>(ids[i]) / 10];
        }
        const auto possible =
            static_cast<size_t>(std::count_if(weights.begin(), weights.end(), [](double w) { return w > 0; }));
        CHECK(chi_square(seen, weights) < chi_square_limit(possible - 1));
        const auto all = sampler.nodes({by == NodesBy::kUniform ? 0 : kFollows, by, incoming, replace, 100, 1});
        CHECK_EQ(all.size(), replace ? 100 : possible);
      }
    }
  }
}

TEST(a_large_sample_leaves_what_small_ones_need) {
  Shop shop(3000, 1000, 40'000);
  Sampler sampler(shop.graph);
  const auto ids = every_tenth(3000);
  auto draw = [&](size_t seeds, int32_t count, bool disjoint) {
    SubgraphRequest request;
    request.seeds = {{0, std::span<const int64_t>(ids).first(seeds)}};
    request.fan_outs = {{kFollows, {count, count}}};
    request.disjoint = disjoint;
    request.seed = seeds;
    sampler.subgraph(request);
    NeighborRequest neighbors;
    neighbors.edge_type = kFollows;
    neighbors.strategy.count = count;
    sampler.neighbors(neighbors, std::span<const int64_t>(ids).first(seeds));
  };
  for (int i = 0; i < 3; ++i) draw(5, 3, i % 2 == 0);
  const size_t small = shop.graph.sampling_bytes;
  CHECK(small > 3000 * sizeof(uint64_t));
  draw(3000, -1, true);
  draw(3000, 200'000'000, false);  // more than there are: all of them
  for (int i = 0; i < 3; ++i) draw(5, 3, i % 2 == 0);
  CHECK(shop.graph.sampling_bytes <= 2 * small + (size_t{4} << 20));
  // The map of a disjoint sample goes with it: to clear it would cost every later one.
  draw(3000, -1, true);
  CHECK(shop.graph.sampling_bytes <= 2 * small + (size_t{4} << 20));
}

TEST(a_sampler_that_is_gone_holds_nothing) {
  Shop shop(100, 50, 500);
  {
    Sampler sampler(shop.graph);
    const auto ids = every_tenth(100);
    NeighborRequest request;
    request.edge_type = kFollows;
    sampler.neighbors(request, ids);
    CHECK(shop.graph.sampling_bytes > 0);
  }
  CHECK_EQ(shop.graph.sampling_bytes.load(), 0u);
}

TEST(a_sample_that_cannot_be_had_is_refused) {
  Shop shop(10, 10, 30);
  Sampler sampler(shop.graph);
  const std::vector<int64_t> known = {0, 10}, unknown = {0, 5};
  auto neighbors = [&](uint32_t type, NeighborStrategy strategy, const std::vector<int64_t>& ids,
                       const std::vector<double>& until,
                       bool incoming = false) { return sampler.neighbors({type, incoming, strategy, {}, until}, ids); };
  const NeighborStrategy uniform{SampleBy::kUniform, false, 2}, weight{SampleBy::kWeight, false, 2};
  CHECK_THROWS(neighbors(kFollows, uniform, unknown, {}), SampleError, "no such node");
  CHECK_THROWS(neighbors(9, uniform, known, {}), SampleError, "no such edge type");
  CHECK_THROWS(neighbors(kFollows, {SampleBy::kUniform, false, -2}, known, {}), SampleError, "at least -1");
  CHECK_THROWS(neighbors(kFollows, {SampleBy::kLatest, true, 2}, known, {}), SampleError, "replacement");
  CHECK_THROWS(neighbors(kAlike, weight, known, {}), SampleError, "no weights");
  CHECK_THROWS(neighbors(kAlike, {SampleBy::kLatest, false, 2}, known, {}), SampleError, "no times");
  CHECK_THROWS(neighbors(kAlike, uniform, known, {1}), SampleError, "no times");
  CHECK_THROWS(neighbors(kFollows, uniform, known, {1, 2, 3}), SampleError, "one for each of 2");
  CHECK_THROWS(neighbors(kFollows, uniform, known, {std::nan("")}), SampleError, "NaN");
  CHECK_THROWS(neighbors(kOneWay, uniform, known, {}, true), SampleError, "in-neighbors");
  CHECK_THROWS(sampler.nodes({7, NodesBy::kUniform}), SampleError, "no such node type");
  CHECK_THROWS(sampler.nodes({kAlike, NodesBy::kWeight}), SampleError, "no weights");
  SubgraphRequest request;
  request.seeds = {{0, known}};
  request.fan_outs = {{kFollows, {2, 2}}, {kBuys, {1}}};
  CHECK_THROWS(sampler.subgraph(request), SampleError, "as many hops");
  request.fan_outs = {{kFollows, {2}}};
  const std::vector<double> each = {1, 2};
  request.until = each;
  CHECK_THROWS(sampler.subgraph(request), SampleError, "disjoint");
  request.disjoint = true;
  CHECK_EQ(sampler.subgraph(request).inverse[0].size(), 2u);
}

TEST(a_sample_is_from_before_a_batch_or_after_it) {
  // Each batch gives every edge the same weight, and moves the whole list of each node from one half of the items to
  // the other: a sample that sees both halves, or two weights, saw a batch half done.
  constexpr int64_t kUsers = 50, kItems = 400;
  Graph graph({0, 0}, kShopTypes);
  Stage first(graph);
  const auto users = every_tenth(kUsers), items = every_tenth(2 * kItems);
  first.add_nodes(0, users.data(), nullptr, 0, users.size());
  first.add_nodes(1, items.data(), nullptr, 0, items.size());
  apply(&graph, &first);
  auto turn = [&](int generation) {
    Stage stage(graph);
    std::vector<int64_t> source, add, remove;
    for (int64_t user = 0; user < kUsers; ++user) {
      for (int64_t item = 0; item < kItems; ++item) {
        source.push_back(user * 10);
        add.push_back((item + generation % 2 * kItems) * 10);
        remove.push_back((item + (generation + 1) % 2 * kItems) * 10);
      }
    }
    const std::vector<float> weight(source.size(), static_cast<float>(generation));
    const std::vector<double> time(source.size(), generation);
    stage.add_edges(kBuys, source.data(), add.data(), weight.data(), time.data(), nullptr, 0, source.size());
    stage.remove_edges(kBuys, source.data(), remove.data(), source.size());
    apply(&graph, &stage);
  };
  turn(1);
  Sampler sampler(graph);
  std::atomic<bool> done{false};
  std::atomic<size_t> samples{0};
  std::vector<std::string> failures(2);
  auto read = [&](size_t reader) {
    for (uint64_t seed = reader; samples == 0 || !done; seed += 2) {
      NeighborRequest request;
      request.edge_type = kBuys;
      request.incoming = false;
      request.strategy = {seed % 3 == 0 ? SampleBy::kUniform : SampleBy::kWeight, false, seed % 5 == 0 ? -1 : 30};
      request.wanted.weighted = true;
      request.seed = seed;
      std::shared_lock lock(graph.lock);
      const auto sample = sampler.neighbors(request, users);
      std::set<float> weights(sample.weight.data(), sample.weight.data() + sample.weight.size());
      std::set<bool> halves;
      for (size_t i = 0; i < sample.ids.size(); ++i) halves.insert(sample.ids[i] >= kItems * 10);
      if (weights.size() != 1 || halves.size() != 1) failures[reader] = "a sample of a batch half done";
      if (sample.ids.size() != (seed % 5 == 0 ? kItems : 30) * kUsers) failures[reader] = "a sample of the wrong size";
      ++samples;
    }
  };
  std::thread one(read, 0), two(read, 1);
  for (int generation = 2; generation < static_cast<int>(testing::draws(12, 30)); ++generation) turn(generation);
  done = true;
  one.join();
  two.join();
  for (const auto& failure : failures) CHECK_EQ(failure, "");
  CHECK(samples > 0);
}

}  // namespace
}  // namespace livegnn::sampling_test
