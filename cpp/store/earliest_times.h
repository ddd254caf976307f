// Finds the nodes that may have edges older than a given time, without reading all nodes.
//
//   nodes   | 0 .. 63 | 64 .. 127 | 128 .. 191 | ..
//   bounds  |   t0    |    t1     |     t2     | ..       no edge of these nodes is earlier
//
// An edge belongs to its source; an undirected edge, which is in the lists of both ends, to the end with the smaller
// index.
//
// Invariants: a bound is never later than the earliest time of its nodes' edges. It may be earlier: removing an edge
// does not raise it, only `tighten` does. Thread safety: none; the one writer of the graph owns it.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace livegnn {

class EarliestTimes {
 public:
  static constexpr uint32_t kBlock = 64;
  static constexpr double kNever = std::numeric_limits<double>::infinity();

  // New nodes have no edges.
  void resize(size_t nodes) { bounds_.resize((nodes + kBlock - 1) / kBlock, kNever); }
  // Sets all bounds to unknown.
  void forget() { std::fill(bounds_.begin(), bounds_.end(), -kNever); }

  // Records that there is, or will be, an edge of this time. Requires: a node below the size.
  void note(uint32_t node, double time) {
    assert(node / kBlock < bounds_.size());
    bounds_[node / kBlock] = std::min(bounds_[node / kBlock], time);
  }

  size_t num_blocks() const { return bounds_.size(); }
  bool before(size_t block, double time) const { return bounds_[block] < time; }
  // Sets the earliest time of a block whose edges were all read.
  void tighten(size_t block, double time) { bounds_[block] = time; }

  size_t bytes() const { return bounds_.capacity() * sizeof(double); }

 private:
  std::vector<double> bounds_;
};

}  // namespace livegnn
