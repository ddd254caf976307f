// Checks of the values of events. Each throws an EventError, which names the node or edge.
//
// Thread safety: plain functions.
#pragma once

#include <cstddef>
#include <cstdint>

namespace livegnn {

// Whose values a check looks at: nodes, or edges if there are `targets`. what: the name of the values in the error.
struct Holders {
  uint32_t type;
  const int64_t* ids;
  const int64_t* targets = nullptr;
};

void check_weight(float weight, const char* what, const Holders& of, size_t at);
// Whole numbers must add up exactly, and no weight may be lost altogether, as a count is that stands still at 2^24.
void check_sum(float old, float more, const Holders& of, size_t at);
// Returns the latest of the times; -inf for a null `time`.
double check_times(const double* time, size_t count, const char* what, const Holders& of);
// `x` has `width` floats per row.
void check_rows(const float* x, size_t width, size_t count, size_t expected, const char* what, const Holders& of);

}  // namespace livegnn
