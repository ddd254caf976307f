// What a batch does to every value of an engine, and all that is needed while it is prepared.
//
//   values (State)       Changes, one per value
//   ┌──────────┐         nodes   4  9  2        rows reached, in the order in which they were reached
//   │ row 0    │         rows   [..][..][..]    their new contents; a row that came out bit-equal is left out of
//   │ ...      │                                `nodes`
//   └──────────┘
//
// Thread safety: one thread prepares; blocks of its steps may call `lose` and `lose_row` at once.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "inference/backend.h"
#include "inference/residents.h"
#include "inference/rows.h"
#include "inference/workspace.h"
#include "memory/recent_needs.h"

namespace livegnn {

struct State;

// New rows of one value.
class Changes {
 public:
  // Of no node; rows are `width` floats.
  void begin(size_t width);
  // Memory for rows at positions 0 to `count`, `stride` floats each; what was in it is lost.
  float* open(size_t count) { return memory_.reserve(count * stride_); }
  // Requires: `open` with a larger count.
  float* row_to_write(size_t position) { return memory_.data() + position * stride_; }
  // Rows lie elsewhere, as far from each other: in the delta's features.
  void lie_at(const float* rows) { elsewhere_ = rows; }
  void add(uint32_t node, uint32_t position) {
    nodes_.push_back(node);
    positions_.push_back(position);
  }
  // Of rows at positions 0, 1, ..., which are those of `nodes`, the ones that are marked.
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

  // Of aggregates: all that the batch reached, by position, and their bounds on rounding. A row that came out as it was
  // is among them: what was added to it may all have been rounded away.
  std::vector<uint32_t> reached;
  std::vector<float> errors;
  std::vector<double> sums;        // of context sums, by position
  std::vector<double> sum_errors;  // bounds on their rounding

 private:
  std::vector<uint32_t> nodes_, positions_;
  Scratch memory_;
  const float* elsewhere_ = nullptr;
  size_t stride_ = 0;
};

struct Preparation final : Prepared {
  const Delta* delta = nullptr;
  size_t steps = 0;             // of the program's order: how many are computed
  bool guarded = false;         // rows that a batch makes other than finite are looked for
  bool recompute_all = false;   // aggregates are computed from all their neighbours, whatever is cheaper
  bool output_done = false;     // of a prediction that is not kept
  Workspaces::Lease workspace;  // from `begin` to `finish`

  std::vector<Changes> changes;                    // by value
  std::vector<std::vector<DirectedChange>> edges;  // by direction, in order of target, source and key
  std::vector<Moves> moves;                        // by direction, where not all aggregates are kept

  // Where scales were measured on what comes of the batch (units.h): by propagation what they become, none where they
  // stay; by how much bounds that are counted in them grow; and the rows that are past theirs then.
  struct NewUnit {
    std::vector<float> scales;
    FloatBlock inverses;
    float mean = 0;
    float shrunk = 1;
    std::vector<uint32_t> overdue;
  };
  bool measured = false;
  bool in_new_units = false;  // rounding is bounded in the units that the batch will leave
  std::vector<NewUnit> units;

  // Of a batch that a lazy engine (lazy.h) has only marked:
  std::vector<std::vector<uint32_t>> reached;  // by lazy step
  std::vector<Changes> before;                 // by eager value: rows that are about to be overwritten

  const Changes& of(uint32_t value) const { return changes[value]; }

  // A step makes a row other than finite that was. Any thread may say so.
  void lose(uint32_t node_type, uint32_t node);
  // The same of a row that may have been other than finite already.
  void lose_row(const State& state, uint32_t value, uint32_t node);
  // Whether the steps so far have lost a row; then `lost` says which one.
  bool has_lost();

  size_t need() const;  // what the batch touched: rows, messages and edges
  size_t settle() override;

 private:
  static constexpr uint64_t kNothingLost = ~uint64_t{0};

  size_t bytes() const;  // now

  RecentNeeds needs_{size_t{1} << 12};             // in `need`
  std::atomic<uint64_t> lost_here_{kNothingLost};  // the first node, after its type, that the step at hand loses
};

}  // namespace livegnn
