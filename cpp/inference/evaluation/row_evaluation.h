// Runs the operations of a step over a block of rows: rows of nodes (rows steps) or of edges (messages).
//
// Results that are not finite are computed once more in float64 (float64_retry.h): if the framework's result fits into
// float32, so does this one.
//
// Thread safety: any number of threads, each with its own buffers.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "inference/evaluation/blocks.h"
#include "inference/evaluation/rows.h"
#include "program/program.h"

namespace livegnn {

// Memory for the results of a step for a block of rows.
class RowBuffers {
 public:
  // A block for each buffer of the step, valid until the next call.
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

// Address of row i of a register.
inline const float* row_in(const RowsStep& step, uint32_t reg, size_t i, const float* const* sources,
                           float* const* buffers) {
  if (reg < step.sources.size()) return sources[reg * kBlockRows + i];
  const Register& r = step.registers[reg];
  return buffers[r.buffer] + i * row_stride(step.buffers[r.buffer]) + r.column;
}

// Addresses of the first `count` rows of a register.
inline void rows_in(const RowsStep& step, uint32_t reg, size_t count, const float* const* sources,
                    float* const* buffers, const float** out) {
  if (reg < step.sources.size()) {
    std::copy_n(sources + reg * kBlockRows, count, out);
    return;
  }
  const Register& r = step.registers[reg];
  const size_t stride = row_stride(step.buffers[r.buffer]);
  const float* row = buffers[r.buffer] + r.column;
  for (size_t i = 0; i < count; ++i, row += stride) out[i] = row;
}

// `sources` has a pointer for each source and row, source by source, kBlockRows for each; `buffers` has a block for
// each buffer of the step. `widely`: operations whose rows are not finite are computed again in float64. Returns true
// only if all result rows are finite; it may return false although they are. Requires: `count` is at most kBlockRows.
bool run_rows(const Program& program, const RowsStep& step, size_t count, const float* const* sources,
              float* const* buffers, bool widely = false);

// The rows of a step with one sink, `stride` floats apart.
void run_block(const Program& program, const RowsStep& step, size_t count, const float* const* sources, float* out,
               size_t stride);

// Estimated cost of a row, in nanoseconds.
double row_cost_of(const RowsStep& step);

}  // namespace livegnn
