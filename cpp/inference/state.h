// The state of an engine between batches: the rows of values, bounds on their rounding, sums of weights, the scales in
// whose units rounding is bounded, and the kept nodes if not every node has rows.
//
// It is constant for the parts that prepare a batch. It changes when it is initialized or loaded, when a batch is
// committed, and when a lazy engine settles.
//
// Layout: values that are read together are stored side by side in the rows of one table, their slab. Each maximum is
// stored with the number of messages that equal it, as a further value, whose rows hold uint32 bits instead of floats:
// after a ReLU whole neighbourhoods tie at 0, and a hub may have more in-edges than the 2^24 up to which a float counts
// exactly. No operation calculates with such rows; they are copied and compared as bytes.
//
// Thread safety: one writer; `commit` runs while it holds the graph's lock exclusively, and readers share that lock.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "inference/evaluation/rows.h"
#include "inference/rounding/rounding_scales.h"
#include "inference/rows/kept_nodes.h"
#include "program/program.h"
#include "store/graph.h"
#include "views/arrays.h"

namespace livegnn {

class ThreadPool;
struct BatchChanges;
struct PreparedBatch;

struct State {
  // If `keep_degree` is not 0, aggregates are kept only for nodes with that many in-edges; then each must have its own
  // slab, and all other values must be derived. Rows and errors are stored in files in `directory`, so that they may
  // outgrow memory; an empty name means memory. Throws std::system_error.
  State(const Graph& graph, Program program, const std::string& directory, size_t keep_degree);
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  const Graph& graph;
  Program program;
  const size_t keep_degree;
  const uint64_t serial;  // unique among all states, past and present
  std::vector<Table> slabs;
  std::vector<uint32_t> columns;          // by value: its first column in its slab
  std::vector<int32_t> partial;           // by value: the propagation whose kept nodes alone have rows; -1 if none
  std::vector<bool> has_direction;        // by direction: a reverse direction exists only if a step uses it
  std::vector<KeptNodes> kept_nodes;      // by direction
  std::vector<Table> errors;              // by propagation: bounds on rounding (error_bounds.h)
  std::vector<std::vector<double>> sums;  // by context
  std::vector<std::vector<double>> sum_errors;  // bounds on their rounding
  std::vector<RoundingScale> scales;            // by propagation
  const std::vector<bool> steep;                // by propagation: whether a steep function reads it (steepness.h)
  Moments moments;
  std::vector<float> zeros;  // as many as the widest row needs

  // Whether the value has a row for every node.
  bool is_stored(uint32_t value) const { return program.values[value].derived < 0 && partial[value] < 0; }
  // The rows of a value. Only the owner of the value may write to them: the graph's features do not belong to the
  // engine. A value whose rows are not all kept has none here; use `stored_rows`.
  Rows rows(uint32_t value) const;
  // The row of a stored value; zeros for a node that was added since.
  const float* stored_row(uint32_t value, uint32_t node) const {
    const Rows all = rows(value);
    return node < all.count ? all.row(node) : zeros.data();
  }
  Rows kept_rows(uint32_t value) const;  // by slot, if the value is partial
  uint32_t slot_of(uint32_t value, uint32_t node) const;
  // The node that has a slot of an aggregate; kNoIndex if there is none.
  uint32_t node_at(const PropagateStep& step, size_t slot) const;
  // The slots of all kept rows of a value, by node.
  std::vector<uint32_t> slots(uint32_t value) const;
  // The kept nodes of a direction, by node: rows and errors of partial values are saved in this order.
  std::vector<uint32_t> kept_nodes_of(size_t direction) const;

  // Makes room for the batch that is about to be committed. If it throws, call `release` next; nothing has changed.
  void reserve(const Delta& delta, const BatchChanges& batch);
  void commit(const Delta& delta, const PreparedBatch& prepared, ThreadPool* pool) noexcept;
  void release() noexcept;

  // Resets all rows to empty ones, as many as the graph has nodes.
  void clear();
  // Takes everything that the state of an equal graph at the same batch keeps, without copying it, and leaves what this
  // one kept. Returns false and does nothing if programs or graphs are laid out differently.
  bool take(State* from) noexcept;

  // Returns false and does nothing unless there is a row for every index of the graph.
  bool load_rows(uint32_t value, const float* from, size_t count, size_t width);
  // Call it before rows are loaded. Returns false and does nothing unless the nodes are sorted
  // and those that keep aggregates by their degrees.
  bool load_kept_nodes(size_t direction, std::span<const uint32_t> nodes);
  void save(Arrays* to) const;
  void load(const ArrayViews& from);

  // What the rows of a value take of their slab, in memory or in a file.
  size_t bytes(uint32_t value) const;
  size_t program_bytes() const;  // weights
  size_t errors_bytes() const;
  size_t sums_bytes() const;
  size_t kept_nodes_bytes() const;
  size_t mapped_bytes() const;  // how much of all this is in files

 private:
  bool is_laid_out_as(const State& other) const;
  bool is_count(uint32_t value) const;
  void check_counts(size_t propagation) const;
  size_t rows_of(uint32_t value) const;  // number of kept rows
  void commit_rows(const Delta& delta, const BatchChanges& batch, ThreadPool* pool) noexcept;
  void commit_errors(const Delta& delta, const BatchChanges& batch, const NewScales& fresh) noexcept;
  void commit_sums(const Delta& delta, const BatchChanges& batch) noexcept;
};

}  // namespace livegnn
