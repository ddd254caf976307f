// Steps that work on one node's row at a time: linear layers, activations, norms, and what a node's context does to its
// row. Also the prediction, where it is not kept: it is computed from the old rows and from the new ones, to see
// whether it is another.
//
// Thread safety: any number of threads prepare, each with a preparation of its own; of one preparation blocks run at
// once. `initialize` is the one writer's.
#pragma once

#include <cstdint>
#include <vector>

#include "inference/preparation.h"
#include "inference/row_evaluation.h"
#include "inference/state.h"
#include "inference/stored_rows.h"

namespace livegnn {

class NodeRows {
 public:
  // `output`: the step gives the prediction, which is not kept.
  NodeRows(const State& state, const RowsStep& step, bool output, ThreadPool* pool)
      : state_(state), step_(step), output_(output), row_cost_(output ? kRowCost : row_cost_of(step)), pool_(*pool) {}

  bool reads(uint32_t value) const;
  double row_cost() const { return row_cost_; }  // nanoseconds, roughly

  // Every row that is kept, from those of `whole` where they are not.
  void initialize(State* state, const Whole& whole) const;
  // What a batch makes of the rows, in one go.
  void prepare(Preparation* prepared) const;

  // The same in parts, where the step runs together with the propagation that fills `aggregate`. The targets of its
  // frontier come first, in their order: row t of the aggregate is that of target t.
  void open(uint32_t aggregate, Preparation* prepared) const;
  void run_block(size_t first, size_t count, Preparation* prepared) const;
  void close(Preparation* prepared) const;

 private:
  void find_reach(uint32_t aggregate, Preparation* prepared) const;
  void run_rows_block(size_t first, size_t count, Preparation* prepared) const;
  void run_output_block(size_t first, size_t count, Preparation* prepared) const;
  // Where the rows of a block of the reach lie as they will be, and as they were where `before` is not null.
  void locate(size_t source, size_t first, size_t count, const Preparation& prepared, RowArena* arena,
              const float** before, const float** now) const;
  // Rows of a sink that came out, beside those that were there.
  void compare(size_t sink, size_t first, size_t count, bool guarded, const float* const* sources,
               float* const* buffers, RowArena* arena, Preparation* prepared) const;

  const State& state_;
  const RowsStep& step_;
  const bool output_;
  const double row_cost_;
  ThreadPool& pool_;
};

}  // namespace livegnn
