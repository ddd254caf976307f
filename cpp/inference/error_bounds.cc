// The bounds of what rows may have lost to rounding (rounding.h): how many a row has, and all of them as numbers.
#include <cmath>
#include <span>
#include <vector>

#include "inference/engine.h"
#include "inference/rounding.h"

namespace livegnn {
namespace {

// Whether the bounds of a row are two numbers in one (rounding.h).
bool has_packed_bounds(const PropagateStep& step) {
  return step.aggregate == Aggregate::kSum && (step.message == kNoIndex || step.context == kNoIndex);
}

}  // namespace

size_t Engine::heads_of(const PropagateStep& step) const {
  const MessageProgram& program = program_.messages[step.message];
  return program.coefficient == kNoIndex ? 1 : program.step.registers[program.coefficient].width;
}

size_t Engine::error_width(const PropagateStep& step) const {
  if (step.aggregate != Aggregate::kSum) return 0;
  return has_packed_bounds(step) ? kRowBounds : 2 * heads_of(step);
}

size_t Engine::saved_error_width(size_t propagation) const {
  const PropagateStep& step = program_.propagations[propagation];
  return has_packed_bounds(step) ? 2 : error_width(step);
}

std::vector<float> Engine::errors(size_t propagation) const {
  const Table& table = errors_[propagation];
  const PropagateStep& step = program_.propagations[propagation];
  std::vector<float> all;
  if (table.width() == 0) return all;
  for (uint32_t slot : slots(step.output)) {
    if (has_packed_bounds(step)) {
      const Bounds bounds = unpack(table.row(slot));
      all.insert(all.end(), {bounds.own, bounds.moved});
    } else {
      all.insert(all.end(), table.row(slot), table.row(slot) + table.width());
    }
  }
  return all;
}

void Engine::load_errors(size_t propagation, std::span<const float> errors) {
  Table& table = errors_[propagation];
  if (table.width() == 0) return;
  const size_t width = saved_error_width(propagation);
  const bool packed = has_packed_bounds(program_.propagations[propagation]);
  table.resize(errors.size() / width);
  for (size_t i = 0; i < table.rows(); ++i) {
    const float* const from = errors.data() + i * width;
    if (packed) {
      pack({std::fabs(from[0]), std::fabs(from[1])}, table.row(i));
    } else {
      table.write(i, from);
    }
  }
}

}  // namespace livegnn
