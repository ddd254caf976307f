// A sample of the messages of a sum, from which their typical magnitudes are measured (measurement.h).
//
//   nodes that are tried ─► found: those with in-edges ─► chosen ─► messages of some of their in-edges
//
// Nodes are tried, and messages collected, on all nodes or in the parts of any division of them (sample_reader.h): the
// found targets of all parts are chosen from, and the samples of all parts are merged.
//
// Invariant: what parts give together is what the whole gives, to the bit, whatever the division and the order of the
// parts.
//
// Thread safety: plain data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "inference/evaluation/rows.h"

namespace livegnn {

// Nodes are tried in rounds, until a round ends with as many targets as are chosen: most graphs need no more than the
// first.
inline constexpr uint32_t kTried = 512, kRounds = 4, kTriedInRound = kTried / kRounds;
inline constexpr size_t kChosen = 64;

// A node that was tried and has in-edges.
struct SampledTarget {
  uint32_t turn;  // among the nodes that are tried, below kTried
  uint32_t node;
  int64_t degree;  // in-edges

  bool operator==(const SampledTarget&) const = default;
};

// Those whose messages are looked at, in the order of their turns. `found`: by all parts, in any order.
std::vector<SampledTarget> choose_targets(std::vector<SampledTarget> found);

// Ends a sample that has become large.
class SampleLimit {
 public:
  // How many messages of the next target still belong to the sample.
  size_t left() const { return scanned_ >= kMostScanned ? 0 : kMostMessages - messages_; }
  // Requires: no more messages than are left.
  void take(size_t scanned, size_t messages) {
    scanned_ += scanned;
    messages_ += messages;
  }

  static constexpr size_t kMostScanned = size_t{1} << 21;  // in-edges: a few milliseconds for hubs
  static constexpr size_t kMostMessages = size_t{1} << 13;

 private:
  size_t scanned_ = 0, messages_ = 0;
};

// A message is a row times a weight. If coefficients are kept beside the sums, and the sums are divided by them in the
// end, it is without the coefficients.
struct MessageSample {
  struct Target {
    explicit Target(const SampledTarget& target) : turn(target.turn), degree(target.degree) {}

    uint32_t turn;
    int64_t degree;
    const float* sum = nullptr;     // if only means are read
    size_t scanned = 0, count = 0;  // in-edges that were passed to find messages; messages
  };

  std::vector<Target> targets;     // in the order of their turns
  std::vector<const float*> rows;  // of the messages, target by target
  std::vector<float> weights;
  // Rows that are stored nowhere else.
  RowArena arena;
  std::vector<float> computed;

  float magnitude(size_t message, size_t channel) const;
};

// Requires: the parts outlive the result.
MessageSample merge_samples(std::span<const MessageSample* const> parts);

}  // namespace livegnn
