// Counted readers beside those that are found in the edges that the graph has.
#include "inference/halo/readers.h"

#include <map>

#include "inference/halo/parts_model.h"
#include "testing/testing.h"

namespace livegnn::readers_of_rows_test {

using namespace testing;

namespace {

// By node: the parts that it sends to, along edges and, if they are used, against them.
std::map<uint32_t, uint64_t> find_readers(const Graph& graph, bool reversed) {
  const GraphPart& part = *graph.part;
  std::map<uint32_t, uint64_t> found;
  const auto send = [&](uint32_t from, uint32_t to) {
    if (!part.owns(0, from) || part.owns(0, to)) return;
    found[from] |= uint64_t{1} << part.owner(0, to);
  };
  for (uint32_t node = 0; node < graph.edges[0].store->num_sources(); ++node) {
    for (const auto& [target, key, weight, features] : list_of(graph, node, false)) {
      send(node, target);
      if (reversed) send(target, node);
    }
  }
  return found;
}

// One that begins with the graph has counted the same.
void check_counted(const Graph& graph, bool reversed, const Readers& followed) {
  const Readers counted(graph, {true, reversed});
  CHECK_EQ(counted.edges(0), followed.edges(0));
  for (uint32_t node = 0; node < graph.nodes[0].ids.capacity(); ++node) {
    CHECK_EQ(counted.of(0, node), followed.of(0, node));
  }
}

}  // namespace

TEST(readers_are_those_that_the_edges_say) {
  for (bool undirected : {false, true}) {
    for (bool reversed : {false, true}) {
      const EdgeTypeSpec spec{0, 0, {{true, false}, undirected, false}};
      std::vector<std::unique_ptr<Graph>> parts;
      std::vector<Readers> readers;
      for (uint32_t self = 0; self < 3; ++self) {
        parts.push_back(std::make_unique<Graph>(std::vector<size_t>{kFeatures}, std::vector{spec}));
        parts[self]->divide(std::make_unique<GraphPart>(Owners(OwnerRule::kModulo, 3), self, 1));
        readers.emplace_back(*parts[self], std::vector<bool>{true, reversed});
      }
      Graph whole({kFeatures}, {spec});
      SharedStream stream(1);
      for (size_t batch = 0; batch < 40; ++batch) {
        const StagedEvents events = stream.next(batch == 0 ? 80 : 6);
        const Delta all = stage_all(whole, events);
        commit(all, &whole, {});
        size_t edges = 0;
        for (size_t self = 0; self < 3; ++self) {
          Graph& graph = *parts[self];
          const Delta delta = stage_all(graph, events);
          const auto before = find_readers(graph, reversed);
          readers[self].prepare(delta, OwnersAfter(*graph.part, delta));
          if (batch % 3 == 2) {  // as if the batch had been given up
            readers[self].abandon();
            readers[self].prepare(delta, OwnersAfter(*graph.part, delta));
          }
          commit(delta, &graph, {});
          const auto after = find_readers(graph, reversed);
          std::map<uint32_t, uint64_t> begun;
          for (const auto& [node, mask] : after) {
            const auto old = before.find(node);
            const uint64_t more = mask & ~(old == before.end() ? 0 : old->second);
            if (more != 0) begun[node] = more;
          }
          std::map<uint32_t, uint64_t> said;
          for (const Readers::Begun& each : readers[self].begun(0)) said[each.node] = each.parts;
          CHECK(said == begun);
          const size_t capacity = graph.nodes[0].ids.capacity();
          for (uint32_t node = 0; node < capacity; ++node) {
            const auto old = before.find(node), now = after.find(node);
            const uint64_t expected = (old == before.end() ? 0 : old->second) | (now == after.end() ? 0 : now->second);
            CHECK_EQ(readers[self].of(0, node), expected);
          }
          // Edges before the batch, and those that it changes.
          edges += readers[self].edges(0);
          readers[self].commit();
          readers[self].abandon();
          check_counted(graph, reversed, readers[self]);
          for (uint32_t node = 0; node < capacity; ++node) {
            const auto now = after.find(node);
            CHECK_EQ(readers[self].of(0, node), now == after.end() ? 0 : now->second);
          }
        }
        const size_t added =
            static_cast<size_t>(std::count_if(all.edges[0].begin(), all.edges[0].end(),
                                              [](const EdgeChange& change) { return change.has && !change.had; }));
        const size_t removed =
            static_cast<size_t>(std::count_if(all.edges[0].begin(), all.edges[0].end(),
                                              [](const EdgeChange& change) { return change.had && !change.has; }));
        CHECK_EQ(edges, whole.edges[0].store->num_edges() + removed - added + all.edges[0].size());
        for (size_t self = 0; batch % 7 == 3 && self < 3; ++self)
          readers[self] = Readers(*parts[self], {true, reversed});
      }
    }
  }
}

}  // namespace livegnn::readers_of_rows_test
