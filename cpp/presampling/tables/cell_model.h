// Reference model for the tests of samples: whole lists, sorted anew each time.
#pragma once

#include <algorithm>
#include <map>
#include <vector>

#include "presampling/tables/cell_heap.h"
#include "testing/testing.h"

namespace livegnn::testing {

struct CellEdge {
  float weight = 1;
  double time = 0;
};
using CellList = std::map<uint64_t, CellEdge>;  // by neighbour

// The neighbours of a node that belong into its cell, best first.
inline std::vector<CellEntry> best_of(const CellOptions& options, uint64_t node, const CellList& list) {
  const CellFormat format(options);
  std::vector<CellEntry> entries;
  for (const auto& [id, edge] : list) {
    const Neighbor neighbor{id, edge.weight, edge.time};
    if (options.by != SampleBy::kWeight || edge.weight > 0) {
      entries.push_back({format.priority(format.salt_of(node), neighbor), neighbor});
    }
  }
  std::sort(entries.begin(), entries.end());
  if (entries.size() > options.count) entries.resize(options.count);
  return entries;
}

inline void check_cell(const CellOptions& options, const CellView& cell, const std::vector<CellEntry>& expected) {
  const CellFormat format(options);
  CHECK_EQ(cell.size, expected.size());
  for (uint32_t i = 0; i < cell.size; ++i) {
    const Neighbor neighbor = format.neighbor_at(cell, i);
    CHECK_EQ(neighbor.id, expected[i].neighbor.id);
    if (options.weighted) CHECK_EQ(neighbor.weight, expected[i].neighbor.weight);
    if (options.timed || options.by == SampleBy::kLatest) CHECK_EQ(neighbor.time, expected[i].neighbor.time);
  }
}

// Of every strategy, and with every combination of columns.
inline CellOptions random_cell_options(Random* random, uint32_t most = 30) {
  return {static_cast<SampleBy>(random->below(3)),
          1 + random->index(most),
          random->chance(0.5),
          random->chance(0.5),
          random->below(1000),
          random->below(5)};
}
// Some weights are not positive, some times are equal, some ids are great.
inline Neighbor random_neighbor(Random* random, uint64_t ids) {
  const uint64_t id = random->below(ids);
  return {id % 5 == 0 ? ~id : id, random->chance(0.1) ? -random->between(0, 1) : random->between(0, 9),
          static_cast<double>(random->below(20)) - 5};
}

}  // namespace livegnn::testing
