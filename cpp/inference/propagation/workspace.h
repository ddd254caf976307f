// Memory that one batch needs while it is prepared, and that the next can use again.
//
// An engine has as many workspaces as batches were ever prepared at once. Thread safety: none for a workspace, which
// belongs to one batch; any thread may take one of the engine's workspaces, and give it back.
#pragma once

#include <cstdint>
#include <vector>

#include "inference/edges/directed_changes.h"
#include "inference/evaluation/blocks.h"
#include "inference/evaluation/rows.h"
#include "inference/propagation/source_order.h"
#include "memory/leases.h"
#include "memory/recent_needs.h"

namespace livegnn {

// The nodes that a rows step computes, and the places of their new rows.
struct Reach {
  std::vector<uint32_t> nodes;
  std::vector<uint8_t> added;  // by node of the list: it is new, so it counts as changed whatever its row
  std::vector<std::vector<uint32_t>> positions;  // by source: place of a node's row in its changes, or kNoIndex
  std::vector<std::vector<uint8_t>> keep;        // by sink: whether the computed row differs from the stored one
  std::vector<Rows> stored;                      // by source: the current rows

  size_t bytes() const;
};

// The messages of a batch if a message is a row of its source times a weight, grouped by target (row_frontier.h).
struct RowFrontier {
  SourceOrder order;  // of the changed nodes of the input
  // First in the order in which messages were found, then grouped by target. Vectors that `grow` resizes are larger
  // than what is in use.
  std::vector<uint32_t> targets, counts, offsets, first;
  std::vector<uint32_t> found_target, found_row;
  std::vector<uint32_t> found_key, key_of;  // if edges are parallel and have weights
  std::vector<float> found_weight;
  std::vector<uint32_t> row_of;
  std::vector<float> weight_of;
  std::vector<const float*> rows;
  std::vector<float> peaks, coefficients;  // by row
  size_t num_messages = 0;
  Scratch differences;
  // By changed edge: the old row of its source, if that is not among the sources; and the rows that are not kept.
  std::vector<const float*> edge_sources, edge_rows;
  std::vector<uint32_t> edge_nodes;
  Scratch edge_memory;
  std::vector<uint8_t> keep, recounted;  // by target

  size_t bytes() const;
};

// The messages of a batch if they are computed from more than their sources (message_frontier.h).
struct MessageFrontier {
  struct Term {
    uint32_t source, slot;  // a node, and its place in `sources` or kNoIndex
    float old_weight, new_weight;
    const float *old_features, *new_features;
    bool before, after;  // whether the message exists before and after the batch
    uint32_t key;        // distinguishes parallel edges
  };

  SourceOrder order;
  // Sources ascend. The own rows of the first `constrained` targets change.
  std::vector<uint32_t> sources, targets;
  std::vector<std::vector<uint32_t>> positions;   // by source of the program: places of the new rows of nodes
  std::vector<uint32_t>* source_slots = nullptr;  // null if no row of a source is read
  size_t constrained = 0;
  std::vector<size_t> first, offsets, counts;
  std::vector<Term> found, terms;
  std::vector<uint32_t> found_target;
  std::vector<uint8_t> keep, keep_context;  // by target

  size_t bytes() const;
};

// Converts the number of messages of each target, in `counts`, to `offsets`, where each target's messages start; there
// is one more of these than there are targets. Afterwards `counts` holds the place of each target's next message.
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
  // By node type: the place of a node in the current list, kNoIndex between uses. There are two, because a frontier
  // needs its sources and its targets at once.
  std::vector<std::vector<uint32_t>> slots[2];
  // By node type: kRemoved while a batch is prepared that removes the node, kForeign if another part owns it. What is
  // not 0 is no target.
  std::vector<std::vector<uint8_t>> removed;

  RowFrontier row_frontier;
  MessageFrontier message_frontier;
  Reach reach;

  static constexpr uint8_t kRemoved = 1, kForeign = 2;

  // Makes room for all nodes that exist after the batch, and marks those that it removes, and those of other parts.
  // `part`: of the graph, null of an undivided one.
  void open(const Delta& delta, const GraphPart* part = nullptr);
  // After a batch that needed `need`: gives back memory that is much larger than other batches need. Lists by node
  // stay.
  void close(const Delta& delta, size_t need);
  // After a batch that was abandoned half-way: restores the state between uses.
  void restore() noexcept;
  size_t bytes() const;

 private:
  static constexpr size_t kNever = ~size_t{0};

  void mark_foreign(const Delta& delta, const GraphPart& part);

  RecentNeeds needs_{size_t{1} << 12};
  bool open_ = false;
  size_t marked_ = kNever;  // the commits of the part after which foreign nodes were last marked
};

using Workspaces = Leases<Workspace>;

}  // namespace livegnn
