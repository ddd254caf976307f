// Changes in an order that no batch would have found them in.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "inference/rows/changes.h"
#include "testing/testing.h"

namespace livegnn::testing {

// `width`: of the value. Rows stay where they are, so those that are still to be computed must not be shuffled.
inline void shuffle(size_t width, Random* random, Changes* changes) {
  if (changes->size() == 0) return;
  std::vector<std::pair<uint32_t, uint32_t>> nodes;
  for (size_t i = 0; i < changes->size(); ++i) nodes.emplace_back(changes->nodes()[i], changes->position(i));
  for (size_t i = nodes.size(); i > 1; --i) std::swap(nodes[i - 1], nodes[random->below(i)]);
  const float* const rows = changes->at(0);
  std::vector<uint32_t> reached = std::move(changes->reached);
  changes->begin(width);
  changes->lie_at(rows);
  changes->reached = std::move(reached);
  for (const auto& [node, position] : nodes) changes->add(node, position);
}

}  // namespace livegnn::testing
