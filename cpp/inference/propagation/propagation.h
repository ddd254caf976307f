// A step that goes along edges: one class for each kind of aggregate.
//
//   SumPropagation      sums of rows, updated by the differences of rows (RIPPLE, section 4.3; NeutronRT, algorithm 1)
//   MaxPropagation      maxima of rows, updated by counts of the messages that equal them (as in InkStream)
//   MessagePropagation  aggregates of messages that depend on more than their source (NeutronRT, IV.A to IV.C)
//
// Whether a class iterates over sources or over targets is an implementation detail. Every class guarantees that one
// thread computes each row of a target, and that its sum is taken in an order given by the graph and the batch.
//
// Thread safety: `prepare` and `scrub` do not change the state, and any number of threads may call them, each with its
// own preparation. Only the one writer may call `initialize`.
#pragma once

#include <cstdint>
#include <span>

#include "inference/evaluation/rows.h"
#include "inference/propagation/prepared_batch.h"
#include "inference/rounding/rounding_state.h"
#include "inference/rows/row_state.h"
#include "inference/rows/stored_rows.h"

namespace livegnn {

class NodeRows;

// Result of comparing kept rows with the same rows computed again: the largest difference of a channel relative to the
// channel's magnitude, infinite if only one of the two is finite; and how many kept rows are not finite.
struct Scrubbed {
  double difference = 0;
  size_t not_finite = 0;
};

class Propagation {
 public:
  Propagation(const RowState& state, const RoundingState& rounding, size_t position, ThreadPool* pool)
      : state_(state),
        rounding_(rounding),
        position_(position),
        step_(state.program.propagations[position]),
        pool_(*pool) {}
  Propagation(const Propagation&) = delete;
  Propagation& operator=(const Propagation&) = delete;
  virtual ~Propagation() = default;

  // Computes all aggregates from the graph. `whole` provides rows of values that are not kept, and receives those of
  // this one.
  virtual void initialize(RowState* state, RoundingState* rounding, Whole* whole) const = 0;
  // Computes the aggregates that a batch changes. `reader` is the step that reads them next, or null: it runs together
  // with this one, block by block, so that an aggregate is read while it is in the nearest cache.
  virtual void prepare(const NodeRows* reader, PreparedBatch* prepared) const = 0;
  // Whether `prepare` accepts a reader.
  virtual bool takes_reader() const { return false; }
  // Computes the aggregates of `nodes` again and compares them with the kept ones. A channel's magnitude is the largest
  // of: its own, the mean of its messages', and that of as many typical messages. A wrong count of maxima is a
  // difference of 1.
  virtual Scrubbed scrub(std::span<const uint32_t> nodes) const = 0;

 protected:
  // Whether an aggregate's row exists now and still exists after the batch.
  bool stays(const PreparedBatch& prepared, uint32_t node) const;
  const std::vector<DirectedChange>& changes(const PreparedBatch& prepared) const;
  uint32_t target_type() const { return state_.program.values[step_.output].node_type; }
  bool is_partial() const { return state_.partial[step_.output] >= 0; }

  const RowState& state_;
  const RoundingState& rounding_;
  const size_t position_;
  const PropagateStep& step_;
  ThreadPool& pool_;
};

// The difference of two numbers relative to a scale; non-finite numbers are compared without a scale.
double part_of(double kept, double anew, double scale);

}  // namespace livegnn
