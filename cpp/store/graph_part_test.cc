// Parts of a graph beside the whole: the same nodes under the same indices, and of the edges those with an owned end.
#include "store/graph_part.h"

#include <algorithm>
#include <array>
#include <memory>
#include <mutex>

#include "store/owners_after.h"
#include "store/stage.h"
#include "testing/testing.h"

namespace livegnn::graph_part_test {

using namespace testing;

namespace {

const std::vector<EdgeTypeSpec> kTypes{{0, 1, {{true, true}, false, true}}, {1, 1, {{true, false}, true, false}}};

std::vector<uint32_t> list_of(const GraphStore& store, uint32_t node, bool in) {
  std::vector<uint32_t> list;
  const auto visit = [&](const NeighborSpan& span) { list.insert(list.end(), span.ids, span.ids + span.size); };
  in ? store.scan_in(node, visit) : store.scan_out(node, visit);
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

struct Drawn {
  uint64_t kind;
  uint32_t type;
  int64_t first, second;
  float weight;
};

void stage(const Drawn& event, const std::array<size_t, 2>& ids, Stage* stage) {
  const uint32_t source_type = kTypes[event.type].source_type;
  const int64_t source = event.first % static_cast<int64_t>(ids[source_type]);
  const int64_t target = event.second % static_cast<int64_t>(ids[1]);
  const double time = 1;
  if (event.kind < 50) {
    stage->add_edges(event.type, &source, &target, &event.weight, &time, nullptr, 0, 1);
  } else if (event.kind < 75) {
    stage->remove_edges(event.type, &source, &target, 1);
  } else if (event.kind < 85) {
    stage->remove_nodes(source_type, &source, 1);
    stage->add_nodes(source_type, &source, nullptr, 0, 1);
  } else {
    const float x[2] = {event.weight, 1};
    stage->set_features(source_type, &source, x, 2, 1);
  }
}

void check_part(const Graph& part, const Graph& whole) {
  for (uint32_t n = 0; n < 2; ++n) CHECK(part.nodes[n].ids.ids() == whole.nodes[n].ids.ids());
  for (size_t e = 0; e < kTypes.size(); ++e) {
    const GraphStore &store = *part.edges[e].store, &all = *whole.edges[e].store;
    store.check();
    for (const bool in : {false, true}) {
      const uint32_t type = in ? kTypes[e].target_type : kTypes[e].source_type;
      const uint32_t other = in ? kTypes[e].source_type : kTypes[e].target_type;
      for (uint32_t node = 0; node < whole.nodes[type].ids.capacity(); ++node) {
        std::vector<uint32_t> list = list_of(store, node, in), expected = list_of(all, node, in);
        if (!part.part->owns(type, node)) {
          std::erase_if(expected, [&](uint32_t end) { return !part.part->owns(other, end); });
          std::sort(expected.begin(), expected.end());
          std::sort(list.begin(), list.end());
        }
        CHECK(list == expected);
      }
    }
  }
}

// Own nodes have their features, and nodes that send to own ones room for them.
void check_features(const Graph& part, const Graph& whole) {
  const auto sends = [&](size_t edge_type, uint32_t node, bool in) {
    const size_t direction = edge_type + (in ? kTypes.size() : 0);
    return part.part->reads_features(direction) && !list_of(*part.edges[edge_type].store, node, in).empty();
  };
  for (uint32_t n = 0; n < 2; ++n) {
    const NodeFeatures &features = part.nodes[n].features, &expected = whole.nodes[n].features;
    CHECK_EQ(features.rows(), expected.rows());
    for (uint32_t node = 0; node < features.rows(); ++node) {
      if (part.part->owns(n, node)) {
        CHECK(std::equal(features.row(node), features.row(node) + features.stride(), expected.row(node)));
      } else {
        CHECK_EQ(features.holds(node), n == 0 ? sends(0, node, false) : sends(1, node, false) || sends(0, node, true));
      }
    }
  }
}

}  // namespace

TEST(a_part_keeps_the_edges_with_an_owned_end) {
  constexpr std::array<size_t, 2> kIds{30, 20};
  Random random;
  for (const bool told : {false, true}) {  // by the part that owns no node, where Fennel places them
    const Owners rule(told ? OwnerRule::kTable : OwnerRule::kModulo, 3);
    Graph whole({2, 2}, kTypes);
    std::vector<std::unique_ptr<Graph>> parts;
    for (uint32_t self : {GraphPart::kNone, 0u, 1u, 2u}) {
      parts.push_back(std::make_unique<Graph>(std::vector<size_t>{2, 2}, kTypes));
      parts.back()->divide(std::make_unique<GraphPart>(rule, self, 2));
      parts.back()->part->read_features({self != 1, true, self != 2, false});
    }
    for (size_t batch = 0; batch < 60; ++batch) {
      std::vector<Drawn> events(batch == 1 ? 150 : 6);
      for (Drawn& event : events) {
        event = {random.below(100), random.index(2), static_cast<int64_t>(random.below(1000)),
                 static_cast<int64_t>(random.below(1000)), random.between(-1, 1)};
      }
      std::array<std::vector<uint16_t>, 2> given;
      const auto delta_of = [&](const Graph& graph) {
        for (uint32_t n = 0; graph.part != nullptr && n < 2; ++n) graph.part->give(n, given[n]);
        Stage staged(graph);
        if (batch == 0) {
          for (uint32_t n = 0; n < 2; ++n) {
            for (size_t i = 0; i < kIds[n]; ++i) {
              const auto id = static_cast<int64_t>(i);
              staged.add_nodes(n, &id, nullptr, 0, 1);
            }
          }
        }
        for (const Drawn& event : events) stage(event, kIds, &staged);
        return staged.finish();
      };
      commit(delta_of(whole), &whole);
      for (const auto& part : parts) {
        const Delta delta = delta_of(*part);
        for (uint32_t n = 0; part == parts[0] && n < 2; ++n) given[n] = delta.nodes[n].placed;
        const OwnersAfter after(*part->part, delta);
        for (uint32_t n = 0; n < 2; ++n) {
          for (size_t i = 0; i < delta.nodes[n].added.size(); ++i) {
            CHECK_EQ(after.of(n, delta.nodes[n].added[i]), delta.nodes[n].owners[i]);
            CHECK_EQ(delta.nodes[n].owners[i] == Owners::kNoOwner, delta.nodes[n].added_ids[i] == kNoId);
            if (told && delta.nodes[n].added_ids[i] != kNoId) CHECK_EQ(delta.nodes[n].owners[i], given[n][i]);
          }
        }
        if (batch % 4 == 3) {  // given up, and tried again
          part->prepare(delta);
          part->abandon();
        }
        commit(delta, part.get());
        check_part(*part, whole);
        if (part->shares_features()) check_features(*part, whole);
        for (uint32_t n = 0; n < 2; ++n) {
          std::array<int64_t, 3> loads{};
          for (uint32_t node = 0; node < whole.nodes[n].ids.capacity(); ++node) {
            if (part->part->owner(n, node) != Owners::kNoOwner) ++loads[part->part->owner(n, node)];
          }
          CHECK(std::ranges::equal(part->part->loads(n), loads));
          for (uint32_t node = 0; node < whole.nodes[n].ids.capacity(); ++node) {
            CHECK_EQ(part->part->owner(n, node), parts[0]->part->owner(n, node));
            CHECK_EQ(part->part->owner(n, node) == Owners::kNoOwner, !whole.nodes[n].ids.in_use(node));
          }
        }
      }
      CHECK_EQ(parts[0]->edges[0].store->num_edges(), 0u);
    }
  }
}

TEST(a_part_that_there_is_not_is_refused) {
  CHECK_THROWS(GraphPart(Owners(OwnerRule::kModulo, 2), 2, 1), std::invalid_argument, "there is no such part");
  const std::array<uint16_t, 1> owners{0};
  CHECK_THROWS(GraphPart(Owners(2, owners), 0, 1), std::invalid_argument, "begins without nodes");
  Graph graph({2, 2}, kTypes);
  graph.divide(std::make_unique<GraphPart>(Owners(OwnerRule::kTable, 2), 0, 2));
  const std::array<uint16_t, 1> none{2};
  CHECK_THROWS(graph.part->give(0, none), std::invalid_argument, "there is no part 2");
  CHECK_THROWS(GraphPart({}, 0), std::invalid_argument, "a rule for each node type");
  CHECK_THROWS(GraphPart({Owners(OwnerRule::kJump, 2), Owners(OwnerRule::kTable, 3)}, 0), std::invalid_argument,
               "the same number of parts");
  CHECK_THROWS(graph.load_nodes(0, {}, {}, nullptr, 0, 2), std::invalid_argument, "nodes that are loaded need owners");
  const int64_t id = 0;
  CHECK_THROWS(Stage(graph).add_nodes(0, &id, nullptr, 0, 1), std::invalid_argument, "a node needs an owner");
}

TEST(loaded_nodes_have_the_owners_of_their_ids_or_given_ones) {
  const std::array<int64_t, 3> ids{7, kNoId, 4};
  const Owners rule(OwnerRule::kModulo, 3);
  GraphPart part(rule, 0, 1);
  part.load(0, ids);
  CHECK_EQ(part.owner(0, 0), rule.of_id(7));
  CHECK_EQ(part.owner(0, 1), Owners::kNoOwner);
  CHECK_EQ(part.owner(0, 2), rule.of_id(4));
  GraphPart placed(Owners(OwnerRule::kTable, 3), GraphPart::kNone, 1);
  placed.give_loaded(0, {2, Owners::kNoOwner, 1});
  placed.load(0, ids);
  CHECK_EQ(placed.owner(0, 0), 2);
  CHECK_EQ(placed.owner(0, 2), 1);
  CHECK_THROWS(placed.load(0, ids), std::invalid_argument, "nodes that are loaded need owners");
  const auto refuse = [&](std::vector<uint16_t> owners, const char* why) {
    part.give_loaded(0, std::move(owners));
    CHECK_THROWS(part.load(0, ids), std::invalid_argument, why);
  };
  refuse({2, 0, 1}, "an index without a node has none");
  refuse({2, Owners::kNoOwner, Owners::kNoOwner}, "each node needs an owner");
  refuse({3, Owners::kNoOwner, 1}, "none of 3");
  refuse({2, Owners::kNoOwner}, "each index needs an owner");
}

}  // namespace livegnn::graph_part_test
