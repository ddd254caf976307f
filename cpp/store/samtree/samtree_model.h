// Reference model for the tests of samtrees: a map from neighbour to value for each node.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <vector>

#include "store/samtree/samtree.h"
#include "testing/testing.h"

namespace livegnn::testing {

// The part of a value that a type with these columns keeps.
inline EdgeValue kept(EdgeValue value, EdgeColumns columns) {
  return {columns.weighted ? value.weight : 1.0f, columns.timed ? value.time : 0.0,
          columns.featured ? value.row : kNoRow};
}

inline bool same_value(EdgeValue a, EdgeValue b) { return a.weight == b.weight && a.time == b.time && a.row == b.row; }

// Compares saved states of trees.
template <class Saved>
bool same_columns(const Saved& a, const Saved& b) {
  return a.shape == b.shape && a.keys == b.keys && a.ids == b.ids && a.weights == b.weights && a.times == b.times &&
         a.rows == b.rows && a.sums == b.sums && a.orders == b.orders;
}

template <class Id>
using NeighborModel = std::map<Id, EdgeValue>;  // of one node

inline constexpr EdgeColumns kAllColumns[] = {
    {false, false, false}, {true, false, false}, {false, true, false}, {false, false, true}, {true, true, true}};
inline constexpr SamtreeOptions kSmall{8, 2, true};

inline EdgeValue random_value(Random* random) {
  return {random->between(-1, 9), random->between(0, 1e6f), random->index(1000)};
}

template <class Id>
void check_against(const Samtrees<Id>& trees, size_t node, const NeighborModel<Id>& model) {
  const EdgeColumns columns = trees.columns();
  CHECK_EQ(trees.degree(node), model.size());
  NeighborModel<Id> scanned;
  bool first = true;
  Id last = 0;
  trees.scan(node, [&](BasicNeighborSpan<Id> span) {
    CHECK(span.size > 0);
    CHECK_EQ(span.weights != nullptr, columns.weighted);
    CHECK_EQ(span.times != nullptr, columns.timed);
    CHECK_EQ(span.rows != nullptr, columns.featured);
    CHECK(first || *std::min_element(span.ids, span.ids + span.size) > last);
    first = false;
    last = *std::max_element(span.ids, span.ids + span.size);
    for (size_t i = 0; i < span.size; ++i) {
      EdgeValue value{span.weights ? span.weights[i] : 1.0f, span.times ? span.times[i] : 0.0,
                      span.rows ? span.rows[i] : kNoRow};
      CHECK(scanned.emplace(span.ids[i], value).second);
    }
  });
  CHECK_EQ(scanned.size(), model.size());
  double sum = 0;
  auto b = scanned.begin();
  for (auto a = model.begin(); a != model.end(); ++a, ++b) {
    CHECK_EQ(a->first, b->first);
    CHECK(same_value(kept(a->second, columns), b->second));
    sum += std::max(0.0f, b->second.weight);
  }
  CHECK(std::abs(trees.weight_sum(node) - sum) <= 1e-5 * sum);
}

// Compacts blocks as a store does between batches; `look` is called while readers could see the trees.
template <class Id, class Look>
void compact(Samtrees<Id>* trees, const Look& look) {
  typename Samtrees<Id>::Lane lane;
  if (!trees->begin_compaction()) return;
  std::vector<SamtreeRoot> moved;
  for (size_t node = 0; node < trees->size(); ++node) moved.push_back(trees->relocate(trees->root(node), &lane));
  look();
  for (size_t node = 0; node < trees->size(); ++node) trees->set_root(node, moved[node]);
  trees->free_retired(&lane);
  trees->end_compaction();
}

template <class Body>
void for_both_ids(const Body& body) {
  body(uint32_t{});
  body(uint64_t{});
}

// Ids as streams have them: close together, far apart, and at the ends of the range.
template <class Id>
Id random_id(Random* random, uint32_t spread) {
  if (random->chance(0.01)) return random->chance(0.5) ? std::numeric_limits<Id>::max() - random->index(3) : 0;
  const Id cluster = static_cast<Id>(random->index(3)) << (sizeof(Id) * 8 - 3);
  return static_cast<Id>(cluster + random->below(spread));
}

}  // namespace livegnn::testing
