// Samples the messages of a sum and measures their typical magnitudes (units.h).
//
// It reads the graph and its rows as they are after the batch or, without a batch, as they are now.
//
// Thread safety: none; any number of objects may be used at once.
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
  // Requires: all arguments outlive it, and `prepared` is null or has been computed.
  Measurement(const State& state, const PropagateStep& step, const Preparation* prepared);

  // Typical magnitudes by channel, from a few in-edges of each target.
  std::vector<float> typical() const;
  // The same; if a channel had a scale before and seems to have none now, uses many more in-edges.
  std::vector<float> scales(std::span<const float> before) const;
  // The typical mean of messages relative to the scale, for the channel where it is smallest; at most 1. 0 unless only
  // means are read.
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
  // Rows of messages, including weights. If coefficients are kept beside the sums, and the sums are divided by them in
  // the end, without the coefficients.
  void compute_messages(std::span<const Edge> edges, size_t stride, float* out) const;
  void rows_of(uint32_t value, std::span<const uint32_t> nodes, RowArena* arena, const float** out) const;

  const State& state_;
  const PropagateStep& step_;
  const Preparation* prepared_;
  std::unordered_set<uint32_t> added_, removed_;  // targets that the batch adds, and removes
  std::vector<Target> targets_;                   // a sample of targets that have in-edges
};

}  // namespace livegnn
