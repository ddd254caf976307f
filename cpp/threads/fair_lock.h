// A lock for many readers and a writer who must not starve.
//
// A writer who waits keeps new readers out, so it waits only for those who read already. `std::shared_mutex` makes no
// such promise, and a few samplers that overlap would keep a commit waiting for ever.
//
// Thread safety: all of it. A reader must not take the lock again while it holds it: a writer may have come between.
#pragma once

#include <mutex>
#include <shared_mutex>

namespace livegnn {

class FairLock {
 public:
  void lock() {
    std::lock_guard waiting(gate_);
    readers_.lock();
  }
  void unlock() { readers_.unlock(); }

  void lock_shared() {
    std::lock_guard waiting(gate_);
    readers_.lock_shared();
  }
  // Never waits. It may fail because another reader is just coming in.
  bool try_lock_shared() {
    if (!gate_.try_lock()) return false;
    const bool locked = readers_.try_lock_shared();
    gate_.unlock();
    return locked;
  }
  void unlock_shared() { readers_.unlock_shared(); }

 private:
  std::mutex gate_;  // held by a writer who waits for readers to leave
  std::shared_mutex readers_;
};

}  // namespace livegnn
