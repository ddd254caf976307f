// Rows where they are kept, or computed where they are not (NeutronRT, section V.B), before a batch and after it.
//
// A row that is not kept is a function of the graph and of what is kept, to the bit: its neighbours are added in the
// order of their indices. So it is the same before a batch, in the batch, and after a restart, and what a batch does
// not change needs no looking after.
//
// Thread safety: any number of threads may ask, each with an arena of its own.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "inference/preparation.h"
#include "inference/state.h"

namespace livegnn {

using Whole = std::vector<Rows>;  // by value: all rows of a partial one

// Where the rows of these nodes lie, as they were before the batch that is being prepared, padding included. Those that
// are not kept are computed into `arena`.
void stored_rows(const State& state, uint32_t value, std::span<const uint32_t> nodes, RowArena* arena,
                 const float** out);
// The same as they will be, once `prepared` is committed.
void new_rows(const State& state, const Preparation& prepared, uint32_t value, std::span<const uint32_t> nodes,
              RowArena* arena, const float** out);
// As `stored_rows`, of many nodes, by all threads, into memory that must stay.
void stored_rows_of_many(const State& state, uint32_t value, std::span<const uint32_t> nodes, ThreadPool* pool,
                         Scratch* memory, std::vector<const float*>* out);
// The rows of every node: those of the value's own table, or of one that is filled here.
Rows all_stored_rows(const State& state, uint32_t value, const Whole* whole, ThreadPool* pool, Table* table);
// All rows of the partial values, layer by layer: for somebody who reads all of them, that is far less work than
// computing each.
void complete_rows(const State& state, ThreadPool* pool, Whole* whole, std::vector<Table>* tables);

// An output of nodes that exist, `output_width` floats each.
void read_output(const State& state, size_t output, std::span<const uint32_t> nodes, float* out);
// The same as it will be; nodes that the batch adds may be asked for.
void read_new_output(const State& state, const Preparation& prepared, size_t output, std::span<const uint32_t> nodes,
                     float* out);
// Rows of an on-demand step for every index of its node type, one after the other.
void evaluate_all(const State& state, size_t on_demand, ThreadPool* pool, float* out);

}  // namespace livegnn
