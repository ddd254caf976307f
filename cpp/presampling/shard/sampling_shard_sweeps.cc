// Removals for which whole tables are gone through: of nodes, and of edges that are too old.
#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>
#include <tuple>

#include "presampling/shard/sampling_shard.h"

namespace livegnn {

void SamplingShard::remove_nodes(uint32_t node_type, std::span<const uint64_t> nodes) {
  if (node_type >= features_.size()) throw std::invalid_argument("there is no node type " + std::to_string(node_type));
  erased_.assign(nodes.begin(), nodes.end());
  std::sort(erased_.begin(), erased_.end());
  const auto is_erased = [&](uint64_t id) { return std::binary_search(erased_.begin(), erased_.end(), id); };
  for (const Side& side : sides_) {
    if (side.lists == nullptr) continue;
    const OneHopQuery& query = plan_[side.queries[0]];
    list_changes_.clear();
    side.lists->for_each([&](uint64_t node, const Neighbor& neighbor) {
      const bool goes = (query.key_type == node_type && is_erased(node)) ||
                        (query.neighbor_type == node_type && is_erased(neighbor.id));
      if (goes) list_changes_.push_back({node, neighbor, false});
    });
    side.lists->apply(list_changes_);
  }
  removals_.clear();
  for (uint32_t q = 0; q < plan_.size(); ++q) {
    if (plan_[q].key_type == node_type) {
      for (uint64_t node : erased_) erase_cell(q, node);
    }
    if (plan_[q].neighbor_type != node_type) continue;
    cells_[q]->for_each([&](uint64_t node, const CellView& cell) {
      for (uint32_t i = 0; i < cell.size; ++i) {
        if (is_erased(cell.ids[i])) removals_.push_back({q, node, cell.ids[i]});
      }
    });
  }
  remove_sorted();
  for (uint64_t node : erased_) {
    if (features_[node_type]->erase(node)) touched_features_.push_back({node_type, kAllWorkers, node});
  }
  complete();
  settle();
}

void SamplingShard::expire(uint32_t edge_type, double before) {
  if (std::isnan(before)) throw std::invalid_argument("edges expire before a time, not before a NaN");
  for (const Side& side : sides_) {
    if (side.edge_type != edge_type) continue;
    const auto timed = [&](uint32_t q) { return has_times(plan_[q]); };
    const bool all = std::all_of(side.queries.begin(), side.queries.end(), timed);
    if (side.lists != nullptr ? !side.timed : !all) {
      throw std::invalid_argument("edges of type " + std::to_string(edge_type) +
                                  " cannot expire: their queries keep no times");
    }
  }
  removals_.clear();
  for (const Side& side : sides_) {
    if (side.edge_type != edge_type) continue;
    list_changes_.clear();
    if (side.lists != nullptr) {
      side.lists->for_each([&](uint64_t node, const Neighbor& neighbor) {
        if (neighbor.time < before) list_changes_.push_back({node, neighbor, false});
      });
      side.lists->apply(list_changes_);
    }
    for (uint32_t q : side.queries) {
      for (const auto& change : list_changes_) removals_.push_back({q, change.node, change.neighbor.id});
      if (side.lists != nullptr) continue;
      const CellFormat& format = cells_[q]->format();
      cells_[q]->for_each([&](uint64_t node, const CellView& cell) {
        for (uint32_t i = 0; i < cell.size; ++i) {
          if (format.time_at(cell, i) < before) removals_.push_back({q, node, cell.ids[i]});
        }
      });
    }
  }
  remove_sorted();
  complete();
  settle();
}

// Removes what tables were gone through for. The order of a table is that of its history, which a worker whose state
// was loaded does not have, and its blocks must be the same.
void SamplingShard::remove_sorted() {
  std::sort(removals_.begin(), removals_.end(), [](const Removal& a, const Removal& b) {
    return std::tie(a.query, a.node, a.neighbor) < std::tie(b.query, b.node, b.neighbor);
  });
  for (const Removal& removal : removals_) {
    NodeTable& nodes = *side_of(removal.query).nodes;
    uint64_t* row = nodes.find(removal.node);
    if (row == nullptr) continue;
    const CellChange change = cells_[removal.query]->erase_at(row, removal.neighbor);
    if (change.changed) tell_change(removal.query, row, removal.neighbor, change);
    row = nodes.find(removal.node);  // it may have moved
    if (row != nullptr) nodes.release(row);
  }
}

}  // namespace livegnn
