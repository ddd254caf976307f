// The samples of all one-hop queries of a plan, kept up to date beside the graph in one process.
//
//   for each query:   roots [nodes]  ─►  cell (cell_heap.h): the sample of one node for this query
//
// A cell is a function of the present list of its node (priority.h), so the view of a graph does not depend on the way
// that led to it. A batch makes the cells that it changes aside, mostly from the old cells and the changes alone: a
// list is read only if a neighbour that was in a full cell goes or falls behind, for then one that was outside may take
// its place. With a fan-out of k, a list of d uniform neighbours is read for k in d removals.
//
// Nodes and neighbours are the graph's internal indices. A neighbour of a type that keeps parallel edges is one edge:
// the other end in the upper half of its number, the edge's key in the lower (graph_store.h).
//
// Invariant: the cell of each node is the best of its list (cell_heap.h). Thread safety: that of every view (view.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "memory/growing_array.h"
#include "memory/prefetch.h"
#include "memory/recent_needs.h"
#include "presampling/samples/query_plan.h"
#include "presampling/tables/cell_heap.h"
#include "views/view.h"

namespace livegnn {

class PresamplingView : public View {
 public:
  // Samples every node of the graph, on several threads. Cells carry the weights and times that an edge type has.
  // Throws std::invalid_argument if the requests do not fit together or the graph.
  PresamplingView(const Graph& graph, uint32_t seed_type, std::vector<OneHopRequest> requests, uint64_t seed,
                  size_t threads);

  const Graph& graph() const { return graph_; }
  const QueryPlan& plan() const { return plan_; }
  const CellFormat& format(size_t query) const { return tables_[query]->cells.format(); }
  // Good until the next commit. A node at or above the graph's capacity has an empty cell.
  CellView cell(size_t query, uint32_t node) const {
    const Table& table = *tables_[query];
    return table.cells.view(table.root(node));
  }
  // Fetching has two steps, because the second reads what the first fetches.
  void prefetch_root(size_t query, uint32_t node) const {
    const auto& roots = tables_[query]->roots;
    if (node < roots.size()) prefetch(&roots[node]);
  }
  void prefetch_cell(size_t query, uint32_t node) const {
    const Table& table = *tables_[query];
    table.cells.prefetch(table.root(node));
  }
  bool is_keyed(size_t query) const { return tables_[query]->keyed; }

  void prepare(const Change& change) override;
  void commit() noexcept override;
  void abandon() noexcept override;
  size_t settle() noexcept override;

  // Cells are a function of the graph, and drawing them takes no longer than reading them would: nothing is saved.
  void save(Arrays*) const override {}
  void load(const ArrayViews&) override {}
  size_t bytes() const override;

  // How many lists batches have read to draw cells anew, since the view was made.
  size_t num_redraws() const { return num_redraws_; }
  // Throws std::logic_error if a cell is not the best of its list.
  void check() const;

 private:
  // A change of one neighbour of a key node.
  struct Touch {
    uint32_t node;
    bool has;
    Neighbor neighbor;
  };
  // A cell that the batch changes: before the commit its new root, after it the old one.
  struct Prepared {
    uint32_t node;
    CellRoot root;
  };
  struct Table {
    explicit Table(const CellOptions& options) : cells(options), draw(&cells.format()) {}
    CellRoot root(uint32_t node) const { return node < roots.size() ? roots[node] : CellRoot{}; }

    CellHeap cells;
    CellDraw draw;
    GrowingArray<CellRoot> roots;
    std::vector<Prepared> prepared;
    size_t capacity = 0;  // of the key nodes, after the batch
    bool keyed = false;
  };

  const GraphStore& store_of(const OneHopQuery& query) const { return *graph_.edges[query.edge_type].store; }
  void fill(size_t query, ThreadPool* pool);
  void draw_now(size_t query, uint32_t node, CellDraw* draw) const;
  void collect(const Change& change, const OneHopQuery& query, bool keyed);
  void prepare_cell(const Change& change, size_t query, std::span<const Touch> touches);
  std::span<const CellEntry> entries_after(const Change& change, size_t query, const CellView& cell,
                                           std::span<const Touch> touches);

  const Graph& graph_;
  QueryPlan plan_;
  std::vector<std::unique_ptr<Table>> tables_;  // by query
  std::vector<Touch> touches_;                  // of a batch, for one query
  std::vector<CellEntry> entries_;              // of one cell
  RecentNeeds needs_{size_t{1} << 12};          // in touches
  size_t need_ = 0;
  size_t num_redraws_ = 0;
};

}  // namespace livegnn
