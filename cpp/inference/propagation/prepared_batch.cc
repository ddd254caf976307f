#include "inference/propagation/prepared_batch.h"

#include "inference/rows/stored_rows.h"
#include "program/kernels.h"

namespace livegnn {

void PreparedBatch::lose(uint32_t node_type, uint32_t node) {
  const uint64_t here = uint64_t{node_type} << 32 | node;
  uint64_t first = lost_here_.load(std::memory_order_relaxed);
  while (here < first && !lost_here_.compare_exchange_weak(first, here, std::memory_order_relaxed)) continue;
}

void PreparedBatch::lose_row(const RowState& state, uint32_t value, uint32_t node) {
  if (!guarded) return;
  static thread_local RowArena arena;
  arena.clear();
  const float* before;
  stored_rows(state, value, {&node, 1}, &arena, &before);
  const Value& spec = state.program.values[value];
  if (kernels().finite(spec.width, before)) lose(spec.node_type, node);
}

bool PreparedBatch::has_lost() {
  const uint64_t here = lost_here_.exchange(kNothingLost, std::memory_order_relaxed);
  if (here != kNothingLost) {
    effects.lost = static_cast<uint32_t>(here);
    effects.lost_type = static_cast<uint32_t>(here >> 32);
    effects.lost_step = step;
  }
  return effects.lost != kNoIndex;
}

}  // namespace livegnn
