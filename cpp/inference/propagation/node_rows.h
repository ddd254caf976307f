// Steps that work on one node's row at a time: linear layers, activations, norms, and operations that combine a node's
// context with its row. Also the prediction, if it is not kept: it is computed from the old and the new rows to see
// whether it changes.
//
// Thread safety: any number of threads may prepare, each with its own preparation; blocks of one preparation run
// concurrently. Only the one writer may call `initialize`.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "inference/evaluation/row_evaluation.h"
#include "inference/propagation/prepared_batch.h"
#include "inference/propagation/propagation.h"
#include "inference/rows/row_state.h"
#include "inference/rows/stored_rows.h"

namespace livegnn {

class NodeRows {
 public:
  // `output`: the step computes the prediction, which is not kept.
  NodeRows(const RowState& state, const RowsStep& step, bool output, ThreadPool* pool);

  bool reads(uint32_t value) const;
  double row_cost() const { return row_cost_; }  // nanoseconds, approximately

  // Computes every kept row; input rows that are not kept are taken from `whole`.
  void initialize(RowState* state, const Whole& whole) const;
  // Computes the rows of `nodes` again from the values that the step reads, and compares those of a kept value with
  // them. A channel's magnitude is the larger of its own and the mean one of these rows.
  Scrubbed scrub(uint32_t value, std::span<const uint32_t> nodes) const;
  // Computes the rows that a batch changes, in one call.
  void prepare(PreparedBatch* prepared) const;

  // The same in parts, if the step runs together with the propagation that fills `aggregate`. The targets of the
  // propagation's frontier come first, in their order: row t of the aggregate belongs to target t.
  void open(uint32_t aggregate, PreparedBatch* prepared) const;
  void run_block(size_t first, size_t count, PreparedBatch* prepared) const;
  void close(PreparedBatch* prepared) const;

 private:
  void find_reach(uint32_t aggregate, PreparedBatch* prepared) const;
  void run_rows_block(size_t first, size_t count, PreparedBatch* prepared) const;
  void run_output_block(size_t first, size_t count, PreparedBatch* prepared) const;
  // Locates the new rows of a block of the reach, and their old rows if `before` is not null.
  void locate(size_t source, size_t first, size_t count, const PreparedBatch& prepared, RowArena* arena,
              const float** before, const float** now) const;
  // Compares the computed rows of a sink with the stored ones.
  void compare(size_t sink, size_t first, size_t count, bool guarded, const float* const* sources,
               float* const* buffers, RowArena* arena, PreparedBatch* prepared) const;

  const RowState& state_;
  const RowsStep& step_;
  const bool output_;
  const double row_cost_;
  // By sink, whether its rows must be finite. Those that only messages read are judged by what the messages add up to:
  // no message reads the row of a node without edges, in which a model may divide by the degree.
  std::vector<uint8_t> judged_;
  ThreadPool& pool_;
};

}  // namespace livegnn
