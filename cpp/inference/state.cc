#include "inference/state.h"

#include "inference/propagation/prepared_batch.h"

namespace livegnn {

void State::reserve(const Delta& delta, const BatchChanges& batch) {
  rows.reserve(delta, batch);
  rounding.reserve(rows, delta, batch);
  degrees.reserve(rows.program, delta);
}

void State::commit(const Delta& delta, const PreparedBatch& prepared, ThreadPool* pool) noexcept {
  rows.commit(delta, prepared.changes, pool);
  rounding.commit(rows, delta, prepared.changes, prepared.scales, prepared.totals);
  degrees.commit(rows.program, delta, prepared.changes);
}

void State::release() noexcept {
  rows.release();
  rounding.release();
}

bool State::take(State* from) noexcept {
  if (!rows.is_laid_out_as(from->rows) || !rounding.is_laid_out_as(from->rounding)) return false;
  if (degrees.sums.size() != from->degrees.sums.size()) return false;
  rows.take(&from->rows);
  rounding.take(&from->rounding);
  std::swap(degrees, from->degrees);
  return true;
}

}  // namespace livegnn
