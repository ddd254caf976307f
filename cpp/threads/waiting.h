// Locks that are held for a long time, and the condition for waiting for one.
//
// A thread that holds such a lock may need the interpreter's lock (a function of the user requires it). So no thread
// may wait for such a lock while holding the interpreter's: the bindings release it first (bindings/locks.h). The tests
// set `before_waiting` to a check of this rule, which then runs at every acquisition, not only when two threads happen
// to collide.
//
// Thread safety: any thread may call it.
#pragma once

#include <atomic>

namespace livegnn {

inline std::atomic<void (*)()> before_waiting{nullptr};

inline void about_to_wait() {
  if (auto* check = before_waiting.load(std::memory_order_relaxed)) check();
}

// A mutex that calls `before_waiting` before it waits.
template <class Mutex>
class Checked : public Mutex {
 public:
  void lock() {
    about_to_wait();
    Mutex::lock();
  }
  void lock_shared() {
    about_to_wait();
    Mutex::lock_shared();
  }
};

}  // namespace livegnn
