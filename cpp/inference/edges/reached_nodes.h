// The nodes that a batch reaches in a step of a program, found without arithmetic.
//
// Invariant: between two steps no node is marked.
// Thread safety: none.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "inference/edges/directed_changes.h"
#include "inference/edges/edge_view.h"
#include "program/program.h"
#include "store/graph.h"

namespace livegnn {

class ReachedNodes {
 public:
  // Makes room for nodes of all types after the batch.
  void cover(const Delta& delta) {
    for (const NodeDelta& nodes : delta.nodes) marks_.resize(std::max(marks_.size(), nodes.capacity));
  }
  void add(uint32_t node) {
    if (marks_[node] != 0) return;
    found_.push_back(node);  // may fail, and then the node is not marked
    marks_[node] = 1;
  }
  void add_all(const std::vector<uint32_t>& nodes) {
    for (uint32_t node : nodes) add(node);
  }
  // Those that were added since the last call, in that order; `nodes` gives its memory for the next ones.
  void take(std::vector<uint32_t>* nodes) {
    forget();
    nodes->swap(found_);
    found_.clear();
  }
  // After a failure between two steps.
  void clear() {
    forget();
    found_.clear();
  }

 private:
  void forget() {
    for (uint32_t node : found_) marks_[node] = 0;
  }

  std::vector<uint8_t> marks_;  // by node
  std::vector<uint32_t> found_;
};

// The nodes whose rows a rows step computes. changed_of: value -> the nodes whose rows of it change.
template <class ChangedOf>
void reach_rows(const Delta& delta, const RowsStep& step, const ChangedOf& changed_of, ReachedNodes* reached) {
  const NodeDelta& nodes = delta.nodes[step.node_type];
  for (size_t i = 0; i < nodes.added.size(); ++i) {
    if (nodes.added_ids[i] != kNoId) reached->add(nodes.added[i]);
  }
  for (uint32_t source : step.sources) reached->add_all(changed_of(source));
}

// The nodes to which a propagation sends messages, along the edges before the batch and those that it changes. Returns
// how many messages. changes: of the step's direction. Requires: no nodes were added since `take`.
template <class ChangedOf>
size_t reach_along(const Graph& graph, const Program& program, const PropagateStep& step,
                   const std::vector<DirectedChange>& changes, const ChangedOf& changed_of, ReachedNodes* reached) {
  constexpr size_t kAhead = 16;
  std::vector<uint32_t> senders;
  for (uint32_t value : read_along_edges(program, step)) reached->add_all(changed_of(value));
  reached->take(&senders);  // each once, also if a message reads several of its rows
  if (step.message != kNoIndex) {
    for (const MessageSource& source : program.messages[step.message].sources) {
      const bool own =
          source.side == MessageSource::kTarget || (source.side == MessageSource::kSource && step.only_loops);
      if (own) reached->add_all(changed_of(source.value));
    }
  }
  size_t messages = 0;
  const EdgeView store = view_of(graph, step);
  for (size_t i = 0; i < senders.size(); ++i) {
    if (i + kAhead < senders.size()) store.prefetch_out(senders[i + kAhead]);
    if (i + kAhead / 2 < senders.size()) store.prefetch_out_leaf(senders[i + kAhead / 2]);
    store.scan_out(senders[i], [&](NeighborSpan span) {
      messages += span.size;
      for (size_t j = 0; j < span.size; ++j) reached->add(span.ids[j]);
    });
  }
  for (const DirectedChange& change : changes) {
    if (step.message == kNoIndex && same_messages(change, step.weighted)) continue;
    if (step.only_loops && change.source != change.target) continue;
    ++messages;
    reached->add(change.target);
  }
  return messages;
}

}  // namespace livegnn
