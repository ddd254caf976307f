// What bounds the rounding of sums between batches: bounds on the errors of their rows, and the scales in whose units
// these are counted.
//
// Thread safety: the same as for the rows (rows/row_state.h).
#pragma once

#include <string>
#include <vector>

#include "inference/rounding/rounding_scales.h"
#include "inference/rows/row_state.h"
#include "memory/table.h"

namespace livegnn {

struct RoundingState {
  // Errors are stored in files in `directory`; an empty name means memory. Throws std::system_error.
  RoundingState(const Program& program, const std::string& directory);

  std::vector<Table> errors;          // by propagation: bounds on rounding (error_bounds.h)
  std::vector<RoundingScale> scales;  // by propagation
  const std::vector<bool> steep;      // by propagation: whether a steep function reads it (steepness.h)
  Moments moments;

  // Makes room for the batch that is about to be committed. If it throws, call `release` next; nothing has changed.
  void reserve(const RowState& rows, const Delta& delta, const BatchChanges& batch);
  // Requires: the rows have been committed.
  void commit(const RowState& rows, const Delta& delta, const BatchChanges& batch, const NewScales& fresh,
              const Totals& totals) noexcept;
  void release() noexcept;

  bool is_laid_out_as(const RoundingState& other) const;
  // Takes everything from an equally laid out state, without copying it, and leaves what this one kept.
  void take(RoundingState* from) noexcept;
};

}  // namespace livegnn
