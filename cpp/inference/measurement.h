// A sample of the messages of a sum, and what they typically are (units.h).
//
// It looks at the graph and its rows as a batch leaves them or, where there is none, as they are.
//
// Thread safety: none; any number of them at once.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_set>
#include <vector>

#include "inference/preparation.h"
#include "inference/state.h"

namespace livegnn {

inline constexpr float kLeastScale = 1e-30f, kMostScale = 1e30f;

class Measurement {
 public:
  // Requires: all that outlives it, and `prepared` is null or has been computed.
  Measurement(const State& state, const PropagateStep& step, const Preparation* prepared);

  // By channel, of a few in-edges of each target.
  std::vector<float> typical() const;
  // The same; where a channel that has had a scale seems to have none, of many more in-edges.
  std::vector<float> scales(std::span<const float> before) const;
  // Of the channel whose means are the smallest, beside its scale; 0 where others than means are read.
  float mean(std::span<const float> scales) const;

 private:
  struct Target {
    uint32_t node;
    int64_t degree;
  };
  struct Edge {
    uint32_t source, target;
    float weight;
    const float* features;
  };

  bool has(uint32_t node) const;
  std::span<const DirectedChange> changes(uint32_t target) const;
  std::vector<Edge> sample_edges(size_t each) const;
  void append_edges(const Target& target, size_t left, size_t* scanned, std::vector<Edge>* sample) const;
  std::vector<float> typical(size_t each) const;
  // Rows of messages, weights included. Where coefficients are kept beside the sums, which are divided by them in the
  // end, without these.
  void compute_messages(std::span<const Edge> edges, size_t stride, float* out) const;
  void rows_of(uint32_t value, std::span<const uint32_t> nodes, RowArena* arena, const float** out) const;

  const State& state_;
  const PropagateStep& step_;
  const Preparation* prepared_;
  std::unordered_set<uint32_t> added_, removed_;  // targets that the batch adds, and removes
  std::vector<Target> targets_;                   // from everywhere, that have in-edges
};

}  // namespace livegnn
