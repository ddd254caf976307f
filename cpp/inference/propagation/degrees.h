// Degrees of nodes: the number of their in-edges, the sum of their weights, and the weight of their loop. They need no
// features (NeutronRT, section IV.A, nbr_ctx); in a program they are its contexts.
//
// Thread safety: the same as for a propagation (propagation.h).
#pragma once

#include <span>
#include <vector>

#include "inference/propagation/prepared_batch.h"
#include "inference/propagation/propagation.h"
#include "inference/rows/row_state.h"

namespace livegnn {

// Sums of weights as they are kept beside their rows, which are rounded to float32.
struct DegreeSums {
  explicit DegreeSums(size_t contexts) : sums(contexts), errors(contexts) {}

  std::vector<std::vector<double>> sums;    // by context, by node; empty if it is no sum of weights
  std::vector<std::vector<double>> errors;  // bounds on their rounding

  // Makes room for the batch that is about to be committed.
  void reserve(const Program& program, const Delta& delta);
  void commit(const Program& program, const Delta& delta, const BatchChanges& batch) noexcept;
};

class Degrees {
 public:
  Degrees(const RowState& state, const DegreeSums& sums, size_t position)
      : state_(state), sums_(sums), position_(position), step_(state.program.contexts[position]) {}

  void initialize(RowState* state, DegreeSums* kept, ThreadPool* pool) const;
  void prepare(PreparedBatch* prepared) const;
  Scrubbed scrub(std::span<const uint32_t> nodes) const;
  // Compares what was loaded with the edges. Throws std::runtime_error that names the array and the first node of which
  // they say something else.
  void check(ThreadPool* pool) const;

 private:
  struct Row {
    float row = 0;
    double sum = 0, error = 0;  // if weights are summed
  };

  // The degree of one node in the current graph.
  Row compute(uint32_t node) const;
  // The degree after a batch, computed from the degree before it; `fresh`: the node did not exist before.
  Row update(uint32_t node, std::span<const DirectedChange> changes, bool fresh) const;
  double sum_weights(uint32_t node, std::span<const DirectedChange> changes) const;
  double reach_of(uint32_t node) const;
  bool fits(uint32_t node, const Row& expected) const;

  const RowState& state_;
  const DegreeSums& sums_;
  size_t position_;
  const ContextStep& step_;
};

}  // namespace livegnn
