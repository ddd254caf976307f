// A step that goes along edges: one class for each kind of aggregate.
//
//   SumPropagation      sums of rows, by what has changed in them (RIPPLE, section 4.3; NeutronRT, algorithm 1)
//   MaxPropagation      maxima of rows, by how many messages equal them (the case of InkStream)
//   MessagePropagation  aggregates of messages that depend on more than their source (NeutronRT, IV.A to IV.C)
//
// Whether one walks from sources or from targets is its own affair. What it promises: each row of a target is computed
// by one thread, and its sum is taken in an order that the graph and the batch give.
//
// Thread safety: `prepare` and `scrub` see the state as constant, and any number of threads may call them,
// each with a preparation of its own. `initialize` is the one writer's.
#pragma once

#include <cstdint>
#include <span>

#include "inference/preparation.h"
#include "inference/rows.h"
#include "inference/state.h"
#include "inference/stored_rows.h"

namespace livegnn {

class NodeRows;

// What a scrub saw of some rows: the largest difference of a channel to the same computed anew, as a part of the
// channel's magnitude, infinite where only one of the two is finite; and how many kept rows are not finite.
struct Scrubbed {
  double difference = 0;
  size_t not_finite = 0;
};

class Propagation {
 public:
  Propagation(const State& state, size_t position, ThreadPool* pool)
      : state_(state), position_(position), step_(state.program.propagations[position]), pool_(*pool) {}
  Propagation(const Propagation&) = delete;
  Propagation& operator=(const Propagation&) = delete;
  virtual ~Propagation() = default;

  // All aggregates, from the graph. `whole` has the rows of values that are not kept, and gets those of this one.
  virtual void initialize(State* state, Whole* whole) const = 0;
  // What a batch makes of them. `reader` is the step that reads them next, or null: it runs together with this one,
  // block by block, so that an aggregate is read while it is in the nearest cache.
  virtual void prepare(const NodeRows* reader, Preparation* prepared) const = 0;
  // Whether `prepare` takes a reader.
  virtual bool takes_reader() const { return false; }
  // The aggregates of `nodes` anew, beside those that are kept. A channel's magnitude is the largest of its own, the
  // mean one of its messages, and that of as many typical ones. A count of maxima that is wrong is a difference of 1.
  virtual Scrubbed scrub(std::span<const uint32_t> nodes) const = 0;

 protected:
  // Whether an aggregate's row is there now, and will be after the batch.
  bool stays(const Preparation& prepared, uint32_t node) const;
  const std::vector<DirectedChange>& changes(const Preparation& prepared) const;
  uint32_t target_type() const { return state_.program.values[step_.output].node_type; }
  bool is_partial() const { return state_.partial[step_.output] >= 0; }

  const State& state_;
  const size_t position_;
  const PropagateStep& step_;
  ThreadPool& pool_;
};

// How far apart two numbers are as a part of a scale; what is not finite is compared as it is.
double part_of(double kept, double anew, double scale);

}  // namespace livegnn
