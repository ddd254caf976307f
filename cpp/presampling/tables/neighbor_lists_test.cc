#include "presampling/tables/neighbor_lists.h"

#include <map>

#include "presampling/tables/cell_model.h"
#include "testing/allocations.h"
#include "testing/testing.h"

namespace livegnn::neighbor_lists_test {
namespace {

using testing::CellList;
using testing::Random;
using Model = std::map<uint64_t, CellList>;

void check_same(const NeighborLists& lists, const Model& model, bool weighted, bool timed) {
  CHECK_EQ(lists.size(), model.size());
  size_t edges = 0;
  for (const auto& [node, list] : model) {
    size_t size = 0;
    lists.scan(node, [&](const Neighbor& neighbor) {
      ++size;
      const auto& edge = list.at(neighbor.id);
      CHECK_EQ(neighbor.weight, weighted ? edge.weight : 1.0f);
      CHECK_EQ(neighbor.time, timed ? edge.time : 0.0);
    });
    CHECK_EQ(size, list.size());
    edges += size;
  }
  lists.for_each([&](uint64_t node, const Neighbor& neighbor) {
    --edges;
    CHECK_EQ(model.at(node).count(neighbor.id), 1u);
  });
  CHECK_EQ(edges, 0u);
}

TEST(lists_of_neighbours_are_maps) {
  Random random;
  for (int round = 0; round < 20; ++round) {
    const bool weighted = random.chance(0.5), timed = random.chance(0.5);
    NeighborLists lists(weighted, timed);
    Model model;
    const uint64_t nodes = 1 + random.below(50), ids = 1 + random.below(round % 2 == 0 ? 1000 : 20);
    for (int step = 0; step < 40; ++step) {
      std::vector<NeighborLists::Change> changes(random.below(200));
      for (auto& change : changes) {
        change = {~random.below(nodes), testing::random_neighbor(&random, ids), random.chance(step < 30 ? 0.7 : 0.2)};
        CellList& list = model[change.node];
        const auto there = list.find(change.neighbor.id);
        const bool late = timed && there != list.end() && there->second.time > change.neighbor.time;
        if (change.has) {
          if (!late) list[change.neighbor.id] = {change.neighbor.weight, change.neighbor.time};
        } else {
          list.erase(change.neighbor.id);
        }
      }
      std::erase_if(model, [](const auto& one) { return one.second.empty(); });
      lists.apply(changes);
      check_same(lists, model, weighted, timed);
      for (size_t i = 0; i < changes.size(); ++i) {  // beside what is there afterwards
        const auto list = model.find(changes[i].node);
        if (!changes[i].has || list == model.end()) continue;
        const auto there = list->second.find(changes[i].neighbor.id);
        if (there == list->second.end()) continue;
        CHECK_EQ(lists.was_late(i), timed && there->second.time > changes[i].neighbor.time);
      }
    }
    Arrays arrays;
    lists.save("l_", &arrays);
    ArrayViews views;
    for (const SavedArray& array : arrays.all()) {
      std::visit([&](const auto& values) { views.put(array.name, std::span(values)); }, array.values);
    }
    NeighborLists loaded(weighted, timed);
    loaded.load("l_", views);
    check_same(loaded, model, weighted, timed);
    std::vector<NeighborLists::Change> all;
    lists.for_each([&](uint64_t node, const Neighbor& neighbor) { all.push_back({node, neighbor, false}); });
    lists.apply(all);
    CHECK_EQ(lists.size(), 0u);
    CHECK(lists.bytes() < 100'000);
  }
}

TEST(lists_without_memory_stay_as_they_are) {
  Random random;
  NeighborLists lists(true, false);
  Model model;
  for (int step = 0; step < 30; ++step) {
    std::vector<NeighborLists::Change> changes(50);
    for (auto& change : changes) change = {random.below(40), {random.below(1000), 1.0f}, random.chance(0.7)};
    testing::fail_each_allocation([&] { lists.apply(changes); }, [&] { check_same(lists, model, true, false); });
    for (const auto& change : changes) {
      if (change.has) {
        model[change.node][change.neighbor.id] = {1, 0};
      } else if (model.count(change.node) > 0) {
        model[change.node].erase(change.neighbor.id);
      }
    }
    std::erase_if(model, [](const auto& one) { return one.second.empty(); });
    check_same(lists, model, true, false);
  }
}

}  // namespace
}  // namespace livegnn::neighbor_lists_test
