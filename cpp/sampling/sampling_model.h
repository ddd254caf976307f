// For the tests of samples: the graph of a shop, with lists of every kind.
#pragma once

#include <algorithm>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "hashing/random.h"
#include "sampling/sampling.h"
#include "store/graph.h"
#include "store/stage.h"
#include "testing/testing.h"

namespace livegnn::testing {

// Users (0) and items (1): follows, purchases, similar items, and one type without in-lists.
inline const std::vector<EdgeTypeSpec> kShopTypes{
    {0, 0, {{true, true}, false}},
    {0, 1, {{true, true}, false}},
    {1, 1, {{false, false}, true}},
    {0, 1, {{false, false}, false, false, false}},
};
inline constexpr uint32_t kFollows = 0, kBuys = 1, kAlike = 2, kOneWay = 3;

inline void apply(Graph* graph, Stage* stage) {
  const Delta delta = stage->finish();
  graph->prepare(delta);
  {
    std::unique_lock lock(graph->lock);
    graph->commit(delta);
  }
  graph->settle();
}

// Ids are the indices times ten.
struct Shop {
  Shop(size_t users, size_t items, size_t edges, std::unique_ptr<GraphPart> part = nullptr)
      : graph({0, 0}, kShopTypes) {
    graph.divide(std::move(part));
    Stage nodes(graph);
    const size_t counts[] = {users, items};
    for (uint32_t type : {0u, 1u}) {
      std::vector<int64_t> ids(counts[type]);
      for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int64_t>(i * 10);
      nodes.add_nodes(type, ids.data(), nullptr, 0, ids.size());
    }
    apply(&graph, &nodes);
    Stage stage(graph);
    for (uint32_t type = 0; type < kShopTypes.size(); ++type) {
      RandomStream random(1, 1, type);
      std::vector<int64_t> source(edges), target(edges);
      std::vector<float> weight(edges);
      std::vector<double> time(edges);
      for (size_t i = 0; i < edges; ++i) {
        // Low numbers are more frequent, so that some lists are long.
        const auto from = counts[kShopTypes[type].source_type], to = counts[kShopTypes[type].target_type];
        source[i] = static_cast<int64_t>(random.below(random.below(from) + 1) * 10);
        target[i] = static_cast<int64_t>(random.below(to) * 10);
        weight[i] = static_cast<float>(random.uniform());
        time[i] = random.uniform();
      }
      stage.add_edges(type, source.data(), target.data(), weight.data(), time.data(), nullptr, 0, edges);
    }
    apply(&graph, &stage);
  }

  Graph graph;
};

inline std::vector<int64_t> every_tenth(size_t count) {
  std::vector<int64_t> ids(count);
  for (size_t i = 0; i < count; ++i) ids[i] = static_cast<int64_t>(i * 10);
  return ids;
}

template <class T>
std::vector<T> vector_of(const Column<T>& column) {
  std::vector<T> values(column.size());
  std::copy_n(column.data(), column.size(), values.begin());
  return values;
}

}  // namespace livegnn::testing
