// The interface of everything that computes the values of a program: the engine on the CPU, or another back end.
//
//   initialize ─► { begin ─► prepare_depth 0 .. n-1 ─► finish ─► reserve ─► commit ─► release }, batch by batch
//
// A depth is the part of a program between two exchanges of rows along edges. Depth 0 is everything before the first
// propagation; every other depth is a propagation and the row steps that follow it. Between two depths, the rows that
// the next propagation reads are complete. Workers that hold parts of a graph exchange rows there, and only there
// (schedule.h).
//
// Rules for every back end, because predictions are bitwise reproducible:
//   - Each row has one owner, which computes it from beginning to end: a thread, a block of threads, or a worker.
//   - Each sum is taken in one order, which depends only on the graph and the batch: not on threads, on time, or on
//     earlier queries.
//   - A prepared batch is invisible to readers. `commit` allocates no memory and cannot fail.
//
// Thread safety: one thread calls `begin`, `prepare_depth` and `finish` for a given `Prepared`. Several batches may be
// prepared at once, each by its own thread, as long as nothing is committed meanwhile. Only the one writer calls the
// other functions; `commit` runs while it holds the graph's lock exclusively, and readers of rows share that lock.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "inference/rows/effects.h"
#include "program/program.h"
#include "store/graph.h"
#include "views/arrays.h"

namespace livegnn {

// What a batch changes, and the memory needed to prepare it. Reused from batch to batch to keep that memory.
class Prepared : public Effects {
 public:
  Prepared() = default;
  Prepared(const Prepared&) = delete;
  Prepared& operator=(const Prepared&) = delete;
  virtual ~Prepared() = default;

  bool trusted = false;  // set by the caller that prepares: do not refuse the batch if values become non-finite
  bool marked = false;   // nothing was computed; a lazy engine has only marked what is stale

  // After the commit, gives back memory that is much larger than other batches need, except `changed` and what is
  // counted. Returns the number of bytes given back.
  virtual size_t settle() = 0;
  size_t held() const { return held_; }  // bytes, after the last `settle`; any thread may call it

 protected:
  std::atomic<size_t> held_{0};
};

class Backend {
 public:
  Backend() = default;
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;
  virtual ~Backend() = default;

  virtual const Program& program() const = 0;

  // Computes every value from the current graph.
  virtual void initialize() = 0;

  virtual std::unique_ptr<Prepared> new_prepared() const = 0;
  virtual size_t depths() const = 0;
  // Requires: `prepared` belongs to this back end. The delta must outlive everything that is prepared with it.
  virtual void begin(const Delta& delta, Prepared* prepared) = 0;
  // Requires: `begin` and all earlier depths are done. If it throws, nothing has changed, and `begin` must be called
  // next.
  virtual void prepare_depth(size_t depth, Prepared* prepared) = 0;
  // Returns true if the back end finds that the units of its rounding bounds were too large for the result of the
  // batch. Then all depths must be prepared again, from the first one on.
  virtual bool finish(Prepared* prepared) = 0;

  // Before the commit: allocates all memory and disk space that it needs. If it throws, nothing has changed.
  virtual void reserve(const Delta& delta, const Prepared& prepared) = 0;
  // The caller must hold the graph's lock exclusively. The work is proportional to what was prepared, and needs no
  // memory.
  virtual void commit(const Delta& delta, const Prepared& prepared) noexcept = 0;
  // After `commit`, once the lock is released: frees replaced memory. Without a commit: frees what was reserved.
  virtual void release() noexcept = 0;

  // The rows of a value, one after the other without padding, for existing nodes, as of the last commit.
  virtual void read_rows(uint32_t value, std::span<const uint32_t> nodes, float* out) const = 0;
  // The same as they would be after a prepared batch that is not committed.
  virtual void read_rows(const Prepared& prepared, uint32_t value, std::span<const uint32_t> nodes,
                         float* out) const = 0;

  // Saves and loads all that the back end keeps, as named arrays. `load` throws std::runtime_error if the arrays do not
  // fit the graph, the program or each other; then the back end must be initialized or loaded again.
  virtual void save(Arrays* to) const = 0;
  virtual void load(const ArrayViews& from) = 0;
};

}  // namespace livegnn
