// What a batch changes in every value of an engine, and the data needed while it is prepared.
//
// Thread safety: one thread prepares.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "inference/backend.h"
#include "inference/lazy/lazy_marks.h"
#include "inference/propagation/prepared_batch.h"
#include "memory/recent_needs.h"

namespace livegnn {

// The nodes whose rows of an output a prepared batch changes, including added ones; some may be listed twice. If the
// output is computed on demand, also nodes of which only a row that it reads is changed. Requires: the batch was
// computed, not only marked.
std::vector<uint32_t> rows_changed(const Program& program, const BatchChanges& changes, size_t output);

struct Preparation final : Prepared {
  PreparedBatch batch{this};
  LazyMarks marks;           // if a lazy engine has only marked the batch
  size_t steps = 0;          // number of computed steps in the program's order
  bool output_done = false;  // for a prediction that is not kept

  size_t need() const;  // what the batch touched: rows, messages and edges
  size_t settle() override;

 private:
  size_t bytes() const;  // current size

  RecentNeeds needs_{size_t{1} << 12};  // in the units of `need`
};

}  // namespace livegnn
