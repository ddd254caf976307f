// What an engine takes, and what it gives back between batches.
#include <utility>

#include "inference/engine_scratch.h"
#include "inference/lazy.h"

namespace livegnn {

size_t Prepared::need() const {
  size_t need = affected + edges_touched + nodes_touched;
  for (const auto& changed_edges : edges) need += changed_edges.size();
  for (const auto& nodes : reached) need += nodes.size();
  return need;
}

size_t Prepared::settle() {
  const size_t held = held_ = bytes();
  if (!needs_.outgrown(need())) return 0;
  give_back(&changes);
  give_back(&edges);
  give_back(&moves);
  give_back(&reached);
  give_back(&before);
  held_ = bytes();
  return held;
}

size_t Prepared::bytes() const {
  size_t bytes =
      bytes_of(changes) + bytes_of(edges) + bytes_of(moves) + bytes_of(changed) + bytes_of(reached) + bytes_of(before);
  for (const auto* values : {&changes, &before}) {
    for (const Changes& one : *values) bytes += one.bytes();
  }
  for (const Moves& one : moves) bytes += bytes_of(one.entering) + bytes_of(one.leaving);
  return bytes;
}

void Engine::Scratches::settle(size_t need) {
  if (!needs.outgrown(need)) return;
  const size_t held = bytes();
  Scratches kept;
  kept.slots[0] = std::move(slots[0]);
  kept.slots[1] = std::move(slots[1]);
  kept.removed = std::move(removed);
  kept.needs = needs;
  *this = std::move(kept);
  return_freed(held);
}

size_t Engine::Scratches::bytes() const {
  size_t bytes = bytes_of(slots[0]) + bytes_of(slots[1]) + bytes_of(removed);
  for (const auto* list : {&targets, &counts, &offsets, &first, &found_target, &found_row, &row_of, &edge_nodes}) {
    bytes += bytes_of(*list);
  }
  for (const auto* list : {&found_weight, &weight_of, &peaks, &coefficients}) bytes += bytes_of(*list);
  for (const auto* list : {&rows, &edge_sources, &edge_rows}) bytes += bytes_of(*list);
  for (const auto* list : {&keep, &orphaned, &recounted}) bytes += bytes_of(*list);
  bytes += differences.bytes() + edge_memory.bytes();
  bytes += bytes_of(reach.nodes) + bytes_of(reach.added) + bytes_of(reach.positions) + bytes_of(reach.keep) +
           bytes_of(reach.stored);
  bytes += bytes_of(terms.sources) + bytes_of(terms.targets) + bytes_of(terms.positions) + bytes_of(terms.first) +
           bytes_of(terms.offsets) + bytes_of(terms.counts) + bytes_of(terms.found) + bytes_of(terms.terms) +
           bytes_of(terms.found_target) + bytes_of(terms.keep) + bytes_of(terms.keep_context);
  return bytes;
}

size_t Engine::program_bytes() const {
  size_t bytes = 0;
  for (const FloatBlock& tensor : program_.tensors) bytes += tensor.size() * sizeof(float);
  return bytes;
}

size_t Engine::bytes(uint32_t value) const {
  const Value& spec = program_.values[value];
  if (spec.features || spec.derived >= 0 || spec.width == 0) return 0;
  const Table& slab = slabs_[spec.slab];
  const size_t rows = (slab.bytes() + slab.mapped_bytes()) / (slab.stride() * sizeof(float));
  // The first value of a slab answers for what pads its rows, and a maximum for its counts.
  size_t floats = row_stride(spec.width);
  for (const PropagateStep& step : program_.propagations) {
    if (step.output == value && step.counts != kNoIndex) floats += row_stride(spec.width);
  }
  if (columns_[value] == 0) floats += slab.stride() - slab.width();
  return rows * floats * sizeof(float);
}

size_t Engine::errors_bytes() const {
  size_t total = 0;
  for (const Table& errors : errors_) total += errors.bytes() + errors.mapped_bytes();
  return total;
}

size_t Engine::sums_bytes() const {
  size_t total = 0;
  for (const auto& sums : sums_) total += 2 * sums.capacity() * sizeof(double);  // and their bounds
  return total;
}

size_t Engine::residents_bytes() const {
  size_t total = 0;
  for (const Residents& residents : residents_) total += residents.bytes();
  return total;
}

size_t Engine::mapped_bytes() const {
  size_t total = 0;
  for (const Table& slab : slabs_) total += slab.mapped_bytes();
  for (const Table& errors : errors_) total += errors.mapped_bytes();
  return total;
}

}  // namespace livegnn
