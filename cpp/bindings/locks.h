// How the bindings take the graph's lock; there is no other way.
//
// Nobody waits for it while holding the interpreter's lock, the GIL: who has the graph's lock may need the GIL (a
// function of the user's does), and whoever needs the GIL would wait as long as this one does. So a read tries once,
// and if that fails, or if it may take long, lets go of the GIL before it waits, and takes it again when it has let go
// of the graph. What runs under the lock therefore touches no object of Python's: arrays for results are made before
// it, or after it from vectors.
//
// A read sees one moment of the graph. Indices are given out again, so one that was found in an earlier read may be
// another node's by now: ids are turned into indices, and indices into ids, in the read that uses them.
#pragma once

#include <nanobind/nanobind.h>

#include <mutex>
#include <optional>
#include <shared_mutex>
#include <stdexcept>
#include <type_traits>

#include "store/graph.h"
#include "threads/waiting.h"

namespace livegnn::bindings {

namespace nb = nanobind;

// The most rows, ids or edges that a read goes through without letting go of the GIL: some tens of microseconds, less
// than another thread would keep the GIL for once it has it.
inline constexpr size_t kQuick = 512;

// A function of the user's runs in this thread, on behalf of a computation that may hold any lock.
inline thread_local bool in_function = false;
// For tests: every read waits as if it had found the lock taken.
inline bool always_wait = false;

class InFunction {
 public:
  InFunction() : before_(in_function) { in_function = true; }
  ~InFunction() { in_function = before_; }
  InFunction(const InFunction&) = delete;

 private:
  bool before_;
};

inline void refuse_in_function() {
  if (in_function) {
    throw std::runtime_error(
        "a function of a model must compute from its arguments alone, got one that reads or changes a graph or an "
        "engine, which wait for it: give it what it needs beforehand");
  }
}

// What `body` returns, which is run while nobody commits. `size` says, under the lock, how much there is to do.
template <class Size, class Body>
auto read(const Graph& graph, const Size& size, const Body& body) {
  refuse_in_function();
  if (!always_wait && graph.lock.try_lock_shared()) {
    std::shared_lock shared(graph.lock, std::adopt_lock);
    size_t count;
    if constexpr (std::is_invocable_v<Size>) {
      count = size();
    } else {
      count = size;
    }
    if (count <= kQuick) return body();
  }
  nb::gil_scoped_release release;
  std::shared_lock shared(graph.lock);
  return body();
}

// The same, unless it would have to wait: then false, and `body` has not run.
template <class Body>
bool try_read(const Graph& graph, const Body& body) {
  refuse_in_function();
  if (always_wait || !graph.lock.try_lock_shared()) return false;
  std::shared_lock shared(graph.lock, std::adopt_lock);
  return body();
}

// Runs `body` while nobody reads, and then `after` beside readers.
template <class Body, class After>
void alone(Graph& graph, const Body& body, const After& after) {
  refuse_in_function();
  nb::gil_scoped_release release;
  {
    std::unique_lock lock(graph.lock);
    body();
  }
  after();
}

// Runs `body`, which takes no lock of the graph's, and lets go of the GIL for it if it is much to do.
template <class Body>
void run(bool much, const Body& body) {
  std::optional<nb::gil_scoped_release> release;
  if (much) release.emplace();
  body();
}

// What the one writer does beside readers: without a lock of the graph's, since nobody else commits, and without the
// GIL, since it takes long and functions of the user's run on other threads.
template <class Body>
auto as_writer(const Body& body) {
  refuse_in_function();
  nb::gil_scoped_release release;
  return body();
}

// The same of work that is over at once when there is little of it: then the GIL is kept.
template <class Body>
auto as_writer(size_t size, const Body& body) {
  if (size > kQuick) return as_writer(body);
  refuse_in_function();
  return body();
}

}  // namespace livegnn::bindings
