// Samples the messages of a sum and measures their typical magnitudes (rounding_scales.h).
//
// It reads the graph and its rows as they are after the batch or, without a batch, as they are now.
//
// Thread safety: none; any number of objects may be used at once.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <unordered_set>
#include <vector>

#include "inference/rounding/rounding_state.h"
#include "inference/rows/changes.h"
#include "inference/rows/row_state.h"

namespace livegnn {

inline constexpr float kLeastScale = 1e-30f, kMostScale = 1e30f;

class Measurement {
 public:
  // Requires: all arguments outlive it, and `changes` is null or has been computed.
  Measurement(const RowState& state, const RoundingState& rounding, const PropagateStep& step,
              const BatchChanges* changes);

  // Whether `scales` and `mean` would return those given here, or others that differ from them by less than `factor`.
  // It only counts, which costs a fraction of what a median does; false is always a valid answer.
  bool confirms(std::span<const float> scales, float mean, float factor) const;
  // Typical magnitudes by channel, from a few in-edges of each target.
  std::vector<float> typical() const;
  // The same; if a channel had a scale before and seems to have none now, uses many more in-edges.
  std::vector<float> scales(std::span<const float> before) const;
  // The typical mean of messages relative to the scale, for the channel where it is smallest; at most 1. 0 unless only
  // means are read.
  float mean(std::span<const float> scales) const;
  // Whether in some channel most messages are several times as large as what they differ by from others.
  bool is_offset() const;

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

  // Rows of messages times their weights. If coefficients are kept beside the sums, and the sums are divided by them in
  // the end, without the coefficients.
  struct Messages {
    std::vector<const float*> rows;
    std::vector<float> weights;
    RowArena arena;
    std::vector<float> computed;

    float magnitude(size_t i, size_t channel) const { return std::fabs(weights[i] * rows[i][channel]); }
    float typical(size_t channel) const;
  };

  // The sums of the targets, and by how much they are divided.
  struct Means {
    std::vector<const float*> rows;
    std::vector<float> degrees;
    RowArena arena;

    float magnitude(size_t i, size_t channel, float scale) const {
      return std::fabs(rows[i][channel]) / scale / degrees[i];
    }
  };

  void append_targets(size_t capacity, size_t first, const EdgeView& store, std::vector<Target>* found) const;
  bool has(uint32_t node) const;
  std::span<const DirectedChange> changes(uint32_t target) const;
  std::vector<Edge> sample_edges(size_t each) const;
  void append_edges(const Target& target, size_t left, size_t* scanned, std::vector<Edge>* sample) const;
  void sample(size_t each, Messages* messages) const;
  void compute_messages(std::span<const Edge> edges, Messages* messages) const;
  bool confirms_scales(std::span<const float> scales, float factor) const;
  bool confirms_mean(std::span<const float> scales, float mean, float factor) const;
  Means means_of_targets() const;
  void rows_of(uint32_t value, std::span<const uint32_t> nodes, RowArena* arena, const float** out) const;

  const RowState& state_;
  const RoundingState& rounding_;
  const PropagateStep& step_;
  const BatchChanges* batch_;
  const std::vector<DirectedChange>* edges_ = nullptr;  // that the batch changes, if it changes any
  std::unordered_set<uint32_t> added_, removed_;        // targets that the batch adds, and removes
  std::vector<Target> targets_;                         // a sample of targets that have in-edges
  Messages few_;                                        // of a few in-edges of each of them
};

}  // namespace livegnn
