// What an engine keeps between batches: the rows of values, bounds on their rounding, sums of weights, the units in
// which rounding is bounded, and who has rows where not everyone has.
//
// Parts that prepare a batch see it as constant. It changes when it is initialized or loaded, when a batch is
// committed, and when a lazy engine settles.
//
// Layout: values that are read together lie side by side in the rows of one table, their slab. Beside each maximum lies
// the number of messages that equal it, a value like any other, whose rows hold uint32 bits rather than floats: behind
// a ReLU whole neighbourhoods tie at 0, and a hub may have more in-edges than the 2^24 up to which a float counts.
// Nobody calculates with such rows, they are copied and compared as bytes.
//
// Thread safety: one writer; `commit` runs under the graph's lock taken alone, readers share it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "inference/residents.h"
#include "inference/rows.h"
#include "inference/units.h"
#include "program/program.h"
#include "store/graph.h"
#include "views/arrays.h"

namespace livegnn {

class ThreadPool;
struct Preparation;

struct State {
  // Where `keep_degree` is not 0, aggregates are kept of nodes with so many in-edges alone; then each must have a slab
  // of its own, and all else must be derived. Rows and errors lie in files in `directory`, for when they outgrow
  // memory; an empty name means memory. Throws std::system_error.
  State(const Graph& graph, Program program, const std::string& directory, size_t keep_degree);
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  const Graph& graph;
  Program program;
  const size_t keep_degree;
  const uint64_t serial;  // tells this state from any other, of now or before
  std::vector<Table> slabs;
  std::vector<uint32_t> columns;                // by value: where it begins in its slab
  std::vector<int32_t> partial;                 // by value: the propagation whose residents alone have rows; -1: none
  std::vector<bool> has_direction;              // by direction: in reverse, only where a step goes so
  std::vector<Residents> residents;             // by direction
  std::vector<Table> errors;                    // by propagation: bounds on rounding (error_bounds.h)
  std::vector<std::vector<double>> sums;        // by context
  std::vector<std::vector<double>> sum_errors;  // bounds on their rounding
  std::vector<Unit> units;                      // by propagation
  Moments moments;
  std::vector<float> zeros;  // as many as the widest row has

  // Whether it has a row for every node.
  bool is_stored(uint32_t value) const { return program.values[value].derived < 0 && partial[value] < 0; }
  // To be written to only by the owner of the value: the graph's features are not the engine's. Of a value whose rows
  // are not all kept there are none: ask `stored_rows`.
  Rows rows(uint32_t value) const;
  // Of a value that is stored; zeros of a node that has come since.
  const float* stored_row(uint32_t value, uint32_t node) const {
    const Rows all = rows(value);
    return node < all.count ? all.row(node) : zeros.data();
  }
  Rows kept_rows(uint32_t value) const;  // by slot, where the value is partial
  uint32_t slot_of(uint32_t value, uint32_t node) const;
  // Who has a slot of an aggregate; kNoIndex if nobody has.
  uint32_t node_at(const PropagateStep& step, size_t slot) const;
  // Of all rows that are kept of a value, by node.
  std::vector<uint32_t> slots(uint32_t value) const;
  // Those of a direction, by node: rows and errors of partial values are saved in the order of these.
  std::vector<uint32_t> residents_of(size_t direction) const;

  Output output_at(size_t output) const {
    return output == 0 ? Output{program.output_kept, program.output} : program.others[output - 1];
  }
  uint32_t output_type(size_t output) const;
  size_t output_width(size_t output) const;

  // Room for what is about to be committed. If it throws, `release` comes next, and nothing has happened.
  void reserve(const Delta& delta, const Preparation& prepared);
  void commit(const Delta& delta, const Preparation& prepared, ThreadPool* pool) noexcept;
  void release() noexcept;

  // All rows of nothing, as many as the graph has nodes.
  void clear();

  // False, and nothing done, if there is not a row for every index of the graph.
  bool load_rows(uint32_t value, const float* from, size_t count, size_t width);
  // To be called before rows are loaded. False, and nothing done, if the nodes are not ones of the graph in order.
  bool load_residents(size_t direction, std::span<const uint32_t> nodes);
  void save(Arrays* to) const;
  void load(const ArrayViews& from);

  // What the rows of one value take of their slab, in memory or in a file.
  size_t bytes(uint32_t value) const;
  size_t program_bytes() const;  // of weights
  size_t errors_bytes() const;
  size_t sums_bytes() const;
  size_t residents_bytes() const;
  size_t mapped_bytes() const;  // how much of all that lies in files

 private:
  bool is_count(uint32_t value) const;
  size_t rows_of(uint32_t value) const;  // how many are kept
  void commit_rows(const Delta& delta, const Preparation& prepared, ThreadPool* pool) noexcept;
  void commit_errors(const Delta& delta, const Preparation& prepared) noexcept;
  void commit_sums(const Delta& delta, const Preparation& prepared) noexcept;
};

}  // namespace livegnn
