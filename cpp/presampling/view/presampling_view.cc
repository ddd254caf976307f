#include "presampling/view/presampling_view.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

#include "threads/parallel.h"

namespace livegnn {
namespace {

// Hands each neighbour of a part of a list to `offer`.
template <class Offer>
void offer_all(const NeighborSpan& span, bool keyed, const Offer& offer) {
  for (size_t i = 0; i < span.size; ++i) {
    const uint64_t id = keyed ? list_id<uint64_t>(span.ids[i], span.keys[i]) : span.ids[i];
    offer(Neighbor{id, span.weights == nullptr ? 1.0f : span.weights[i], span.times == nullptr ? 0.0 : span.times[i]});
  }
}

bool same_entry(const CellFormat& format, const CellView& cell, uint32_t i, const CellEntry& entry) {
  const Neighbor old = format.neighbor_at(cell, i);
  const Neighbor& now = entry.neighbor;
  const bool same_weight = !format.options().weighted || old.weight == now.weight;
  const bool timed = format.has_times() || format.options().by == SampleBy::kLatest;
  return old.id == now.id && same_weight && (!timed || old.time == now.time);
}

bool is_same(const CellFormat& format, const CellView& cell, std::span<const CellEntry> entries) {
  if (cell.size != entries.size()) return false;
  for (uint32_t i = 0; i < cell.size; ++i) {
    if (!same_entry(format, cell, i, entries[i])) return false;
  }
  return true;
}

QueryPlan plan_for(const Graph& graph, uint32_t seed_type, std::vector<OneHopRequest> requests) {
  std::vector<PlannedEdgeType> types;
  for (const auto& type : graph.edges) {
    const EdgeOptions& options = type.spec.options;
    types.push_back({type.spec.source_type, type.spec.target_type, options.undirected, options.columns.weighted,
                     options.columns.timed});
  }
  for (OneHopRequest& request : requests) {
    if (request.edge_type >= types.size()) continue;  // the plan says so
    request.weighted = types[request.edge_type].weighted;
    request.timed = types[request.edge_type].timed;
  }
  return QueryPlan(seed_type, graph.nodes.size(), types, requests);
}

}  // namespace

PresamplingView::PresamplingView(const Graph& graph, uint32_t seed_type, std::vector<OneHopRequest> requests,
                                 uint64_t seed, size_t threads)
    : graph_(graph), plan_(plan_for(graph, seed_type, requests)) {
  for (size_t q = 0; q < plan_.size(); ++q) {
    const GraphStore& store = store_of(plan_[q]);
    if (plan_[q].incoming && !store.has_in()) {
      throw std::invalid_argument("one-hop query " + std::to_string(q) + ": its edge type keeps no lists of in-edges");
    }
    tables_.push_back(std::make_unique<Table>(plan_.cell_options(q, seed)));
    tables_.back()->keyed = store.options().keyed;
  }
  ThreadPool pool(threads);
  for (size_t q = 0; q < plan_.size(); ++q) fill(q, &pool);
}

void PresamplingView::draw_now(size_t query, uint32_t node, CellDraw* draw) const {
  const bool keyed = tables_[query]->keyed;
  draw->begin(node);
  const auto visit = [&](const NeighborSpan& span) {
    offer_all(span, keyed, [&](const Neighbor& neighbor) { draw->offer(neighbor); });
  };
  const GraphStore& store = store_of(plan_[query]);
  plan_[query].incoming ? store.scan_in(node, visit) : store.scan_out(node, visit);
}

// Threads draw, one thread puts what they have drawn into the heap.
void PresamplingView::fill(size_t query, ThreadPool* pool) {
  constexpr size_t kBlockNodes = 512, kBlocks = 64;
  Table& table = *tables_[query];
  const size_t capacity = graph_.nodes[plan_[query].key_type].ids.capacity();
  table.roots.resize(capacity);
  struct Block {
    std::vector<uint32_t> sizes;
    std::vector<CellEntry> entries;
  };
  std::vector<Block> blocks(kBlocks);
  std::vector<CellDraw> draws(pool->threads(), CellDraw(&table.cells.format()));
  for (size_t begin = 0; begin < capacity; begin += kBlockNodes * kBlocks) {
    const size_t size = std::min(kBlockNodes * kBlocks, capacity - begin);
    const size_t used = (size + kBlockNodes - 1) / kBlockNodes;
    pool->run(used, 1000.0 * static_cast<double>(size), [&](size_t b, size_t lane) {
      Block& block = blocks[b];
      block.sizes.clear();
      block.entries.clear();
      const size_t end = std::min(size, (b + 1) * kBlockNodes);
      for (size_t i = b * kBlockNodes; i < end; ++i) {
        draw_now(query, static_cast<uint32_t>(begin + i), &draws[lane]);
        const auto drawn = draws[lane].finish();
        block.sizes.push_back(static_cast<uint32_t>(drawn.size()));
        block.entries.insert(block.entries.end(), drawn.begin(), drawn.end());
      }
    });
    size_t node = begin;
    for (size_t b = 0; b < used; ++b) {
      std::span<const CellEntry> entries(blocks[b].entries);
      for (uint32_t count : blocks[b].sizes) {
        table.cells.assign(&table.roots[node++], entries.first(count));
        entries = entries.subspan(count);
      }
    }
  }
}

void PresamplingView::prepare(const Change& change) {
  need_ = 0;
  for (size_t q = 0; q < plan_.size(); ++q) {
    const OneHopQuery& query = plan_[q];
    Table& table = *tables_[q];
    table.capacity = change.capacity_after(query.key_type);
    table.roots.prepare(table.capacity);
    collect(change, query, table.keyed);
    need_ = std::max(need_, touches_.size());
    for (size_t begin = 0, end; begin < touches_.size(); begin = end) {
      constexpr size_t kRootsAhead = 32, kCellsAhead = 16;
      if (begin + kRootsAhead < touches_.size()) prefetch_root(q, touches_[begin + kRootsAhead].node);
      if (begin + kCellsAhead < touches_.size()) prefetch_cell(q, touches_[begin + kCellsAhead].node);
      end = begin + 1;
      while (end < touches_.size() && touches_[end].node == touches_[begin].node) ++end;
      prepare_cell(change, q, std::span<const Touch>(touches_).subspan(begin, end - begin));
    }
  }
}

// The changes of all key nodes of a query, sorted by node, then by neighbour.
void PresamplingView::collect(const Change& change, const OneHopQuery& query, bool keyed) {
  const bool timed = store_of(query).options().columns.timed;
  touches_.clear();
  change.for_each_edge(query.edge_type, [&](uint32_t source, uint32_t target, const EdgeChange& edge) {
    const uint32_t node = query.incoming ? target : source, end = query.incoming ? source : target;
    const uint64_t id = keyed ? list_id<uint64_t>(end, edge.key) : end;
    touches_.push_back({node, edge.has, {id, edge.new_weight, timed ? edge.new_time : 0.0}});
  });
  std::sort(touches_.begin(), touches_.end(), [](const Touch& a, const Touch& b) {
    return a.node != b.node ? a.node < b.node : a.neighbor.id < b.neighbor.id;
  });
}

void PresamplingView::prepare_cell(const Change& change, size_t query, std::span<const Touch> touches) {
  Table& table = *tables_[query];
  const uint32_t node = touches[0].node;
  const CellView cell = table.cells.view(table.root(node));
  const auto entries = entries_after(change, query, cell, touches);
  if (is_same(table.cells.format(), cell, entries)) return;
  table.prepared.push_back({node, {}});
  table.cells.assign(&table.prepared.back().root, entries);
}

std::span<const CellEntry> PresamplingView::entries_after(const Change& change, size_t query, const CellView& cell,
                                                          std::span<const Touch> touches) {
  Table& table = *tables_[query];
  const CellFormat& format = table.cells.format();
  const uint32_t node = touches[0].node, count = format.options().count;
  const uint64_t salt = format.salt_of(node);
  const auto touched = [&](uint64_t id) {
    const auto at = std::lower_bound(touches.begin(), touches.end(), id,
                                     [](const Touch& touch, uint64_t id) { return touch.neighbor.id < id; });
    return at != touches.end() && at->neighbor.id == id;
  };
  const auto entry_at = [&](uint32_t i) {
    return CellEntry{format.priority_at(cell, salt, i), format.neighbor_at(cell, i)};
  };
  entries_.clear();
  for (uint32_t i = 0; i < cell.size; ++i) {
    if (!touched(cell.ids[i])) entries_.push_back(entry_at(i));
  }
  const bool few = touches.size() <= 4;  // most cells change by one entry, and the others are in order
  for (const Touch& touch : touches) {
    if (!touch.has || !format.can_be_drawn(touch.neighbor)) continue;
    const CellEntry entry{format.priority(salt, touch.neighbor), touch.neighbor};
    entries_.insert(few ? std::upper_bound(entries_.begin(), entries_.end(), entry) : entries_.end(), entry);
  }
  if (!few) std::sort(entries_.begin(), entries_.end());
  const std::span<const CellEntry> best(entries_.data(), std::min<size_t>(entries_.size(), count));
  // Neighbours outside a full cell come after its last entry. So whoever comes before that is known.
  if (cell.size < count || (best.size() == count && !(entry_at(count - 1) < best.back()))) return best;
  const OneHopQuery& asked = plan_[query];
  const uint32_t degree =
      asked.incoming ? change.degree_in_after(asked.edge_type, node) : change.degree_out_after(asked.edge_type, node);
  if (degree <= entries_.size()) return best;
  ++num_redraws_;
  table.draw.begin(node);
  const auto visit = [&](const NeighborSpan& span) {
    offer_all(span, table.keyed, [&](const Neighbor& neighbor) { table.draw.offer(neighbor); });
  };
  asked.incoming ? change.scan_in_after(asked.edge_type, node, visit)
                 : change.scan_out_after(asked.edge_type, node, visit);
  return table.draw.finish();
}

void PresamplingView::commit() noexcept {
  for (auto& table : tables_) {
    if (table->capacity > table->roots.size()) table->roots.resize(table->capacity);
    for (Prepared& cell : table->prepared) std::swap(table->roots[cell.node], cell.root);
  }
}

void PresamplingView::abandon() noexcept {
  for (auto& table : tables_) {
    for (Prepared& cell : table->prepared) table->cells.free(&cell.root);
    table->prepared.clear();
    table->roots.settle();
    table->capacity = 0;
  }
}

size_t PresamplingView::settle() noexcept {
  abandon();  // what is prepared are the replaced cells now
  if (!needs_.outgrown(need_)) return 0;
  size_t given_back = bytes_of(touches_);
  give_back(&touches_);
  for (auto& table : tables_) {
    given_back += bytes_of(table->prepared);
    give_back(&table->prepared);
  }
  return given_back;
}

size_t PresamplingView::bytes() const {
  size_t bytes = bytes_of(touches_) + bytes_of(entries_);
  for (const auto& table : tables_) {
    bytes += table->cells.bytes() + table->roots.capacity() * sizeof(CellRoot) + bytes_of(table->prepared);
  }
  return bytes;
}

void PresamplingView::check() const {
  for (size_t q = 0; q < plan_.size(); ++q) {
    const CellFormat& format = tables_[q]->cells.format();
    CellDraw draw(&format);
    for (uint32_t node = 0; node < graph_.nodes[plan_[q].key_type].ids.capacity(); ++node) {
      draw_now(q, node, &draw);
      if (!is_same(format, cell(q, node), draw.finish())) {
        throw std::logic_error("the cell of node " + std::to_string(node) + " for one-hop query " + std::to_string(q) +
                               " is not the best of its list");
      }
    }
  }
}

}  // namespace livegnn
