// Something that is derived from a graph and kept fresh with every batch, such as the rows of an engine.
//
//   store prepares ─► view.prepare(change) ─► graph's lock, alone: graph.commit, view.commit ─► view.settle
//                         (may throw)    └──► view.abandon, where the batch came to nothing
//
// Invariants: between `prepare` and `commit` or `abandon` nobody can see what was prepared. `commit` takes no memory
// and cannot fail: whatever grows has grown aside in `prepare`. Thread safety: one writer calls `prepare`, `abandon`,
// `settle`, `save` and `load`; `commit` runs under the graph's lock taken alone. Readers share that lock, so they see
// graph and views before a batch or after it.
#pragma once

#include <cstddef>

#include "views/arrays.h"
#include "views/change.h"

namespace livegnn {

class View {
 public:
  View() = default;
  View(const View&) = delete;
  View& operator=(const View&) = delete;
  virtual ~View() = default;

  // Computes aside what the batch makes of the view. If it throws, nothing has happened, and `abandon` comes next.
  virtual void prepare(const Change& change) = 0;
  virtual void commit() noexcept = 0;
  // Instead of `commit`, and before a `prepare` that follows another; does nothing if nothing is prepared.
  virtual void abandon() noexcept = 0;
  // After `commit`, when the lock has been let go: frees what was replaced. Returns how many bytes it has given back
  // that were kept to work in.
  virtual size_t settle() noexcept { return 0; }

  // All that the view is, and the same view again; `load` throws std::runtime_error where the arrays do not fit the
  // graph or each other.
  virtual void save(Arrays* to) const = 0;
  virtual void load(const ArrayViews& from) = 0;
  // Of memory.
  virtual size_t bytes() const = 0;
};

}  // namespace livegnn
