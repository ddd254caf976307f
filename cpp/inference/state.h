// The state of an engine between batches: the rows of values, bounds on their rounding, and sums of weights.
//
// It is constant for the parts that prepare a batch. It changes when it is initialized or loaded, when a batch is
// committed, and when a lazy engine settles.
//
// Thread safety: one writer; `commit` runs while it holds the graph's lock exclusively, and readers share that lock.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "inference/propagation/degrees.h"
#include "inference/rounding/rounding_state.h"
#include "inference/rows/row_state.h"
#include "views/arrays.h"

namespace livegnn {

struct State {
  // `RowState` documents the arguments. Throws std::system_error.
  State(const Graph& graph, Program program, const std::string& directory, size_t keep_degree)
      : rows(graph, std::move(program), directory, keep_degree),
        rounding(rows.program, directory),
        degrees(rows.program.contexts.size()) {}

  RowState rows;
  RoundingState rounding;
  DegreeSums degrees;

  // Makes room for the batch that is about to be committed. If it throws, call `release` next; nothing has changed.
  void reserve(const Delta& delta, const BatchChanges& batch);
  void commit(const Delta& delta, const PreparedBatch& prepared, ThreadPool* pool) noexcept;
  void release() noexcept;

  // Takes everything that the state of an equal graph at the same batch keeps, without copying it, and leaves what this
  // one kept. Returns false and does nothing if programs or graphs are laid out differently.
  bool take(State* from) noexcept;

  void save(Arrays* to) const;
  void load(const ArrayViews& from);
  // The names of saved arrays that have a row for each index of a node type, and this type. Requires: every row is
  // kept.
  std::vector<std::pair<std::string, uint32_t>> arrays_by_node() const;

  // What the rows of a value take of their slab, in memory or in a file.
  size_t bytes(uint32_t value) const;
  size_t program_bytes() const;  // weights
  size_t errors_bytes() const;
  size_t sums_bytes() const;
  size_t kept_nodes_bytes() const;
  size_t slots_bytes() const;   // of the nodes that hold rows in a part
  size_t mapped_bytes() const;  // how much of all this is in files

 private:
  bool is_count(uint32_t value) const;
  void check_counts(size_t propagation) const;
};

}  // namespace livegnn
