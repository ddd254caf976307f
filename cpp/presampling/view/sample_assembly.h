// A sample of several hops, put together from the cells of a view and the features of its graph: what the sampler of
// the graph (sampling.h) draws, without a draw.
//
// Invariants: those of sample_walk.h.
// Thread safety: an assembly belongs to one thread. The caller must hold `Graph::lock` shared during a call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "presampling/samples/sample_walk.h"
#include "presampling/view/presampling_view.h"
#include "sampling/sampling.h"

namespace livegnn {

class SampleAssembly {
 public:
  explicit SampleAssembly(const PresamplingView& view) : view_(view), walk_(view.plan()) {}

  // `ids`: internal numbers of nodes of the seed type. Throws SampleError if one is not in the graph.
  Subgraph sample(std::span<const int64_t> ids, bool attributes) {
    Subgraph out;
    sample(ids, attributes, &out);
    return out;
  }
  // The same in place of an earlier sample of this assembly with the same `attributes`, whose memory is used again.
  void sample(std::span<const int64_t> ids, bool attributes, Subgraph* out);

  // The number of cells that the last sample has read.
  size_t num_lookups() const { return walk_.num_lookups(); }
  size_t bytes() const { return walk_.bytes() + bytes_of(indices_); }

 private:
  void write_nodes(bool attributes, Subgraph* out) const;
  void write_edges(bool attributes, Subgraph* out) const;

  const PresamplingView& view_;
  SampleWalk<uint32_t> walk_;      // of internal indices
  std::vector<uint32_t> indices_;  // of the seeds
};

}  // namespace livegnn
