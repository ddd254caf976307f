// Edges at their ends: into lists and cells, and what of that serving workers have to know.
#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>

#include "presampling/shard/sampling_shard.h"
#include "store/samtree/leaf.h"

namespace livegnn {
namespace {

constexpr size_t kEdgesAtOnce = 128;  // published together, while their cells are in a near cache
constexpr size_t kWorksAhead = 24;    // works for which cells are fetched before they are needed

}  // namespace

void SamplingShard::check_edges(uint32_t edge_type, const EdgeBatch& edges, bool values) const {
  const size_t size = edges.sources.size();
  bool weights = false, times = false;
  for (const OneHopQuery& query : plan_.queries()) {
    if (query.edge_type != edge_type || !values) continue;
    weights = weights || query.weighted || query.by == SampleBy::kWeight;
    times = times || has_times(query);
  }
  const auto require = [&](bool holds, const char* what) {
    if (!holds) throw std::invalid_argument("edges of type " + std::to_string(edge_type) + ": " + what);
  };
  require(edges.targets.size() == size, "there must be as many targets as sources");
  require((edges.weights.empty() && !weights) || edges.weights.size() == size, "each needs a weight");
  require((edges.times.empty() && !times) || edges.times.size() == size, "each needs a time");
  const auto is_weight = [](float weight) { return std::fabs(weight) <= kMaxWeight; };
  require(std::all_of(edges.weights.begin(), edges.weights.end(), is_weight),
          "a weight must be a number whose magnitude is at most 2^96");
  require(std::all_of(edges.times.begin(), edges.times.end(), [](double time) { return std::isfinite(time); }),
          "a time must be finite");
}

// `visit(node, Neighbor)` for the ends of an edge at which this side begins, and which this worker owns.
template <class Visit>
void SamplingShard::for_each_end(const Side& side, const EdgeBatch& edges, size_t i, const Visit& visit) const {
  const uint64_t source = edges.sources[i], target = edges.targets[i];
  const float weight = edges.weights.empty() ? 1.0f : edges.weights[i];
  const double time = edges.times.empty() ? 0.0 : edges.times[i];
  if (!side.incoming && owns(source)) visit(source, Neighbor{target, weight, time});
  const bool other_end = side.incoming || (side.undirected && source != target);
  if (other_end && owns(target)) visit(target, Neighbor{source, weight, time});
}

void SamplingShard::change_lists(const Side& side, const EdgeBatch& edges, bool has) {
  if (side.lists == nullptr) return;
  list_changes_.clear();
  for (size_t i = 0; i < edges.sources.size(); ++i) {
    for_each_end(side, edges, i,
                 [&](uint64_t node, const Neighbor& neighbor) { list_changes_.push_back({node, neighbor, has}); });
  }
  side.lists->apply(list_changes_);
}

// `prepare` and `apply`, below, for edges that come to sides whose cells are ids alone: without what only others need.
inline void SamplingShard::prepare_ids(Work* work, CellTable::Draw* draws) const {
  NodeTable& nodes = *work->side->nodes;
  work->row = nodes.insert(work->node, work->hash);
  work->moves = nodes.moves();
  for (uint32_t query : work->side->queries) {
    const CellTable& cells = *tables_[query].cells;
    *draws = cells.draw_of_id(work->node, work->neighbor.id);
    cells.prefetch_ids(work->row, draws->priority);
    ++draws;
  }
}

inline void SamplingShard::apply_ids(Work* work, const CellTable::Draw* draws) {
  NodeTable& nodes = *work->side->nodes;
  uint64_t* const row = work->moves == nodes.moves() ? work->row : nodes.insert(work->node, work->hash);
  for (uint32_t query : work->side->queries) {
    const CellChange change = tables_[query].cells->insert_id_at(row, *draws++, work->neighbor.id);
    if (change.changed) tell_change(query, row, work->neighbor.id, change);
  }
}

// What is to be done for the edges from `begin` on that are published together.
void SamplingShard::collect(uint32_t edge_type, const EdgeBatch& edges, size_t begin, Works* to) {
  to->all.clear();
  const size_t end = std::min(edges.sources.size(), begin + kEdgesAtOnce);
  for (Side& side : sides_) {
    if (side.edge_type != edge_type) continue;
    if (begin == 0) side.collected = 0;
    for (size_t i = begin; i < end; ++i) {
      for_each_end(side, edges, i, [&](uint64_t node, const Neighbor& neighbor) {
        to->all.push_back({&side, node, NodeTable::hash_of(node), neighbor, nullptr, 0, side.collected++});
      });
    }
  }
  to->draws.resize(std::max(to->draws.size(), to->all.size() * most_queries_));
}

void SamplingShard::change_edges(uint32_t edge_type, const EdgeBatch& edges, bool has) {
  check_edges(edge_type, edges, has);
  bool ids_alone = has;
  for (const Side& side : sides_) {
    if (side.edge_type != edge_type) continue;
    change_lists(side, edges, has);
    ids_alone = ids_alone && side.ids_alone;
  }
  if (ids_alone) {
    change_cells(
        edge_type, edges, [&](Work* work, CellTable::Draw* draws) { prepare_ids(work, draws); },
        [&](Work* work, const CellTable::Draw* draws) { apply_ids(work, draws); });
  } else {
    change_cells(
        edge_type, edges, [&](Work* work, CellTable::Draw* draws) { prepare(work, draws, has); },
        [&](Work* work, const CellTable::Draw* draws) { apply(work, draws, has); });
  }
  settle();
}

// Every work is done in three steps, each on what the one before has fetched, and far enough behind it: rows are
// fetched for the next edges, while cells are fetched for works a little ahead, and changed. As many fetches are under
// way all the time as the core can have; in groups, one step after the other, most would wait for each other.
template <class Prepare, class Apply>
void SamplingShard::change_cells(uint32_t edge_type, const EdgeBatch& edges, const Prepare& prepare,
                                 const Apply& apply) {
  const auto prepare_one = [&](Works* works, size_t i) {
    if (i < works->all.size()) prepare(&works->all[i], &works->draws[i * most_queries_]);
  };
  next_works_.all.clear();
  for (size_t begin = 0; begin < edges.sources.size() + kEdgesAtOnce; begin += kEdgesAtOnce) {
    std::swap(works_, next_works_);
    collect(edge_type, edges, begin, &next_works_);
    const size_t size = works_.all.size(), next_size = next_works_.all.size();
    for (size_t i = 0; i < std::max(size, next_size); ++i) {
      if (i < next_size) next_works_.all[i].side->nodes->prefetch(next_works_.all[i].hash);
      if (i >= size) continue;
      prepare_one(&works_, i + kWorksAhead);
      apply(&works_.all[i], &works_.draws[i * most_queries_]);
    }
    for (size_t i = 0; i < kWorksAhead; ++i) prepare_one(&next_works_, i);
    if (begin > 0) complete();
  }
}

void SamplingShard::add_edges(uint32_t edge_type, const EdgeBatch& edges) { change_edges(edge_type, edges, true); }
void SamplingShard::remove_edges(uint32_t edge_type, const EdgeBatch& edges) { change_edges(edge_type, edges, false); }

// Finds the row of a work, and fetches the cells that it may change. Reads what `collect` fetches.
void SamplingShard::prepare(Work* work, CellTable::Draw* draws, bool has) const {
  const Side& side = *work->side;
  work->row = has ? side.nodes->insert(work->node, work->hash) : side.nodes->find(work->node, work->hash);
  work->moves = side.nodes->moves();
  for (uint32_t query : side.queries) {
    const CellTable& cells = *cells_[query];
    if (has && cells.format().can_be_drawn(work->neighbor)) {
      *draws = cells.draw_of(work->node, work->neighbor);
      if (work->row != nullptr) cells.prefetch_cell(work->row, draws->priority);
    } else if (work->row != nullptr) {
      cells.prefetch_cell(work->row);
    }
    ++draws;
  }
}

void SamplingShard::apply(Work* work, const CellTable::Draw* draws, bool has) {
  const Side& side = *work->side;
  NodeTable& nodes = *side.nodes;
  for (uint32_t query : side.queries) {
    const CellTable::Draw& draw = *draws++;
    if (work->row == nullptr || work->moves != nodes.moves()) {
      work->row = has ? nodes.insert(work->node, work->hash) : nodes.find(work->node, work->hash);
      work->moves = nodes.moves();
      if (work->row == nullptr) return;
    }
    CellTable& cells = *cells_[query];
    const Neighbor& neighbor = work->neighbor;
    if (has && is_late(*work, query)) continue;
    const bool drawn = has && cells.format().can_be_drawn(neighbor);
    const CellChange change =
        drawn ? cells.insert_at(work->row, draw, neighbor) : cells.erase_at(work->row, neighbor.id);
    if (change.changed) tell_change(query, work->row, neighbor.id, change);
  }
  if (work->moves != nodes.moves()) work->row = nodes.find(work->node, work->hash);
  if (work->row != nullptr) nodes.release(work->row);
}

// Whether the edge is there with a later time. Lists know it; without them a cell does, of what it holds.
bool SamplingShard::is_late(const Work& work, uint32_t query) const {
  if (!work.side->timed) return false;
  if (work.side->lists != nullptr) return work.side->lists->was_late(work.change);
  if (!has_times(plan_[query])) return false;
  const CellView cell = cells_[query]->at(work.row);
  for (uint32_t i = 0; i < cell.size; ++i) {
    if (cell.ids[i] == work.neighbor.id) return cells_[query]->format().time_at(cell, i) > work.neighbor.time;
  }
  return false;
}

// Draws a cell anew from the node's list, where there is one.
void SamplingShard::redraw(uint32_t query, uint64_t node) {
  const NeighborLists* lists = side_of(query).lists.get();
  if (lists == nullptr) return;
  const auto tell = [&](uint64_t neighbor, int64_t change) {
    for_each_subscriber(query, node, [&](uint32_t worker) { refer(query, worker, neighbor, change); });
  };
  const bool changed = cells_[query]->redraw(
      node, [&](const auto& offer) { lists->scan(node, offer); }, [&](uint64_t id) { tell(id, -1); },
      [&](uint64_t id) { tell(id, 1); });
  if (changed) touched_samples_.push_back({query, kAllWorkers, node});
}

void SamplingShard::erase_cell(uint32_t query, uint64_t node) {
  const bool changed = cells_[query]->erase_cell(node, [&](uint64_t id) {
    for_each_subscriber(query, node, [&](uint32_t worker) { refer(query, worker, id, -1); });
  });
  if (changed) touched_samples_.push_back({query, kAllWorkers, node});
}

}  // namespace livegnn
