// What a batch changes: the rows of values, and the edges along which they are sent.
//
//   kept rows of a value      Changes, one per value
//   ┌──────────┐              nodes   4  9  2        nodes reached, in the order in which they were reached
//   │ row 0    │              rows   [..][..][..]    their new contents; a node whose row is bitwise
//   │ ...      │                                     unchanged is not in `nodes`
//   └──────────┘
//
// Thread safety: one thread at a time; blocks of a step may write to different rows concurrently.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "inference/edges/directed_changes.h"
#include "inference/evaluation/rows.h"
#include "inference/rows/kept_nodes.h"
#include "memory/recent_needs.h"

namespace livegnn {

// Rows that another part of the graph has computed, `width` floats each.
struct HaloRows {
  std::span<const uint32_t> nodes;
  const float* rows;
};

// New rows of one value.
class Changes {
 public:
  // Starts with no nodes; rows are `width` floats.
  void begin(size_t width);
  // Allocates rows at positions 0 to `count`, `stride` floats each; earlier contents are lost.
  float* open(size_t count) { return memory_.reserve(count * stride_); }
  // Requires: `open` was called with a larger count.
  float* row_to_write(size_t position) { return memory_.data() + position * stride_; }
  // Uses rows that are stored elsewhere, with the same stride: the features in the delta.
  void lie_at(const float* rows) { elsewhere_ = rows; }
  // Appends nodes of other parts, with their rows. Only steps along edges read them. Requires: it has all own rows, and
  // was not called since `begin`.
  void append_halo(std::span<const HaloRows> rows, size_t width);
  // The last `count` nodes, which were added like any, are those of other parts.
  void take_for_halo(size_t count) { halo_ = count; }
  void add(uint32_t node, uint32_t position) {
    nodes_.push_back(node);
    positions_.push_back(position);
  }
  // Keeps the marked ones of the rows at positions 0, 1, ..., which are those of `nodes`.
  void keep(const std::vector<uint32_t>& nodes, const std::vector<uint8_t>& marks);

  const std::vector<uint32_t>& nodes() const { return nodes_; }
  size_t size() const { return nodes_.size(); }
  // Those of this part of the graph come first.
  size_t own_size() const { return nodes_.size() - halo_; }
  uint32_t position(size_t i) const { return positions_[i]; }
  const float* at(size_t position) const {
    if (position >= halo_from_) return halo_rows_.data() + (position - halo_from_) * stride_;
    return (elsewhere_ != nullptr ? elsewhere_ : memory_.data()) + position * stride_;
  }
  const float* row(size_t i) const { return at(positions_[i]); }
  size_t stride() const { return stride_; }
  size_t bytes() const {
    return bytes_of(nodes_) + bytes_of(positions_) + memory_.bytes() + halo_rows_.bytes() + bytes_of(reached) +
           bytes_of(errors) + bytes_of(sums) + bytes_of(sum_errors);
  }

  // For aggregates: all nodes that the batch reached, by position, and the bounds on their rounding. They include nodes
  // whose row did not change, because everything that was added to it may have been rounded away.
  std::vector<uint32_t> reached;
  std::vector<float> errors;
  std::vector<double> sums;        // for context sums, by position
  std::vector<double> sum_errors;  // bounds on their rounding errors

 private:
  std::vector<uint32_t> nodes_, positions_;
  Scratch memory_;
  Scratch halo_rows_;  // at the positions from `halo_from_` on
  size_t halo_ = 0;    // nodes of other parts
  size_t halo_from_ = ~size_t{0};
  const float* elsewhere_ = nullptr;
  size_t stride_ = 0;
};

struct BatchChanges {
  const Delta* delta = nullptr;
  std::vector<Changes> rows;                       // by value
  std::vector<std::vector<DirectedChange>> edges;  // by direction, in order of target, source and key
  std::vector<Moves> moves;                        // by direction, if not all aggregates are kept

  const Changes& of(uint32_t value) const { return rows[value]; }
};

}  // namespace livegnn
