// Rows of nodes before and after a batch: read if they are kept, computed if they are not (NeutronRT, section V.B).
//
// A row that is not kept is a deterministic function of the graph and of what is kept: its neighbours are added in the
// order of their indices. So it is bitwise the same before a batch, in the batch, and after a restart, and a row that a
// batch does not change needs no work.
//
// Thread safety: any number of threads may call these functions, each with its own arena.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "inference/rows/changes.h"
#include "inference/rows/row_state.h"

namespace livegnn {

using Whole = std::vector<Rows>;  // by value: all rows of a partial value

// The rows of these nodes before the batch that is being prepared, padding included. Rows that are not kept are
// computed into `arena`.
void stored_rows(const RowState& state, uint32_t value, std::span<const uint32_t> nodes, RowArena* arena,
                 const float** out);
// The same after the batch is committed.
void new_rows(const RowState& state, const BatchChanges& batch, uint32_t value, std::span<const uint32_t> nodes,
              RowArena* arena, const float** out);
// Like `stored_rows` for many nodes, computed by all threads, into memory that stays valid.
void stored_rows_of_many(const RowState& state, uint32_t value, std::span<const uint32_t> nodes, ThreadPool* pool,
                         Scratch* memory, std::vector<const float*>* out);
// The rows of every node: either the value's own table, or one that is filled here.
Rows all_stored_rows(const RowState& state, uint32_t value, const Whole* whole, ThreadPool* pool, Table* table);
// All rows of the partial values, layer by layer. For a caller that reads all of them, this is far less work than
// computing each row on its own.
void complete_rows(const RowState& state, ThreadPool* pool, Whole* whole, std::vector<Table>* tables);

// An output for existing nodes, `output_width` floats each.
void read_output(const RowState& state, size_t output, std::span<const uint32_t> nodes, float* out);
// The same after the batch; the nodes may include ones that the batch adds.
void read_new_output(const RowState& state, const BatchChanges& batch, size_t output, std::span<const uint32_t> nodes,
                     float* out);
// The rows of an on-demand step for every index of its node type, one after the other.
void evaluate_all(const RowState& state, size_t on_demand, ThreadPool* pool, float* out);

}  // namespace livegnn
