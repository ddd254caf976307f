// What a batch changes in every value of an engine, and the data needed while it is prepared.
//
//   values (State)       Changes, one per value
//   ┌──────────┐         nodes   4  9  2        nodes reached, in the order in which they were reached
//   │ row 0    │         rows   [..][..][..]    their new contents; a node whose row is bitwise
//   │ ...      │                                unchanged is not in `nodes`
//   └──────────┘
//
// Thread safety: one thread prepares; blocks of its steps may call `lose` and `lose_row` concurrently.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "inference/backend.h"
#include "inference/evaluation/rows.h"
#include "inference/propagation/workspace.h"
#include "inference/rows/kept_nodes.h"
#include "memory/recent_needs.h"

namespace livegnn {

struct State;

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
  void add(uint32_t node, uint32_t position) {
    nodes_.push_back(node);
    positions_.push_back(position);
  }
  // Keeps the marked ones of the rows at positions 0, 1, ..., which are those of `nodes`.
  void keep(const std::vector<uint32_t>& nodes, const std::vector<uint8_t>& marks);

  const std::vector<uint32_t>& nodes() const { return nodes_; }
  size_t size() const { return nodes_.size(); }
  uint32_t position(size_t i) const { return positions_[i]; }
  const float* at(size_t position) const {
    return (elsewhere_ != nullptr ? elsewhere_ : memory_.data()) + position * stride_;
  }
  const float* row(size_t i) const { return at(positions_[i]); }
  size_t stride() const { return stride_; }
  size_t bytes() const {
    return bytes_of(nodes_) + bytes_of(positions_) + memory_.bytes() + bytes_of(reached) + bytes_of(errors) +
           bytes_of(sums) + bytes_of(sum_errors);
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
  const float* elsewhere_ = nullptr;
  size_t stride_ = 0;
};

struct Preparation final : Prepared {
  const Delta* delta = nullptr;
  size_t steps = 0;             // number of computed steps in the program's order
  size_t step = 0;              // the one that is being computed
  bool guarded = false;         // look for rows that the batch makes non-finite
  bool recompute_all = false;   // compute aggregates from all neighbours, even if updates are cheaper
  bool output_done = false;     // for a prediction that is not kept
  Workspaces::Lease workspace;  // from `begin` to `finish`

  std::vector<Changes> changes;                    // by value
  std::vector<std::vector<DirectedChange>> edges;  // by direction, in order of target, source and key
  std::vector<Moves> moves;                        // by direction, if not all aggregates are kept

  // New units, if scales were measured on the result of the batch (rounding_scales.h). By propagation: the new scales
  // (empty if they stay), the factor by which bounds counted in them grow, and the rows that then exceed their bounds.
  struct NewScale {
    std::vector<float> scales;
    FloatBlock inverses;
    float mean = 0;
    bool offset = false;
    float shrunk = 1;
    std::vector<uint32_t> overdue;
  };
  bool measured = false;
  bool in_new_scales = false;  // rounding is bounded in the units that hold after the batch
  std::vector<NewScale> scales;

  // For a batch that a lazy engine (lazy.h) has only marked:
  std::vector<std::vector<uint32_t>> reached;  // by lazy step
  std::vector<Changes> before;                 // by eager value: rows that will be overwritten

  const Changes& of(uint32_t value) const { return changes[value]; }

  // Records that a step makes a finite row non-finite. Any thread may call it.
  void lose(uint32_t node_type, uint32_t node);
  // The same for a row that may have been non-finite already.
  void lose_row(const State& state, uint32_t value, uint32_t node);
  // Whether the steps so far have made a finite row non-finite; `lost` then says which one.
  bool has_lost();

  size_t need() const;  // what the batch touched: rows, messages and edges
  size_t settle() override;

 private:
  static constexpr uint64_t kNothingLost = ~uint64_t{0};

  size_t bytes() const;  // current size

  RecentNeeds needs_{size_t{1} << 12};             // in the units of `need`
  std::atomic<uint64_t> lost_here_{kNothingLost};  // the smallest (type, node) that the current step loses
};

}  // namespace livegnn
