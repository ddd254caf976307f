// A forward pass of a program over a sampled subgraph (Helios, section 7.5: online inference on samples): no graph, no
// rows that are kept, only what the rows that are asked for need.
//
//   positions ─► demand, step by step backward ─► contexts, rows and sums, step by step forward ─► rows
//
// Samples list nodes by their distance from the seeds, so of each value the rows of the first `need` nodes are
// computed: those that the next steps read, which are fewer in each layer (PyG: trim_to_layer). A sample that lists its
// nodes otherwise costs more and gives the same.
//
// The arithmetic is the engine's: the same kernels, and sums in the same blocks in the order of the sample's edges. So
// rows have the same bits whatever else is in the sample after them.
//
// Thread safety: any number of passes at once, each with a workspace of its own. A pass allocates nothing once its
// workspace has seen samples as large.
#pragma once

#include <atomic>
#include <span>
#include <vector>

#include "inference/forward/forward_workspace.h"
#include "inference/forward/sampled_graph.h"
#include "program/program.h"

namespace livegnn {

class Forward {
 public:
  struct EdgeType {
    uint32_t source_type, target_type;
    // Whether the program was made for parallel edges, of whose loops the last one counts. If not, a sample with
    // parallel loops is refused.
    bool keyed;
  };
  // Rows of an output, one for each position, `output_width` floats each.
  struct Asked {
    size_t output;
    std::span<const int64_t> positions;
    float* out;
  };

  // The program must keep every row (no derived values).
  Forward(Program program, std::vector<EdgeType> edge_types);

  const Program& program() const { return program_; }
  size_t num_outputs() const { return 1 + program_.others.size(); }
  // The width of a type's features as the program reads them; 0 if it reads none.
  size_t node_width(uint32_t type) const { return node_widths_[type]; }
  size_t edge_width(uint32_t type) const { return edge_widths_[type]; }

  // The width of the widest rows that a pass computes or reads.
  size_t widest() const { return units_.size(); }

  // Throws BadSampledGraph, and what functions of the model throw. Requires: there is an entry for each type, whose
  // arrays are as wide as the program reads them.
  void run(const SampledGraph& sample, std::span<const Asked> asked) const;

  // Working memory: of the pass that ended last, with what its workspace kept from earlier ones; kept for the next one.
  size_t last_bytes() const { return last_bytes_.load(std::memory_order_relaxed); }
  size_t held_bytes() const { return workspaces_.bytes(); }
  // Frees what is kept for the next pass.
  void release() const { workspaces_.release(); }

 private:
  friend class ForwardPass;

  size_t direction_of(uint32_t edge_type, bool reversed) const {
    return edge_type + (reversed ? edge_types_.size() : 0);
  }

  Program program_;
  std::vector<EdgeType> edge_types_;
  std::vector<uint8_t> reads_;  // by direction: whether a step reads it
  std::vector<size_t> node_widths_, edge_widths_;
  std::vector<float> units_;  // ones: magnitudes are not bounded here (message_sums.h)
  mutable ForwardWorkspaces workspaces_;
  mutable std::atomic<size_t> last_bytes_ = 0;
};

}  // namespace livegnn
