// The order in which the changed sources of a batch send, and with it the order of the messages at every target.
//
//   messages of a target      3  8  8  21  │  1  8  30       (their sources)
//                             ─────────────┼───────────
//      of changed sources, along the edges │ of changed
//      that were there before the batch    │ edges
//
// Each part is in the order of the sources, and of the keys where edges between two nodes are parallel. So the order
// follows from the graph and the batch alone: not from the order in which the batch reached the sources, which a
// machine with a part of the graph does not know, and not from that of a list of edges. The sources are sorted once.
// Then the messages of every target lie in order as soon as they are grouped; only those of parallel edges may have to
// be moved.
//
// Thread safety: none; every workspace has its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "memory/recent_needs.h"

namespace livegnn {

class SourceOrder {
 public:
  // Takes a list of nodes without repetitions. The work is proportional to their number.
  void sort(const std::vector<uint32_t>& nodes);

  size_t size() const { return size_; }
  // The node that has i smaller ones before it, and its place in the list.
  uint32_t node(size_t i) const { return static_cast<uint32_t>(numbers_[i] >> 32); }
  uint32_t place(size_t i) const { return static_cast<uint32_t>(numbers_[i]); }

  size_t bytes() const { return bytes_of(numbers_) + bytes_of(spare_); }

 private:
  size_t size_ = 0;
  std::vector<uint64_t> numbers_, spare_;  // node and place; larger than what is in use
};

// Places the next message of a target after `count` others, or before those of parallel edges with larger keys: moves
// these, one after the other, and returns the place. `follows(i)`: whether message i is one of them. Lists have
// parallel edges in ascending order but for those of one leaf (samtree.h), and there mostly too: hardly any is moved,
// and never far.
template <class Follows, class Move>
size_t place_by_key(size_t count, const Follows& follows, const Move& move) {
  for (; count > 0 && follows(count - 1); --count) move(count - 1, count);
  return count;
}

}  // namespace livegnn
