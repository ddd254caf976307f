// How much work it is to read outputs of an engine, for the reads of locks.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "inference/engine.h"

namespace livegnn::bindings {

// The amount of work to predict this many nodes. It may take long if rows must be computed from neighbours, by
// functions of the user or by a lazy engine, or be read from a disk.
inline size_t prediction_work(const Engine& engine, size_t count, size_t output) {
  const Program& program = engine.program();
  const uint32_t type = engine.program().output_type(output);
  const auto [kept, position] = engine.program().output_at(output);
  if (engine.lazy() || !program.functions.empty() || engine.state().mapped_bytes() > 0) return SIZE_MAX;
  if (engine.graph().nodes[type].features.file() != nullptr) return SIZE_MAX;
  if (kept) return engine.state().rows.is_stored(position) ? count : SIZE_MAX;
  for (uint32_t source : program.on_demand[position].sources) {
    if (!engine.state().rows.is_stored(source)) return SIZE_MAX;
  }
  return count;
}

}  // namespace livegnn::bindings
