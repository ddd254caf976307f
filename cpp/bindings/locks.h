// How the bindings take the graph's lock, and those of objects that stand beside it (caches, sampling workers); they
// must not take them in any other way.
//
// No thread waits for one while holding the interpreter's lock, the GIL. The owner of the graph's lock may need the GIL
// (a function of the user does), and all threads that need the GIL would also wait. So a read tries once; if that
// fails, or if the read may take long, it releases the GIL before it waits, and takes it again after it has released
// the graph's lock. Code that runs under the lock therefore touches no Python object: arrays for results are made
// before it, or after it from vectors.
//
// A read sees one state of the graph. Indices are reused, so an index from an earlier read may belong to another node
// by now: ids are converted to indices, and indices to ids, in the read that uses them.
#pragma once

#include <nanobind/nanobind.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <stdexcept>
#include <type_traits>

#include "bindings/gil.h"
#include "store/graph.h"
#include "threads/waiting.h"

namespace livegnn::bindings {

namespace nb = nanobind;

// The most rows, ids or edges that a read processes without releasing the GIL: some tens of microseconds, less than
// another thread would hold the GIL for.
inline constexpr size_t kQuick = 512;

// A function of the user runs in this thread, called by a computation that may hold any lock.
inline thread_local bool in_function = false;
// For tests: every read behaves as if it had found the lock taken.
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

// Runs `body` while nobody has the lock exclusively, and returns its result. `size`: the amount of work, or returns it
// under the lock.
template <class Lock, class Size, class Body>
auto read_under(Lock& lock, const Size& size, const Body& body) {
  refuse_in_function();
  if (!always_wait && lock.try_lock_shared()) {
    std::shared_lock shared(lock, std::adopt_lock);
    size_t count;
    if constexpr (std::is_invocable_v<Size>) {
      count = size();
    } else {
      count = size;
    }
    if (count <= kQuick) return body();
  }
  WithoutGil release;
  std::shared_lock shared(lock);
  return body();
}

// Runs `body(first, end)` for ranges of `count` things, `at_once` in each, while nobody has the lock exclusively;
// between two of them others may have it. Returns at the first that returns false. `size`: the amount of work of all of
// it.
template <class Lock, class Body>
void read_in_turns(Lock& lock, size_t size, size_t count, size_t at_once, const Body& body) {
  if (count <= at_once) return (void)read_under(lock, size, [&] { return body(size_t{0}, count); });
  refuse_in_function();
  WithoutGil release;  // once: whoever waits for the GIL between two turns waits long
  for (size_t first = 0; first < count; first += at_once) {
    std::shared_lock shared(lock);
    if (!body(first, std::min(count, first + at_once))) return;
  }
}

// Runs `body` while no commit can happen.
template <class Size, class Body>
auto read(const Graph& graph, const Size& size, const Body& body) {
  return read_under(graph.lock, size, body);
}

// Runs `body` while nobody else has the lock, and returns its result. The GIL is kept if nobody has to be waited for
// and there is little work, `size` as of rows.
template <class Lock, class Body>
auto write_under(Lock& lock, size_t size, const Body& body) {
  refuse_in_function();
  if constexpr (requires { lock.try_lock(); }) {
    if (size <= kQuick && !always_wait && lock.try_lock()) {
      std::unique_lock alone(lock, std::adopt_lock);
      return body();
    }
  }
  WithoutGil release;
  std::unique_lock alone(lock);
  return body();
}

// The same as `read`, unless it would have to wait: then it returns false without running `body`.
template <class Body>
bool try_read(const Graph& graph, const Body& body) {
  refuse_in_function();
  if (always_wait || !graph.lock.try_lock_shared()) return false;
  std::shared_lock shared(graph.lock, std::adopt_lock);
  return body();
}

// Runs `body` while there are no readers, and then `after` concurrently with readers.
template <class Body, class After>
void alone(Graph& graph, const Body& body, const After& after) {
  refuse_in_function();
  WithoutGil release;
  {
    std::unique_lock lock(graph.lock);
    body();
  }
  after();
}

// Runs `fork`, which returns 0 in a child, while there are no readers of the graph or of its texts, and with the GIL.
// In the child the locks are free: threads that waited for them do not exist there. The texts' lock comes after the
// GIL, because threads wait for it while they hold that.
template <class Fork>
auto fork_alone(Graph& graph, const Fork& fork) {
  refuse_in_function();
  WithoutGil release;
  std::unique_lock lock(graph.lock);
  WithGil acquire;
  std::unique_lock<FairLock> texts;
  if (graph.texts) texts = std::unique_lock(graph.texts->lock());
  const auto child = fork();
  if (child == 0) {
    if (graph.texts) texts.release()->renew();
    lock.release()->renew();
  }
  return child;
}

// Runs `body`, which takes no lock of the graph, and releases the GIL meanwhile if it is much work.
template <class Body>
void run(bool much, const Body& body) {
  std::optional<WithoutGil> release;
  if (much) release.emplace();
  body();
}

// Runs work of the one writer concurrently with readers: without a lock of the graph, because no other thread commits,
// and without the GIL, because it takes long and functions of the user run on other threads.
template <class Body>
auto as_writer(const Body& body) {
  refuse_in_function();
  WithoutGil release;
  return body();
}

// The same for work that is short if there is little of it: then the GIL is kept.
template <class Body>
auto as_writer(size_t size, const Body& body) {
  if (size > kQuick) return as_writer(body);
  refuse_in_function();
  return body();
}

}  // namespace livegnn::bindings
