// On-demand embedding computation (ODEC; NeutronRT, section V.D): a batch is recorded, not computed, and a row that it
// reaches is computed when a prediction that needs it is read.
//
//   graph                the current graph
//   slabs (the base)     every value as of the batch after which the engine was last settled
//   EdgeRecord           the net change of in-edges since then, by target
//   Overlay, per step    the nodes reached since then (covered), and those of their rows that queries needed
//
// A covered node is stale, or has a row. The rows of eager values are up to date, in the slabs or the graph's features;
// if a lazy propagation reads them, the overlay holds their old contents (`Source::kSaved`). Each row that a lazy
// propagation reads is stored together with its difference from the base, so that a query reads one row per affected
// in-edge:
//   new aggregate = base aggregate + sum over affected in-edges of w (now - base) + terms of changed edges
// The row is computed again from all neighbours if that reads fewer rows or the error is too large, as in a batch
// (sum_propagation.h).
//
// Invariants: `prepare` marks everything that a batch reaches along edges, old and new. So an existing row depends on
// no stale row, and a row is a function of the base and the graph alone: not of earlier queries or of the thread that
// computed it. Only batches and calls of `settle` decide when the base moves, so queries do not influence later
// results. Base, record and covered nodes are saved, and all rows follow from them: so neither does a restart.
//
// Who reads all rows, or prepares a batch that may be given up, needs them where those of an eager engine are. So
// `show_current` exchanges the rows of covered nodes in overlays and slabs, and `show_base` exchanges them back, to the
// bit, before the next batch is marked or the state is saved. Meanwhile queries read the slabs alone.
//
// Thread safety: `prepare` reads nothing that a query writes, and may run concurrently with queries; `reserve` blocks
// queries that compute while it makes room. `commit` and the second half of `settle` run while the caller holds the
// graph's lock exclusively. `predict` is called while that lock is held shared. Whether a node is covered changes only
// at commits, so rows of uncovered nodes are read directly; the others are read under the overlays' own lock, and only
// one thread at a time computes. Queries have their own thread pool, because a batch may be prepared at the same time.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <shared_mutex>
#include <span>
#include <vector>

#include "inference/edges/edge_record.h"
#include "inference/edges/reached_nodes.h"
#include "inference/lazy/lazy_marks.h"
#include "inference/lazy/overlay.h"
#include "inference/rounding/rounding_state.h"
#include "inference/rows/effects.h"
#include "inference/rows/row_state.h"
#include "threads/parallel.h"
#include "threads/waiting.h"
#include "views/arrays.h"

namespace livegnn {

// The work that queries of a lazy engine have done so far.
struct LazyWork {
  size_t rows, edges, recomputed;  // rows of all values; in-edges read; aggregates summed from all neighbours
};

class Lazy {
 public:
  // Whether everything in the program from step `eager` on can be computed lazily.
  static bool knows(const Program& program, size_t eager);

  // Batches and settling compute on `writer_pool`; queries use a pool of their own.
  Lazy(RowState* state, RoundingState* rounding, size_t eager, ThreadPool* writer_pool);

  size_t eager() const { return eager_; }  // number of steps computed with each batch
  // Marks the nodes that a batch reaches. Requires: the eager steps have been computed.
  void prepare(const BatchChanges& batch, LazyMarks* marks, Effects* effects);
  void reserve(const Delta& delta, const BatchChanges& batch, const LazyMarks& marks);
  void commit(const Delta& delta, const BatchChanges& batch, const LazyMarks& marks) noexcept;
  void release() noexcept;
  void predict(std::span<const uint32_t> nodes, float* out, size_t output);
  // Computes everything that is stale, and leaves the current rows in the slabs.
  void show_current();
  void show_base() noexcept;
  // The current rows become the base. Requires: they are shown, or not needed any more.
  void clear() noexcept;
  // The same for a batch that was computed on the current rows, in two parts, since the first must not free memory.
  void leave_behind() noexcept { left_behind_ = true; }
  // Base and record; nothing if nothing has been recorded. Requires: the base is shown.
  void save(Arrays* to) const;
  // After the slabs. Throws std::runtime_error if the arrays do not fit the graph.
  void load(const ArrayViews& from);
  // Of the saved arrays of an engine: how many of its steps were eager; nothing if they hold no record.
  static std::optional<size_t> saved_eager(const ArrayViews& from);
  bool outgrown_by(const Delta& delta) const;
  // As `RowState`.
  void prepare_growth(const GraphGrowth& growth);
  void commit_growth() noexcept;

  size_t pending() const { return pending_.load(std::memory_order_relaxed); }
  LazyWork work() const;
  size_t overlay_bytes() const;
  size_t record_bytes() const;

 private:
  struct LazyStep {
    enum Kind : uint8_t { kSaved, kRows, kPropagate } kind;
    uint32_t node_type;
    const RowsStep* rows = nullptr;  // for kRows
    uint32_t propagation = 0;        // for kPropagate
    struct Column {
      uint32_t value;  // kNoIndex: an output that is not kept
      size_t at, difference;
    };
    std::vector<Column> columns;
    Overlay overlay;
    std::vector<float> base_errors;  // those of covered nodes, while the current ones are shown
  };
  // Where the rows of a value are.
  struct Source {
    Rows table;
    Overlay* overlay = nullptr;  // null: an eager value that no lazy propagation reads
    bool saved = false;
    size_t at = 0, difference = 0;

    bool affected(uint32_t node) const { return overlay != nullptr && overlay->covers(node); }
    const float* now(uint32_t node) const {
      return !saved && affected(node) ? overlay->row(node) + at : table.row(node);
    }
    const float* base(uint32_t node) const {
      return saved && affected(node) ? overlay->row(node) + at : table.row(node);
    }
    const float* change(uint32_t node) const { return overlay->row(node) + difference; }
  };
  struct InEdge {  // in the current graph
    uint32_t source, key;
    float weight;
    uint64_t order() const { return (uint64_t{source} << 32) | key; }
  };
  struct Pushed {
    std::vector<size_t> offsets;  // by target
    std::vector<InEdge> found;
    size_t edges = 0;
  };
  struct Terms;

  void add_step(LazyStep::Kind kind, uint32_t node_type, const std::vector<uint32_t>& values, const RowsStep* rows,
                uint32_t propagation);
  Source source_of(uint32_t value) const;
  void mark(const BatchChanges& batch, std::vector<std::vector<uint32_t>>* reached, Effects* effects);
  void compute(bool all);
  void want_inputs(size_t lazy_step);
  bool push_is_cheaper(const PropagateStep& step, const std::vector<uint32_t>& targets, const Overlay& sources) const;
  void push(const PropagateStep& step, const std::vector<uint32_t>& targets, const Overlay& sources, Pushed* pushed);
  void compute_rows(LazyStep* lazy_step, const std::vector<uint32_t>& nodes);
  void compute_aggregates(LazyStep* lazy_step, const std::vector<uint32_t>& nodes);
  // The new aggregate row of a target from its terms; one function for each kind of propagation.
  void sum_row(const PropagateStep& step, uint32_t propagation, uint32_t target, const Source& input,
               const Source& output, Terms* terms, float* row, float* error);
  void max_row(const PropagateStep& step, uint32_t target, const Source& input, Terms* terms, float* row,
               float* counts);
  void compute_messages(LazyStep* lazy_step, const PropagateStep& step, const std::vector<uint32_t>& nodes);
  static std::vector<uint32_t> values_of(const PropagateStep& step);
  bool covers_nothing() const;
  void exchange_rows() noexcept;
  void exchange_errors(bool current) noexcept;
  void load_covered(size_t lazy_step, const ArrayViews& from);
  void load_edges(size_t direction, const ArrayViews& from);

  RowState& state_;
  RoundingState& rounding_;
  size_t eager_;
  ThreadPool& writer_pool_;
  ThreadPool pool_;
  std::vector<bool> differs_;           // by value: whether a lazy propagation reads it
  std::vector<LazyStep> lazy_steps_;    // in the order of the steps, saved values first
  std::vector<uint32_t> lazy_step_of_;  // by value
  std::vector<size_t> column_of_;       // by value
  std::vector<uint32_t> outputs_;       // by output: its lazy step, kNoIndex if it is eager
  uint32_t output_ = kNoIndex;          // the lazy step of the prediction
  std::vector<EdgeRecord> edges_;       // by direction
  std::vector<bool> recorded_;          // by direction: whether a lazy propagation uses it
  size_t saved_features_ = 0;
  bool reserved_ = false;                   // for the batch that will be committed next
  bool left_behind_ = false;                // the base, by a batch that has been committed
  std::atomic<bool> shows_current_{false};  // changes while the graph's lock is held exclusively, or nothing is covered

  mutable Checked<std::shared_mutex> mutex_;  // protects rows and stale marks in the overlays, and the members below
  std::vector<std::vector<uint32_t>> need_;   // by lazy step
  LazyWork work_{};
  std::vector<uint32_t> place_of_;  // by node, while edges are collected
  std::atomic<size_t> pending_{0};

  ReachedNodes reached_;  // while a batch is marked
};

}  // namespace livegnn
