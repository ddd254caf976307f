// Runs the operations of a step over a block of rows: those of nodes (rows steps), or those of edges (messages).
//
// What comes out not finite is computed once more in float64 (wide_rows.h): where the framework's result fits into
// float32, so does this one.
//
// Thread safety: any number of threads, each with buffers of its own.
#pragma once

#include <cstddef>
#include <vector>

#include "inference/blocks.h"
#include "inference/rows.h"
#include "program/program.h"

namespace livegnn {

// Memory for what a step computes of a block of rows.
class RowBuffers {
 public:
  // A block for each buffer of the step, until the next call.
  float** open(const RowsStep& step) {
    if (memory_.size() < step.buffers.size()) memory_.resize(step.buffers.size());
    buffers_.resize(step.buffers.size());
    for (size_t b = 0; b < step.buffers.size(); ++b) {
      buffers_[b] = memory_[b].reserve(kBlockRows * row_stride(step.buffers[b]));
    }
    return buffers_.data();
  }

 private:
  std::vector<Scratch> memory_;
  std::vector<float*> buffers_;
};

// Where row i of a register is.
inline const float* row_in(const RowsStep& step, uint32_t reg, size_t i, const float* const* sources,
                           float* const* buffers) {
  if (reg < step.sources.size()) return sources[reg * kBlockRows + i];
  const Register& r = step.registers[reg];
  return buffers[r.buffer] + i * row_stride(step.buffers[r.buffer]) + r.column;
}

// `sources` has a pointer for each source and row, source by source, kBlockRows for each; `buffers` a block for each
// buffer of the step. `widely`: operations whose rows are not finite once more, in float64. True if all rows that came
// out are finite; it may be false where they are. Requires: `count` is at most kBlockRows.
bool run_rows(const Program& program, const RowsStep& step, size_t count, const float* const* sources,
              float* const* buffers, bool widely = false);

// The rows of a step with one sink, each at `stride` from the one before.
void run_block(const Program& program, const RowsStep& step, size_t count, const float* const* sources, float* out,
               size_t stride);

// What a row costs, in nanoseconds.
double row_cost_of(const RowsStep& step);

}  // namespace livegnn
