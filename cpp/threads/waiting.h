// Locks that are held for long, and what must hold before a thread waits for one.
//
// Whoever holds such a lock may need the interpreter's (a function of the user's asks for it). So nobody waits for one
// while holding that: the bindings let go of it first (bindings/locks.h). The tests set `before_waiting` to a check of
// this, which then runs at every acquisition, not only where two threads happen to meet.
//
// Thread safety: all of it.
#pragma once

#include <atomic>

namespace livegnn {

inline std::atomic<void (*)()> before_waiting{nullptr};

inline void about_to_wait() {
  if (auto* check = before_waiting.load(std::memory_order_relaxed)) check();
}

// A mutex that says so before it waits.
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
