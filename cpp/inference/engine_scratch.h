// What one batch needs and the next can use again.
#pragma once

#include <algorithm>
#include <cstdint>
#include <tuple>
#include <vector>

#include "inference/engine.h"
#include "memory/recent_needs.h"

namespace livegnn {

inline constexpr size_t kBlockRows = 32;  // rows a thread takes at a time
inline size_t blocks_of(size_t rows) { return (rows + kBlockRows - 1) / kBlockRows; }

// What work costs one thread, in nanoseconds, as measured: to decide whether a second thread is worth waking.
inline constexpr double kRowCost = 80, kMessageCost = 40, kFlopCost = 0.012;
// More than enough to wake every thread.
inline constexpr double kLong = 1e9;

// Room for `size` elements; what is in the room is left as it was.
template <class T>
void grow(std::vector<T>* room, size_t size) {
  if (room->size() < size) room->resize(size + size / 2);
}

// What a thread keeps from one call to the next: at the end of each call, what a hub has made large is given back.
template <class... T>
class Trimmed {
 public:
  explicit Trimmed(std::vector<T>*... kept) : kept_(kept...) {}
  Trimmed(const Trimmed&) = delete;
  ~Trimmed() {
    std::apply([](auto*... kept) { (trim(kept), ...); }, kept_);
  }

 private:
  static constexpr size_t kKeptBytes = size_t{1} << 18;

  template <class E>
  static void trim(std::vector<E>* kept) {
    if (bytes_of(*kept) > kKeptBytes) give_back(kept);
  }

  std::tuple<std::vector<T>*...> kept_;
};

// Brings a row's page into the TLB. Rows lie anywhere in tables far larger than it covers, and a prefetch whose page it
// does not hold may be dropped; loads are not, and those of a whole block wait for their pages together.
inline void touch(const float* row) {
  const float value = *row;
  asm volatile("" : : "x"(value));
}

// The cache lines of a row whose page is at hand.
inline void fetch(const Rows& rows, uint32_t node) {
  if (node >= rows.count) return;
  for (size_t c = 0; c < rows.width; c += 16) __builtin_prefetch(rows.row(node) + c);
}

// The nodes that a rows step computes, and where their new rows are.
struct Engine::Reach {
  std::vector<uint32_t> nodes;
  std::vector<uint8_t> added;                    // by node of the list: it is new, so it has changed whatever comes out
  std::vector<std::vector<uint32_t>> positions;  // by source: of a node's row among the source's changes, or kNoIndex
  std::vector<std::vector<uint8_t>> keep;        // by sink: what came out differs from what was there
  std::vector<Rows> stored;                      // by source: the rows as they are
};

// The messages of a batch, where they are computed from more than their sources.
struct Engine::Terms {
  struct Term {
    uint32_t source, slot;  // a node, and its place among `sources` or kNoIndex
    float old_weight, new_weight;
    const float *old_features, *new_features;
    bool before, after;  // whether there was a message, and whether there is one now
  };

  std::vector<uint32_t> sources, targets;         // the first `constrained` targets have other rows themselves
  std::vector<std::vector<uint32_t>> positions;   // by source of the program: where the new rows of nodes are
  std::vector<uint32_t>* source_slots = nullptr;  // null if no row of a source is read
  size_t constrained = 0;
  std::vector<size_t> first, offsets, counts;
  std::vector<Term> found, terms;
  std::vector<uint32_t> found_target;
  std::vector<uint8_t> keep, keep_context;  // by target
};

struct Engine::Scratches {
  // After a batch that needed so much: what was much larger than others need is given back. Lists by node stay.
  void settle(size_t need);
  size_t bytes() const;

  // By node type: where a node stands in the list at hand, kNoIndex between uses. Two, since a frontier needs its
  // sources and its targets at once.
  std::vector<std::vector<uint32_t>> slots[2];
  std::vector<std::vector<uint8_t>> removed;  // by node type: set while a batch that removes the node is prepared

  // The frontier: first in the order in which messages were found, then grouped by target.
  // Those that `grow` fills hold more than is in use.
  std::vector<uint32_t> targets, counts, offsets, first;
  std::vector<uint32_t> found_target, found_row;
  std::vector<float> found_weight;
  std::vector<uint32_t> row_of;
  std::vector<float> weight_of;
  std::vector<const float*> rows;
  std::vector<float> peaks, coefficients;  // by row
  size_t num_messages = 0;
  Scratch differences;
  // By changed edge: the row of its source as it was, where that is not among the sources; and those not kept.
  std::vector<const float*> edge_sources, edge_rows;
  std::vector<uint32_t> edge_nodes;
  Scratch edge_memory;
  std::vector<uint8_t> keep, orphaned, recounted;  // by target

  Reach reach;
  Terms terms;

  // After a batch that was given up half-way: as it is between uses.
  void reset() noexcept {
    for (auto& sides : slots) {
      for (auto& nodes : sides) std::fill(nodes.begin(), nodes.end(), kNoIndex);
    }
    for (auto& nodes : removed) std::fill(nodes.begin(), nodes.end(), uint8_t{0});
  }

  RecentNeeds needs{size_t{1} << 12};
};

// While one lives, rounding is bounded in the units that a batch will leave (scales.cc).
class Engine::NewUnits {
 public:
  NewUnits(Engine* engine, const Prepared& prepared);
  NewUnits(const NewUnits&) = delete;
  ~NewUnits();

 private:
  Engine& engine_;
  std::vector<float> means_;
};

}  // namespace livegnn
