// Memory for one forward pass over a sample, which the next can use again.
//
// A `Forward` has as many workspaces as passes were ever made at once. Thread safety: none for a workspace, which
// belongs to one pass; any thread may take one, and give it back.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "inference/evaluation/message_sums.h"
#include "inference/evaluation/row_evaluation.h"
#include "inference/evaluation/rows.h"
#include "inference/forward/sampled_edges.h"
#include "memory/leases.h"
#include "memory/recent_needs.h"
#include "program/row_sum.h"

namespace livegnn {

struct ForwardWorkspace {
  std::vector<size_t> need;                        // by value: how many rows, from the first node on, the pass needs
  std::vector<size_t> step_need;                   // by step
  std::vector<Rows> rows;                          // by value
  std::vector<SampledEdges> edges;                 // by direction
  std::vector<std::unique_ptr<MessageSums>> sums;  // by propagation, if it has a message program
  Scratch memory;                                  // of all rows that are computed
  RowBuffers buffers;
  RowSum total;
  std::vector<const float*> located;  // rows of a block's sources, or of a node's neighbours
  std::vector<uint32_t> order, ties;
  std::vector<float> ones;

  // After a pass that took `floats`: gives back memory that is much larger than other passes need.
  void close(size_t floats);
  size_t bytes() const;
  size_t peak() const { return peak_; }  // bytes before the last `close`

 private:
  RecentNeeds needs_{size_t{1} << 20};
  size_t peak_ = 0;
};

using ForwardWorkspaces = Leases<ForwardWorkspace>;

}  // namespace livegnn
