// A batch that is being prepared, as the steps of a program see it: what has changed so far, and memory to work in.
//
// Thread safety: one thread prepares; blocks of its steps may call `lose` and `lose_row` concurrently.
#pragma once

#include <atomic>
#include <cstdint>

#include "inference/propagation/workspace.h"
#include "inference/rounding/rounding_scales.h"
#include "inference/rows/changes.h"
#include "inference/rows/effects.h"
#include "inference/rows/row_state.h"

namespace livegnn {

struct PreparedBatch {
  explicit PreparedBatch(Effects* effects) : effects(*effects) {}

  Effects& effects;
  BatchChanges changes;
  NewScales scales;             // if they were measured on the result of the batch
  Totals totals;                // of the whole batch, once it is prepared
  Workspaces::Lease workspace;  // from `begin` to `finish`
  size_t step = 0;              // the one that is being computed, by its position in the program's order
  bool guarded = false;         // look for rows that the batch makes non-finite
  bool recompute_all = false;   // compute aggregates from all neighbours, even if updates are cheaper

  const Changes& of(uint32_t value) const { return changes.of(value); }

  // Records that a step makes a finite row non-finite. Any thread may call it.
  void lose(uint32_t node_type, uint32_t node);
  // The same for a row that may have been non-finite already.
  void lose_row(const RowState& state, uint32_t value, uint32_t node);
  // Whether the steps so far have made a finite row non-finite; `effects.lost` then says which one.
  bool has_lost();

 private:
  static constexpr uint64_t kNothingLost = ~uint64_t{0};

  std::atomic<uint64_t> lost_here_{kNothingLost};  // the smallest (type, node) that the current step loses
};

}  // namespace livegnn
