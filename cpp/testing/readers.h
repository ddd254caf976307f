// For the tests: threads that read while the test writes. A failed check ends a test only in the thread that runs it,
// so `finish` throws again what a reader failed on.
#pragma once

#include <atomic>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "testing/testing.h"

namespace livegnn::testing {

// Threads that do the same over and over until they are told to finish, or a check fails.
class Readers {
 public:
  template <class Body>
  Readers(size_t count, const Body& body) {
    for (size_t i = 0; i < count; ++i) {
      threads_.emplace_back([this, body] {
        Random random;
        try {
          while (!stop_.load(std::memory_order_relaxed)) {
            body(&random);
            rounds_.fetch_add(1, std::memory_order_relaxed);
          }
        } catch (const Failure& error) {
          std::lock_guard lock(mutex_);
          failure_ = error.what;
          failed_.store(true, std::memory_order_relaxed);
        }
      });
    }
  }
  ~Readers() { join(); }

  bool failed() const { return failed_.load(std::memory_order_relaxed); }
  // Waits until so many rounds more have been read, which there are as long as no reader has failed.
  void wait_for(size_t rounds) const {
    const size_t until = rounds_.load(std::memory_order_relaxed) + rounds;
    while (!failed() && rounds_.load(std::memory_order_relaxed) < until) std::this_thread::yield();
  }
  void finish() {
    join();
    if (!failure_.empty()) throw Failure{failure_};
  }

 private:
  void join() {
    stop_.store(true, std::memory_order_relaxed);
    for (auto& thread : threads_) thread.join();
    threads_.clear();
  }

  std::atomic<bool> stop_{false}, failed_{false};
  std::atomic<size_t> rounds_{0};
  std::mutex mutex_;
  std::string failure_;
  std::vector<std::thread> threads_;
};

}  // namespace livegnn::testing
