// A structure derived from a graph and kept up to date with every batch, such as the rows of an engine.
//
//   store prepares ─► view.prepare(change) ─► graph's lock, alone: graph.commit, view.commit ─► view.settle
//                         (may throw)    └──► view.abandon, if the batch is given up
//
// Invariants: between `prepare` and `commit` or `abandon`, no reader can see what was prepared. `commit` allocates no
// memory and cannot fail, because `prepare` has already allocated everything that grows. Thread safety: one writer
// calls `prepare`, `abandon`, `settle`, `save` and `load`; `commit` runs while the writer holds the graph's lock
// exclusively. Readers share that lock, so they see graph and views either before a batch or after it.
#pragma once

#include <cstddef>
#include <stdexcept>

#include "views/arrays.h"
#include "views/change.h"

namespace livegnn {

class View {
 public:
  View() = default;
  View(const View&) = delete;
  View& operator=(const View&) = delete;
  virtual ~View() = default;

  // Computes the new state of the view, separately from the current one. If it throws, nothing has changed, and the
  // caller must call `abandon` next.
  virtual void prepare(const Change& change) = 0;
  virtual void commit() noexcept = 0;
  // Called instead of `commit`, and before a second `prepare` in a row; does nothing if nothing is prepared.
  virtual void abandon() noexcept = 0;
  // Called after `commit`, once the lock is released: frees replaced memory. Returns how many bytes of working memory
  // it has given back.
  virtual size_t settle() noexcept { return 0; }

  // The graph gets types and columns (`GraphGrowth`). `prepare_growth` makes room, while readers wait; it may be called
  // again, without `commit_growth`, which follows the commit of the graph and cannot fail. Throws std::invalid_argument
  // if the view cannot go on with such a graph.
  virtual void prepare_growth(const GraphGrowth&) { throw std::invalid_argument("the view cannot follow a growth"); }
  virtual void commit_growth() noexcept {}

  // `save` writes the complete state of the view, and `load` restores it. `load` throws std::runtime_error if the
  // arrays do not fit the graph or each other.
  virtual void save(Arrays* to) const = 0;
  virtual void load(const ArrayViews& from) = 0;
  // Memory that the view takes, in bytes.
  virtual size_t bytes() const = 0;
};

}  // namespace livegnn
