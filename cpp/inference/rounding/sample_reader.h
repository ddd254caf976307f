// Reads samples of messages (sample.h) from the graph and its rows, as they are after a batch or, without a batch, as
// they are now.
//
// Thread safety: none; any number of objects may be used at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <unordered_set>
#include <vector>

#include "inference/rounding/rounding_state.h"
#include "inference/rounding/sample.h"
#include "inference/rows/changes.h"
#include "inference/rows/row_state.h"

namespace livegnn {

class SampleReader {
 public:
  // Whether a node belongs to a part of all nodes; empty for the whole.
  using Part = std::function<bool(uint32_t node)>;

  // Requires: all arguments outlive it, and `changes` is null or has been computed.
  SampleReader(const RowState& state, const RoundingState& rounding, const PropagateStep& step,
               const BatchChanges* changes);

  // The targets of a part, in the order of their turns: at least those that may be chosen.
  std::vector<SampledTarget> find(const Part& part = {}) const;
  // Messages of a few in-edges of each target, and the targets' sums if only means are read. Requires: chosen targets,
  // or those of a part of them, in the order of their turns.
  MessageSample few(std::span<const SampledTarget> targets) const;
  // Messages of as many in-edges as a sample may have, without the sums. Requires: the same.
  MessageSample many(std::span<const SampledTarget> targets) const;

 private:
  struct Edge {
    uint32_t source, target;
    float weight;
    const float* features;
  };

  void try_round(uint32_t round, const Part& part, std::vector<SampledTarget>* found) const;
  bool has(uint32_t node) const;
  std::span<const DirectedChange> changes(uint32_t target) const;
  MessageSample collect(std::span<const SampledTarget> targets, size_t each) const;
  // Appends in-edges of a node, at most `left`. Returns how many were passed.
  size_t append_edges(uint32_t node, size_t left, std::vector<Edge>* edges) const;
  void compute_messages(std::span<const Edge> edges, MessageSample* sample) const;
  void add_sums(std::span<const SampledTarget> targets, MessageSample* sample) const;
  void rows_of(uint32_t value, std::span<const uint32_t> nodes, RowArena* arena, const float** out) const;

  const RowState& state_;
  const RoundingState& rounding_;
  const PropagateStep& step_;
  const BatchChanges* const batch_;
  size_t capacity_;                                     // of the type of the targets
  const std::vector<DirectedChange>* edges_ = nullptr;  // that the batch changes, if it changes any
  std::unordered_set<uint32_t> added_, removed_;        // targets that the batch adds, and removes
};

// The sample of all nodes.
struct WholeSample {
  WholeSample(const RowState& state, const RoundingState& rounding, const PropagateStep& step,
              const BatchChanges* changes)
      : reader(state, rounding, step, changes), targets(choose_targets(reader.find())), few(reader.few(targets)) {}

  MessageSample many() const { return reader.many(targets); }

  const SampleReader reader;
  const std::vector<SampledTarget> targets;
  const MessageSample few;
};

}  // namespace livegnn
