// Subgraphs beside the walk that they are drawn by.
#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "sampling/sampling.h"
#include "sampling/sampling_model.h"
#include "testing/testing.h"

namespace livegnn::subgraph_test {

using namespace testing;

namespace {

struct Neighbor {
  float weight;
  double time;
};

// Goes through a subgraph hop by hop, in the order in which it was drawn.
struct Walk {
  const Graph& graph;
  const SubgraphRequest& request;
  const Subgraph& drawn;
  std::vector<size_t> begin, end, next;  // of the frontier, and what comes after it, by node type
  std::vector<size_t> edges;             // gone through, by fan-out

  Walk(const Graph& graph, const SubgraphRequest& request, const Subgraph& drawn)
      : graph(graph),
        request(request),
        drawn(drawn),
        begin(graph.nodes.size()),
        end(graph.nodes.size()),
        next(graph.nodes.size()),
        edges(request.fan_outs.size()) {
    for (size_t t = 0; t < next.size(); ++t) next[t] = static_cast<size_t>(drawn.nodes[t].num_sampled[0]);
  }

  std::map<int64_t, Neighbor> neighbors(size_t f, size_t node) const {
    const Graph::EdgeType& type = graph.edges[request.fan_outs[f].edge_type];
    const uint32_t here = request.incoming ? type.spec.target_type : type.spec.source_type;
    const uint32_t there = request.incoming ? type.spec.source_type : type.spec.target_type;
    const auto& until = request.until;
    std::map<int64_t, Neighbor> all;
    auto add = [&](NeighborSpan span) {
      for (size_t i = 0; i < span.size; ++i) {
        const double time = span.times == nullptr ? 0 : span.times[i];
        const auto batch = until.size() > 1 ? static_cast<size_t>(drawn.nodes[here].batch.data()[node]) : 0;
        if (!until.empty() && time > until[batch]) continue;
        all[graph.nodes[there].ids.id_of(span.ids[i])] = {span.weights == nullptr ? 1.0f : span.weights[i], time};
      }
    };
    const uint32_t index = graph.nodes[here].ids.index_of(drawn.nodes[here].ids.data()[node]);
    request.incoming ? type.store->scan_in(index, add) : type.store->scan_out(index, add);
    return all;
  }

  // The edges that one node has in one hop: as many as it should have, from among its own, none twice.
  void check_node(size_t f, size_t hop, size_t node) {
    const EdgeTypeSpec& spec = graph.edges[request.fan_outs[f].edge_type].spec;
    const uint32_t here = request.incoming ? spec.target_type : spec.source_type;
    const uint32_t there = request.incoming ? spec.source_type : spec.target_type;
    const int32_t count = request.fan_outs[f].counts[hop];
    const auto known = neighbors(f, node);
    size_t expected = count < 0 ? known.size() : std::min<size_t>(known.size(), static_cast<size_t>(count));
    if (request.replace && count >= 0 && !known.empty()) expected = static_cast<size_t>(count);
    const Subgraph::Edges& to = drawn.edges[f];
    double latest_left = -1, earliest_taken = 1e300;
    std::set<int64_t> taken;
    for (size_t i = 0; i < expected; ++i, ++edges[f]) {
      const auto mine = static_cast<size_t>((request.incoming ? to.col : to.row).data()[edges[f]]);
      const auto other = static_cast<size_t>((request.incoming ? to.row : to.col).data()[edges[f]]);
      CHECK_EQ(mine, node);
      CHECK(other <= next[there]);  // numbers are given in order
      next[there] += other == next[there];
      const int64_t id = drawn.nodes[there].ids.data()[other];
      CHECK(known.contains(id));
      CHECK(taken.insert(id).second || request.replace);
      earliest_taken = std::min(earliest_taken, known.at(id).time);
      if (request.attributes && to.weight.size() > 0) CHECK_EQ(to.weight.data()[edges[f]], known.at(id).weight);
      if (request.attributes && to.time.size() > 0) CHECK_EQ(to.time.data()[edges[f]], known.at(id).time);
      if (!request.disjoint) continue;
      CHECK_EQ(drawn.nodes[there].batch.data()[other], drawn.nodes[here].batch.data()[node]);
    }
    for (const auto& [id, value] : known) {
      if (!taken.contains(id)) latest_left = std::max(latest_left, value.time);
    }
    if (request.by == SampleBy::kLatest) CHECK(latest_left <= earliest_taken);
  }

  void check() {
    for (size_t t = 0; t < next.size(); ++t) {
      std::set<std::pair<int64_t, int64_t>> once;
      for (size_t i = 0; i < drawn.nodes[t].ids.size(); ++i) {
        CHECK(once.emplace(drawn.nodes[t].ids.data()[i], request.disjoint ? drawn.nodes[t].batch.data()[i] : 0).second);
      }
    }
    for (size_t hop = 0; hop < request.fan_outs[0].counts.size(); ++hop) {
      begin = end;
      end = next;
      for (size_t f = 0; f < request.fan_outs.size(); ++f) {
        const EdgeTypeSpec& spec = graph.edges[request.fan_outs[f].edge_type].spec;
        const uint32_t here = request.incoming ? spec.target_type : spec.source_type;
        const size_t before = edges[f];
        for (size_t node = begin[here]; node < end[here]; ++node) check_node(f, hop, node);
        CHECK_EQ(drawn.edges[f].num_sampled[hop], static_cast<int64_t>(edges[f] - before));
      }
      for (size_t t = 0; t < next.size(); ++t) {
        CHECK_EQ(drawn.nodes[t].num_sampled[hop + 1], static_cast<int64_t>(next[t] - end[t]));
      }
    }
    for (size_t t = 0; t < next.size(); ++t) CHECK_EQ(drawn.nodes[t].ids.size(), next[t]);
    for (size_t f = 0; f < edges.size(); ++f) CHECK_EQ(drawn.edges[f].row.size(), edges[f]);
  }
};

}  // namespace

TEST(subgraph_is_a_walk_from_its_seeds) {
  Random random;
  Shop shop(300, 200, 4'000);
  Sampler sampler(shop.graph);
  for (int run = 0; run < 200; ++run) {
    SubgraphRequest request;
    request.incoming = random.chance(0.5);
    request.disjoint = random.chance(0.5);
    request.attributes = random.chance(0.5);
    request.seed = static_cast<uint64_t>(run);
    request.threads = 1 + random.below(2);
    request.by = random.chance(0.3) ? SampleBy::kLatest : random.chance(0.5) ? SampleBy::kWeight : SampleBy::kUniform;
    request.replace = request.by != SampleBy::kLatest && random.chance(0.3);
    const size_t hops = 1 + random.below(3);
    for (uint32_t type : {kFollows, kBuys, kAlike}) {
      if (type == kAlike && (request.by != SampleBy::kUniform || random.chance(0.5))) continue;
      request.fan_outs.push_back({type, {}});
      for (size_t hop = 0; hop < hops; ++hop) {
        request.fan_outs.back().counts.push_back(random.chance(0.2) ? -1 : static_cast<int32_t>(random.below(6)));
      }
    }
    // A seed may be given twice; then it is one node, unless the subgraphs are disjoint.
    std::vector<int64_t> users, items;
    for (size_t i = random.below(8); i > 0; --i) users.push_back(static_cast<int64_t>(random.below(300) * 10));
    for (size_t i = random.below(8); i > 0; --i) items.push_back(static_cast<int64_t>(random.below(200) * 10));
    request.seeds = {{0, users}, {1, items}};
    std::vector<double> until;
    const bool timed = request.fan_outs.back().edge_type != kAlike;
    if (timed && random.chance(0.5)) {
      until.resize(request.disjoint && random.chance(0.5) ? users.size() + items.size() : 1);
      for (double& time : until) time = random.between(0, 1);
      request.until = until;
    }
    const Subgraph drawn = sampler.subgraph(request);
    Walk(shop.graph, request, drawn).check();
    for (size_t t : {0, 1}) {
      const std::vector<int64_t>& ids = t == 0 ? users : items;
      for (size_t i = 0; i < ids.size(); ++i) {
        CHECK_EQ(drawn.nodes[t].ids.data()[drawn.inverse[t].data()[i]], ids[i]);
      }
    }
  }
}

TEST(one_hop_queries_draw_what_fan_outs_draw) {
  Shop shop(300, 200, 4'000);
  Sampler sampler(shop.graph);
  const std::vector<int64_t> users = {10, 20, 30};
  SubgraphRequest fan_outs;
  fan_outs.seeds = {{0, users}};
  fan_outs.fan_outs = {{kFollows, {5, 3}}, {kBuys, {4, 2}}};
  fan_outs.incoming = false;
  fan_outs.seed = 7;
  SubgraphRequest one_hops;
  one_hops.seeds = fan_outs.seeds;
  one_hops.seed = fan_outs.seed;
  const auto draw = [](uint32_t type, int32_t count, std::vector<int32_t> parents) {
    return OneHop{type, false, {SampleBy::kUniform, false, count}, parents};
  };
  one_hops.one_hops = {draw(kFollows, 5, {-1}), draw(kBuys, 4, {-1}), draw(kFollows, 3, {0}), draw(kBuys, 2, {0})};
  const Subgraph expected = sampler.subgraph(fan_outs), drawn = sampler.subgraph(one_hops);
  for (size_t e : {0, 1}) {
    CHECK_EQ(drawn.edges[e].edge_type, expected.edges[e].edge_type);
    CHECK(vector_of(drawn.edges[e].row) == vector_of(expected.edges[e].row));
    CHECK(vector_of(drawn.edges[e].col) == vector_of(expected.edges[e].col));
    CHECK(drawn.edges[e].num_sampled == expected.edges[e].num_sampled);
    CHECK(vector_of(drawn.nodes[e].ids) == vector_of(expected.nodes[e].ids));
  }
}

TEST(nodes_of_some_parents_alone_are_drawn_for) {
  Shop shop(300, 200, 4'000);
  Sampler sampler(shop.graph);
  const std::vector<int64_t> users = {10, 20};
  SubgraphRequest request;
  request.seeds = {{0, users}};
  const NeighborStrategy all{SampleBy::kUniform, false, NeighborStrategy::kAll};
  // Between the nodes that query 0 and query 2 bring in lie those of query 1.
  request.one_hops = {{kFollows, false, {SampleBy::kUniform, false, 3}, {-1}},
                      {kFollows, true, all, {-1}},
                      {kFollows, false, {SampleBy::kLatest, false, 40}, {-1}},
                      {kBuys, false, all, {0, 2}}};
  for (size_t threads : {1, 2}) {
    request.threads = threads;
    const Subgraph drawn = sampler.subgraph(request);
    std::set<int64_t> outward, keys;
    const auto& follows = drawn.edges[0];
    for (size_t i = 0; i < follows.row.size(); ++i) {
      if (follows.row[i] < 2 && follows.col[i] >= 2) outward.insert(follows.col[i]);
    }
    for (size_t i = 0; i < drawn.edges[1].row.size(); ++i) keys.insert(drawn.edges[1].row[i]);
    CHECK(!keys.empty());
    // Those that query 1 reached first are its own, though query 2 reaches them too.
    CHECK(std::includes(outward.begin(), outward.end(), keys.begin(), keys.end()));
  }
}

}  // namespace livegnn::subgraph_test
