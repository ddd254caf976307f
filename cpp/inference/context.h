// Context of a node: what its in-edges give without any features (NeutronRT, section IV.A, nbr_ctx): degrees, sums of
// weights, and loops.
//
// Thread safety: the same as for a propagation (propagation.h).
#pragma once

#include <span>

#include "inference/preparation.h"
#include "inference/propagation.h"
#include "inference/state.h"

namespace livegnn {

class Context {
 public:
  Context(const State& state, size_t position)
      : state_(state), position_(position), step_(state.program.contexts[position]) {}

  void initialize(State* state, ThreadPool* pool) const;
  void prepare(Preparation* prepared) const;
  Scrubbed scrub(std::span<const uint32_t> nodes) const;
  // Compares what was loaded with the edges. Throws std::runtime_error that names the array and the first node of which
  // they say something else.
  void check(ThreadPool* pool) const;

 private:
  struct Row {
    float row = 0;
    double sum = 0, error = 0;  // if weights are summed
  };

  // The context of one node in the current graph.
  Row compute(uint32_t node) const;
  // The context after a batch, computed from the context before it; `fresh`: the node did not exist before.
  Row update(uint32_t node, std::span<const DirectedChange> changes, bool fresh) const;
  double sum_weights(uint32_t node, std::span<const DirectedChange> changes) const;
  double reach_of(uint32_t node) const;
  bool fits(uint32_t node, const Row& expected) const;

  const State& state_;
  size_t position_;
  const ContextStep& step_;
};

}  // namespace livegnn
