#include "inference/propagation/workspace.h"

#include <algorithm>
#include <utility>

namespace livegnn {

size_t Reach::bytes() const {
  return bytes_of(nodes) + bytes_of(added) + bytes_of(positions) + bytes_of(keep) + bytes_of(stored);
}

size_t RowFrontier::bytes() const {
  size_t bytes = 0;
  for (const auto* list :
       {&targets, &counts, &offsets, &first, &found_target, &found_row, &found_key, &key_of, &row_of, &edge_nodes}) {
    bytes += bytes_of(*list);
  }
  for (const auto* list : {&found_weight, &weight_of, &peaks, &coefficients}) bytes += bytes_of(*list);
  for (const auto* list : {&rows, &edge_sources, &edge_rows}) bytes += bytes_of(*list);
  for (const auto* list : {&keep, &recounted}) bytes += bytes_of(*list);
  return bytes + order.bytes() + differences.bytes() + edge_memory.bytes();
}

size_t MessageFrontier::bytes() const {
  return bytes_of(sources) + bytes_of(targets) + bytes_of(positions) + bytes_of(first) + bytes_of(offsets) +
         bytes_of(counts) + bytes_of(found) + bytes_of(terms) + bytes_of(found_target) + bytes_of(keep) +
         bytes_of(keep_context) + order.bytes();
}

void Workspace::open(const Delta& delta, const GraphPart* part) {
  const size_t types = delta.nodes.size();
  for (auto& sides : slots) sides.resize(types);
  removed.resize(types);
  open_ = true;
  for (size_t n = 0; n < types; ++n) {
    const size_t capacity = delta.nodes[n].capacity;
    for (auto& sides : slots) {
      if (sides[n].size() < capacity) sides[n].resize(capacity, kNoIndex);
    }
    if (removed[n].size() < capacity) removed[n].resize(capacity, 0);
    for (uint32_t node : delta.nodes[n].removed) removed[n][node] |= kRemoved;
  }
  if (part != nullptr) mark_foreign(delta, *part);
}

// All nodes only if more than the last batch was missed: a batch takes time in proportion to what it adds.
void Workspace::mark_foreign(const Delta& delta, const GraphPart& part) {
  const bool follows = marked_ != kNever && marked_ + 1 == part.commits();
  const bool all = marked_ == kNever || (!follows && marked_ != part.commits());
  for (uint32_t n = 0; n < removed.size(); ++n) {
    std::vector<uint8_t>& marks = removed[n];
    const auto mark = [&](uint32_t node, uint32_t owner) {
      marks[node] = static_cast<uint8_t>((marks[node] & kRemoved) | (owner == part.self() ? 0 : kForeign));
    };
    for (uint32_t node = 0; all && node < marks.size(); ++node) mark(node, part.owner(n, node));
    if (follows) {
      for (uint32_t node : part.last_placed(n)) mark(node, part.owner(n, node));
    }
    const NodeDelta& nodes = delta.nodes[n];
    for (size_t i = 0; i < nodes.added.size(); ++i) mark(nodes.added[i], nodes.owners[i]);
  }
  marked_ = part.commits();
}

void Workspace::close(const Delta& delta, size_t need) {
  for (size_t n = 0; n < removed.size(); ++n) {
    for (uint32_t node : delta.nodes[n].removed) removed[n][node] &= kForeign;
  }
  open_ = false;
  if (!needs_.outgrown(need)) return;
  const size_t held = bytes();
  row_frontier = {};
  message_frontier = {};
  reach = {};
  return_freed(held);
}

void Workspace::restore() noexcept {
  if (!open_) return;
  for (auto& sides : slots) {
    for (auto& nodes : sides) std::fill(nodes.begin(), nodes.end(), kNoIndex);
  }
  for (auto& nodes : removed) std::fill(nodes.begin(), nodes.end(), uint8_t{0});
  open_ = false;
  marked_ = kNever;
}

size_t Workspace::bytes() const {
  return bytes_of(slots[0]) + bytes_of(slots[1]) + bytes_of(removed) + row_frontier.bytes() + message_frontier.bytes() +
         reach.bytes();
}

}  // namespace livegnn
