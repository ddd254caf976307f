// Parts that take their share of a graph, beside those that have followed its events.
#include "store/graph_share.h"

#include <algorithm>
#include <memory>
#include <tuple>
#include <vector>

#include "store/part_features.h"
#include "store/stage.h"
#include "testing/testing.h"

namespace livegnn::graph_share_test {

using namespace testing;

namespace {

constexpr size_t kWidth = 2;

// Two edge types between two node types; the second has edge features, parallel edges or no lists of in-neighbours.
std::vector<EdgeTypeSpec> types_of(bool undirected, bool keyed, bool in_lists) {
  EdgeTypeSpec first{0, 1, {{true, true}, false, true, in_lists, {4, 1}}};
  EdgeTypeSpec second{1, 1, {{true, false}, undirected, false, true, {4, 1}, keyed}, kWidth};
  return {first, second};
}

struct Entry {
  uint32_t other, key;
  float weight;
  double time;
  std::vector<float> x;
  auto operator<=>(const Entry&) const = default;
};

std::vector<Entry> list_of(const Graph::EdgeType& type, uint32_t node, bool in) {
  std::vector<Entry> list;
  const Table& features = type.features.table();
  const auto visit = [&](const NeighborSpan& span) {
    for (size_t i = 0; i < span.size; ++i) {
      Entry entry{span.ids[i],
                  key_at(span, i),
                  span.weights == nullptr ? 1 : span.weights[i],
                  span.times == nullptr ? 0 : span.times[i],
                  {}};
      if (span.rows != nullptr) {
        const float* const x = features.row(span.rows[i]);
        entry.x.assign(x, x + features.width());
      }
      list.push_back(std::move(entry));
    }
  };
  in ? type.store->scan_in(node, visit) : type.store->scan_out(node, visit);
  return list;
}

void commit(const Delta& delta, Graph* graph) {
  graph->prepare(delta);
  {
    std::unique_lock lock(graph->lock);
    graph->commit(delta);
  }
  graph->settle();
}

// The same random events for any number of graphs.
void apply(uint64_t seed, size_t events, const std::vector<Graph*>& graphs) {
  for (Graph* graph : graphs) {
    Random random;
    for (uint64_t i = 0; i < seed; ++i) random.below(2);
    Stage stage(*graph);
    const bool keyed = graph->edges[1].spec.options.keyed;
    for (size_t i = 0; i < events; ++i) {
      const auto type = static_cast<uint32_t>(random.below(2));
      const auto source = static_cast<int64_t>(random.below(30)), target = static_cast<int64_t>(random.below(8));
      const float weight = random.between(0, 2);
      const double time = static_cast<double>(random.below(9));
      const std::vector<float> x{random.between(-1, 1), random.between(-1, 1)};
      const auto key = static_cast<uint32_t>(random.below(3));
      const uint64_t kind = random.below(100);
      const uint32_t node_type = type == 0 ? 0 : 1;
      stage.add_nodes(node_type, &source, nullptr, 0, 1);
      stage.add_nodes(1, &target, nullptr, 0, 1);
      const uint32_t* const keys = keyed && type == 1 ? &key : nullptr;
      if (kind < 65) {
        stage.add_edges(type, &source, &target, &weight, type == 0 ? &time : nullptr, type == 1 ? x.data() : nullptr,
                        type == 1 ? kWidth : 0, 1, keys);
      } else if (kind < 85) {
        stage.remove_edges(type, &source, &target, 1, keys);
      } else if (kind < 95) {
        stage.set_features(node_type, &source, x.data(), kWidth, 1);
      } else {
        stage.remove_nodes(node_type, &source, 1);
      }
    }
    commit(stage.finish(), graph);
  }
}

void check_equal(const Graph& part, const Graph& expected, const Graph& whole) {
  CHECK_EQ(part.latest_time, whole.latest_time);
  for (uint32_t n = 0; n < part.nodes.size(); ++n) {
    const Graph::NodeType &nodes = part.nodes[n], &others = whole.nodes[n];
    CHECK(nodes.ids.ids() == others.ids.ids());
    CHECK(nodes.ids.free_list() == others.ids.free_list());
    for (uint32_t node = 0; node < nodes.ids.capacity(); ++node) {
      CHECK_EQ(part.part->owner(n, node), expected.part->owner(n, node));
    }
    // Of other parts' nodes, those with an edge to or from an own one, whoever will read them.
    const std::vector<uint32_t> held = held_nodes(part, n);
    CHECK(nodes.features.held() == held);
    for (uint32_t node : held) {
      CHECK(std::equal(nodes.features.row(node), nodes.features.row(node) + kWidth, others.features.row(node)));
    }
  }
  for (size_t e = 0; e < part.edges.size(); ++e) {
    const Graph::EdgeType& type = part.edges[e];
    type.store->check();
    CHECK_EQ(type.store->num_edges(), expected.edges[e].store->num_edges());
    CHECK_EQ(type.features.free_list().size(), 0);
    CHECK_EQ(type.features.table().rows(), type.spec.width == 0 ? 0 : type.store->num_edges());
    for (bool in : {false, true}) {
      if (in && !type.store->has_in()) continue;
      const uint32_t node_type = in ? type.spec.target_type : type.spec.source_type;
      for (uint32_t node = 0; node < part.nodes[node_type].ids.capacity(); ++node) {
        std::vector<Entry> got = list_of(type, node, in), other = list_of(expected.edges[e], node, in);
        if (part.part->owns(node_type, node)) {
          CHECK(got == list_of(whole.edges[e], node, in));
          CHECK(got == other);
        }
        std::sort(got.begin(), got.end());
        std::sort(other.begin(), other.end());
        CHECK(got == other);
      }
    }
  }
}

}  // namespace

TEST(a_part_takes_what_a_part_that_follows_the_events_has) {
  for (bool undirected : {false, true}) {
    for (bool keyed : {false, true}) {
      const std::vector<EdgeTypeSpec> types = types_of(undirected, keyed, keyed);
      const std::vector<size_t> widths{kWidth, kWidth};
      Graph whole(widths, types);
      std::vector<std::unique_ptr<Graph>> followed;
      std::vector<Graph*> all{&whole};
      for (uint32_t self = 0; self < 3; ++self) {
        followed.push_back(std::make_unique<Graph>(widths, types));
        followed[self]->divide(std::make_unique<GraphPart>(Owners(OwnerRule::kModulo, 3), self, 2));
        all.push_back(followed[self].get());
      }
      for (uint64_t batch = 0; batch < testing::draws(12, 60); ++batch) {
        apply(batch, batch == 0 ? 400 : 40, all);
        for (uint32_t self = 0; self < 3; ++self) {
          Graph taken(widths, types);
          taken.divide(std::make_unique<GraphPart>(Owners(OwnerRule::kModulo, 3), self, 2));
          take_share(whole, &taken);
          check_equal(taken, *followed[self], whole);
          if (batch % 4 != 3) continue;
          // It goes on as the others do.
          followed[self] = std::make_unique<Graph>(widths, types);
          followed[self]->divide(std::make_unique<GraphPart>(Owners(OwnerRule::kModulo, 3), self, 2));
          take_share(whole, followed[self].get());
          all[self + 1] = followed[self].get();
        }
      }
      Graph none(widths, types);
      none.divide(std::make_unique<GraphPart>(Owners(OwnerRule::kModulo, 3), GraphPart::kNone, 2));
      take_share(whole, &none);
      CHECK_EQ(none.edges[0].store->num_edges() + none.edges[1].store->num_edges(), 0);
    }
  }
}

TEST(only_a_part_without_nodes_takes_a_share) {
  const std::vector<EdgeTypeSpec> types = types_of(false, false, true);
  Graph whole({kWidth, kWidth}, types), part({kWidth, kWidth}, types);
  apply(1, 20, {&whole});
  CHECK_THROWS(take_share(whole, &part), std::invalid_argument, "of an undivided graph");
  part.divide(std::make_unique<GraphPart>(Owners(OwnerRule::kModulo, 2), 0, 2));
  take_share(whole, &part);
  CHECK_THROWS(take_share(whole, &part), std::invalid_argument, "before it has nodes");
  CHECK_THROWS(take_share(part, &part), std::invalid_argument, "of an undivided graph");
  Graph table({kWidth, kWidth}, types);
  table.divide(std::make_unique<GraphPart>(Owners(OwnerRule::kTable, 2), 0, 2));
  CHECK_THROWS(take_share(whole, &table), std::invalid_argument, "need owners");
}

}  // namespace livegnn::graph_share_test
