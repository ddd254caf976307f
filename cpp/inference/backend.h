// Who computes the values of a program: the engine on the CPU, or another back end behind the same calls.
//
//   initialize ─► { begin ─► prepare_depth 0 .. n-1 ─► finish ─► reserve ─► commit ─► release }, batch by batch
//
// A depth is what lies between two exchanges of rows along edges. Depth 0 is all that comes before the first
// propagation; every other depth is a propagation and the steps on rows that follow it. What the next propagation reads
// is complete between two depths: there, and nowhere else, workers that hold parts of a graph exchange rows
// (schedule.h).
//
// Rules for every back end, since predictions are reproducible to the bit:
//   - Each row has one owner, who computes it from beginning to end: a thread, a block of threads, or a worker.
//   - Each sum is taken in one order, which depends on the graph and the batch alone: not on threads, on time, or on
//     what was asked for before.
//   - A batch that is prepared can be seen by nobody. `commit` takes no memory and cannot fail.
//
// Thread safety: `begin`, `prepare_depth` and `finish` of one `Prepared` come from one thread; several are prepared at
// once, each by a thread of its own, while nothing is committed. All else is the one writer's: `commit` runs under the
// graph's lock taken alone, and readers of rows share that lock.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "program/program.h"
#include "store/graph.h"
#include "views/arrays.h"

namespace livegnn {

// What a batch does, and all that is needed to do it. Reused from batch to batch, so that its memory is.
class Prepared {
 public:
  Prepared() = default;
  Prepared(const Prepared&) = delete;
  Prepared& operator=(const Prepared&) = delete;
  virtual ~Prepared() = default;

  bool trusted = false;  // set by who prepares: the batch is not refused for what comes of it

  std::vector<uint32_t> changed;  // nodes whose prediction is another, added ones among them
  size_t affected = 0;            // nodes whose prediction was computed again
  size_t edges_touched = 0;       // messages added or taken back, and neighbours of recomputed rows
  size_t nodes_touched = 0;       // rows of aggregates and of what they read, old ones and new ones
  size_t recomputed = 0;          // aggregates computed from all their neighbours
  bool marked = false;            // nothing was computed, a lazy engine has only marked what is stale
  // A node that has a row which was finite and would not be, kNoIndex if there is none: the first one of the first step
  // that has any. What comes after that step has not been computed: such a batch must not be committed.
  uint32_t lost = kNoIndex, lost_type = 0;

  // Once it is committed: what was much larger than other batches need is given back, all but `changed` and what is
  // counted. Returns how many bytes that was.
  virtual size_t settle() = 0;
  size_t held() const { return held_; }  // bytes, after the last `settle`; from any thread

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

  // Computes every value from the graph as it is.
  virtual void initialize() = 0;

  virtual std::unique_ptr<Prepared> new_prepared() const = 0;
  virtual size_t depths() const = 0;
  // Requires: `prepared` is one of this back end's. The delta must outlive what is prepared with it.
  virtual void begin(const Delta& delta, Prepared* prepared) = 0;
  // Requires: `begin`, and all depths before this one. If it throws, `begin` comes next, and nothing has happened.
  virtual void prepare_depth(size_t depth, Prepared* prepared) = 0;
  // True: the back end has seen that its bounds on rounding were in units too large for what comes of the batch. All
  // depths are to be prepared once more, from the first one on.
  virtual bool finish(Prepared* prepared) = 0;

  // Before the commit: all that takes memory or space on a disk, aside. If it throws, nothing has happened.
  virtual void reserve(const Delta& delta, const Prepared& prepared) = 0;
  // Under the graph's lock, alone. The work is proportional to what was prepared, and needs no memory.
  virtual void commit(const Delta& delta, const Prepared& prepared) noexcept = 0;
  // After `commit`, when the lock has been let go, frees what was replaced; instead of it, what was reserved.
  virtual void release() noexcept = 0;

  // Rows of a value, as wide as it is, one after the other: of nodes that exist, as of the last commit.
  virtual void read_rows(uint32_t value, std::span<const uint32_t> nodes, float* out) const = 0;
  // Where a batch is prepared that has not been committed, as they would be.
  virtual void read_rows(const Prepared& prepared, uint32_t value, std::span<const uint32_t> nodes,
                         float* out) const = 0;

  // All that it keeps, by name. `load` throws std::runtime_error where arrays do not fit the graph, the program or each
  // other; then it must be initialized, or loaded again.
  virtual void save(Arrays* to) const = 0;
  virtual void load(const ArrayViews& from) = 0;
};

}  // namespace livegnn
