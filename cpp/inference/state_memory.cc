// The memory that the state of an engine takes.
#include "inference/state.h"

namespace livegnn {

size_t State::program_bytes() const {
  size_t bytes = 0;
  for (const FloatBlock& tensor : rows.program.tensors) bytes += tensor.size() * sizeof(float);
  return bytes;
}

size_t State::bytes(uint32_t value) const {
  const Value& spec = rows.program.values[value];
  if (spec.features || spec.derived >= 0 || spec.width == 0) return 0;
  const Table& slab = rows.slabs[spec.slab];
  const size_t count = (slab.bytes() + slab.mapped_bytes()) / (slab.stride() * sizeof(float));
  // The padding of a slab's rows is counted for its first value, and the counts for their maximum.
  size_t floats = row_stride(spec.width);
  for (const PropagateStep& step : rows.program.propagations) {
    if (step.output == value && step.counts != kNoIndex) floats += row_stride(spec.width);
  }
  if (rows.columns[value] == 0) floats += slab.stride() - slab.width();
  return count * floats * sizeof(float);
}

size_t State::errors_bytes() const {
  size_t total = 0;
  for (const Table& table : rounding.errors) total += table.bytes() + table.mapped_bytes();
  return total;
}

size_t State::sums_bytes() const {
  size_t total = 0;
  for (const auto& each : degrees.sums) total += 2 * each.capacity() * sizeof(double);  // and their bounds
  return total;
}

size_t State::kept_nodes_bytes() const {
  size_t total = 0;
  for (const KeptNodes& each : rows.kept_nodes) total += each.bytes();
  return total;
}

size_t State::slots_bytes() const {
  size_t total = 0;
  for (const auto& each : rows.held) total += each ? each->bytes() : 0;
  return total;
}

size_t State::mapped_bytes() const {
  size_t total = 0;
  for (const Table& slab : rows.slabs) total += slab.mapped_bytes();
  for (const Table& table : rounding.errors) total += table.mapped_bytes();
  return total;
}

}  // namespace livegnn
