// What one batch needs while it is prepared, and the next can use again.
//
// An engine has as many as batches were ever prepared at once. Thread safety: of a workspace none, it is one batch's;
// of the engine's workspaces any thread may take one, and give it back.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "inference/blocks.h"
#include "inference/directed_changes.h"
#include "inference/rows.h"
#include "memory/recent_needs.h"

namespace livegnn {

// The nodes that a rows step computes, and where their new rows are.
struct Reach {
  std::vector<uint32_t> nodes;
  std::vector<uint8_t> added;                    // by node of the list: it is new, so it has changed whatever comes out
  std::vector<std::vector<uint32_t>> positions;  // by source: of a node's row among the source's changes, or kNoIndex
  std::vector<std::vector<uint8_t>> keep;        // by sink: what came out differs from what was there
  std::vector<Rows> stored;                      // by source: the rows as they are

  size_t bytes() const;
};

// The messages of a batch where a message is a row of its source, times a weight, grouped by target (row_frontier.h).
struct RowFrontier {
  // First in the order in which messages were found, then grouped by target. Those that `grow` fills hold more than is
  // in use.
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

  size_t bytes() const;
};

// The messages of a batch where they are computed from more than their sources (message_frontier.h).
struct MessageFrontier {
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

  size_t bytes() const;
};

// How many messages each target has, in `counts`, as where those of each begin: `offsets`, one more than there are
// targets. Then `counts` are where the next message of each target goes.
template <class Count>
void count_offsets(std::vector<Count>* counts, size_t targets, std::vector<Count>* offsets) {
  grow(offsets, targets + 1);
  (*offsets)[0] = 0;
  for (size_t t = 0; t < targets; ++t) {
    (*offsets)[t + 1] = (*offsets)[t] + (*counts)[t];
    (*counts)[t] = (*offsets)[t];
  }
}

struct Workspace {
  // By node type: where a node stands in the list at hand, kNoIndex between uses. Two, since a frontier needs its
  // sources and its targets at once.
  std::vector<std::vector<uint32_t>> slots[2];
  std::vector<std::vector<uint8_t>> removed;  // by node type: set while a batch that removes the node is prepared

  RowFrontier row_frontier;
  MessageFrontier message_frontier;
  Reach reach;

  // Room for the nodes that there will be; marks those that the batch removes.
  void open(const Delta& delta);
  // After a batch that needed so much: what was much larger than others need is given back. Lists by node stay.
  void close(const Delta& delta, size_t need);
  // After a batch that was given up half-way: as it is between uses.
  void reset() noexcept;
  size_t bytes() const;

 private:
  friend class Workspaces;
  RecentNeeds needs_{size_t{1} << 12};
  bool open_ = false;
  size_t held_ = 0;                  // bytes, when it was given back
  std::unique_ptr<Workspace> next_;  // among those that nobody uses
};

class Workspaces {
 public:
  struct Return {
    Workspaces* to = nullptr;
    void operator()(Workspace* workspace) const noexcept;
  };
  // Goes back by itself, and is reset if it is still open.
  using Lease = std::unique_ptr<Workspace, Return>;

  Lease take();
  size_t bytes() const { return bytes_; }  // of those that nobody uses; from any thread

 private:
  std::mutex mutex_;
  std::unique_ptr<Workspace> free_;
  std::atomic<size_t> bytes_{0};
};

}  // namespace livegnn
