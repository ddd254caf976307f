// The memory that the state of an engine takes.
#include "inference/state.h"

namespace livegnn {

size_t State::program_bytes() const {
  size_t bytes = 0;
  for (const FloatBlock& tensor : program.tensors) bytes += tensor.size() * sizeof(float);
  return bytes;
}

size_t State::bytes(uint32_t value) const {
  const Value& spec = program.values[value];
  if (spec.features || spec.derived >= 0 || spec.width == 0) return 0;
  const Table& slab = slabs[spec.slab];
  const size_t rows = (slab.bytes() + slab.mapped_bytes()) / (slab.stride() * sizeof(float));
  // The padding of a slab's rows is counted for its first value, and the counts for their maximum.
  size_t floats = row_stride(spec.width);
  for (const PropagateStep& step : program.propagations) {
    if (step.output == value && step.counts != kNoIndex) floats += row_stride(spec.width);
  }
  if (columns[value] == 0) floats += slab.stride() - slab.width();
  return rows * floats * sizeof(float);
}

size_t State::errors_bytes() const {
  size_t total = 0;
  for (const Table& table : errors) total += table.bytes() + table.mapped_bytes();
  return total;
}

size_t State::sums_bytes() const {
  size_t total = 0;
  for (const auto& each : sums) total += 2 * each.capacity() * sizeof(double);  // and their bounds
  return total;
}

size_t State::kept_nodes_bytes() const {
  size_t total = 0;
  for (const KeptNodes& each : kept_nodes) total += each.bytes();
  return total;
}

size_t State::mapped_bytes() const {
  size_t total = 0;
  for (const Table& slab : slabs) total += slab.mapped_bytes();
  for (const Table& table : errors) total += table.mapped_bytes();
  return total;
}

}  // namespace livegnn
