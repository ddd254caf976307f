// One forward pass: the demand, and the steps that it needs.
//
// Thread safety: none; a pass belongs to one thread, and reads the `Forward` that made it.
#pragma once

#include <span>

#include "inference/forward/forward.h"

namespace livegnn {

class ForwardPass {
 public:
  ForwardPass(const Forward& forward, const SampledGraph& sample, ForwardWorkspace* workspace)
      : forward_(forward), program_(forward.program_), sample_(sample), work_(*workspace) {}

  void run(std::span<const Forward::Asked> asked);

 private:
  void group_edges();
  void find_demand(std::span<const Forward::Asked> asked);
  void want(uint32_t value, size_t rows) { work_.need[value] = std::max(work_.need[value], rows); }
  void want_inputs(const PropagateStep& step, size_t rows);
  // Takes memory for the rows of all values; returns how many floats.
  size_t place_rows();

  void compute_contexts(const ContextStep& step, size_t count);
  double missing_loop(const ContextStep& step, const SampledEdges& edges, uint32_t node) const;
  float count_edges(const ContextStep& step, const SampledEdges& edges, uint32_t node) const;
  float sum_weights(const ContextStep& step, const SampledEdges& edges, uint32_t node) const;
  void compute_rows(const RowsStep& step, size_t count);
  void compute_sums(const PropagateStep& step, size_t count);
  void compute_maxima(const PropagateStep& step, size_t count);
  void compute_messages(uint32_t propagation, size_t count);
  void write(const Forward::Asked& asked);

  template <class Step>
  const SampledEdges& edges_of(const Step& step) const {
    return work_.edges[forward_.direction_of(step.edge_type, step.reversed)];
  }
  // Null if degrees are those of the sample.
  const SampledGraph::Degrees* degrees_of(const ContextStep& step) const {
    if (sample_.degrees.empty()) return nullptr;
    const auto& given = sample_.degrees[forward_.direction_of(step.edge_type, step.reversed)];
    return given.count == nullptr ? nullptr : &given;
  }

  const Forward& forward_;
  const Program& program_;
  const SampledGraph& sample_;
  ForwardWorkspace& work_;
};

}  // namespace livegnn
