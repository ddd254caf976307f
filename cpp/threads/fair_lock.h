// A readers-writer lock that does not starve writers.
//
// A waiting writer keeps new readers out, so it waits only for current readers. `std::shared_mutex` does not guarantee
// that, and a few overlapping samplers could block a commit for ever.
//
// Thread safety: any thread may call it. A reader must not take the lock again while it holds it, because a writer may
// be waiting in between.
#pragma once

#include <memory>
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
  // Never waits. It may fail because another reader is just entering.
  bool try_lock_shared() {
    if (!gate_.try_lock()) return false;
    const bool locked = readers_.try_lock_shared();
    gate_.unlock();
    return locked;
  }
  void unlock_shared() { readers_.unlock_shared(); }

  // Makes the lock free, in a forked process, where the threads that had it or waited for it do not exist. The thread
  // that forks must have it: a process that is forked while another changes the lock gets half of that change.
  void renew() {
    std::construct_at(&gate_);
    std::construct_at(&readers_);
  }

 private:
  std::mutex gate_;  // held by a writer that waits for readers to leave
  std::shared_mutex readers_;
};

}  // namespace livegnn
