// Runs the blocks of a loop on several threads.
//
// Work is divided into blocks whose size does not depend on the number of threads, and one thread runs each block from
// beginning to end. So a result depends on the block alone, not on the thread or the time, and results are
// reproducible.
//
// Thread safety: any number of threads may call `run` at once; a thread that finds the team busy runs its blocks alone,
// in lane 0, and so does a forked process, which inherits no threads. Blocks of one run execute concurrently and must
// not write to the same memory. Blocks may need the interpreter's lock, so the caller of `run` must not hold it
// (waiting.h).
#pragma once

#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <type_traits>
#include <vector>

#include "threads/waiting.h"

namespace livegnn {

// The system could not start a thread: a limit of the user or of a container, or no memory for its stack.
class ThreadError : public std::system_error {
 public:
  using std::system_error::system_error;
};

class ThreadPool {
 public:
  // Throws ThreadError if the system does not start this many threads; those that it did start have ended then.
  explicit ThreadPool(size_t threads) : team_(std::make_unique<Team>()), process_(getpid()) {
    take_own_memory();
    try {
      team_->workers.reserve(threads);
      for (size_t i = 1; i < threads; ++i) team_->workers.emplace_back([this, i] { work(i); });
    } catch (const std::system_error& error) {
      const std::string started = std::to_string(team_->workers.size() + 1);
      end();
      throw ThreadError(error.code(),
                        "expected to work with " + std::to_string(threads) + " threads, got " + started +
                            " (ask for fewer with threads=, or raise the limit of the user or the container)");
    } catch (...) {
      end();
      throw;
    }
  }
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;
  ~ThreadPool() {
    if (getpid() != process_) {
      // A forked process (for loading training data, or for a checkpoint) only has the thread that forked. There are no
      // threads to join, and the condition variable, which counts its waiters, cannot be destroyed.
      [[maybe_unused]] Team* left = team_.release();
      return;
    }
    end();
  }

  size_t threads() const { return team_->workers.size() + 1; }

  // Calls `body(block)` or `body(block, lane)` for every block in [0, blocks); lane is below threads(), and differs
  // between blocks that run at the same time. Rethrows the first exception of a block. `nanoseconds` is the approximate
  // cost of the whole loop on one thread: short work runs on the calling thread, because waking another takes longer.
  template <class Body>
  void run(size_t blocks, double nanoseconds, const Body& body) {
    if (team_->workers.empty() || blocks < 2 || nanoseconds < kWorthWaking || getpid() != process_ ||
        busy_.exchange(true)) {
      for (size_t i = 0; i < blocks; ++i) call(body, i, 0);
      return;
    }
    const Free free{&busy_};
    about_to_wait();
    Job job{&body,  [](const void* b, size_t i, size_t lane) { call(*static_cast<const Body*>(b), i, lane); },
            blocks, {},
            {},     {}};
    {
      std::lock_guard lock(team_->mutex);
      job_ = &job;
      running_.store(team_->workers.size(), std::memory_order_relaxed);
      generation_.fetch_add(1, std::memory_order_release);
    }
    if (sleeping_.load() > 0) team_->wake.notify_all();
    take(job, 0);
    for (int spin = 0; running_.load(std::memory_order_acquire) != 0; ++spin) {
      if (spin < kSpins) {
        pause();
      } else {
        std::this_thread::yield();
      }
    }
    if (job.error) std::rethrow_exception(job.error);
  }

 private:
  struct Job {
    const void* body;
    void (*call)(const void*, size_t, size_t);
    size_t blocks;
    std::atomic<size_t> next;
    std::atomic<bool> failed;
    std::exception_ptr error;
  };

  struct Team {
    std::vector<std::thread> workers;
    std::mutex mutex;
    std::condition_variable wake;
  };

  struct Free {
    std::atomic<bool>* busy;
    ~Free() { *busy = false; }
  };

  static constexpr double kWorthWaking = 60'000;
  // About twenty microseconds: longer than the gap between two steps of one batch, shorter than that between two
  // batches.
  static constexpr int kSpins = 2000;

  void end() {
    {
      std::lock_guard lock(team_->mutex);
      stopping_ = true;
      generation_.fetch_add(1, std::memory_order_release);
    }
    team_->wake.notify_all();
    for (auto& worker : team_->workers) worker.join();
  }

  static void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#else
    std::this_thread::yield();
#endif
  }

  template <class Body>
  static void call(const Body& body, size_t block, size_t lane) {
    if constexpr (std::is_invocable_v<const Body&, size_t, size_t>) {
      body(block, lane);
    } else {
      body(block);
    }
  }

  static void take(Job& job, size_t lane) {
    for (size_t i = job.next.fetch_add(1); i < job.blocks; i = job.next.fetch_add(1)) {
      try {
        job.call(job.body, i, lane);
      } catch (...) {
        if (!job.failed.exchange(true)) job.error = std::current_exception();
        job.next.store(job.blocks);
      }
    }
  }

  // The system allocates thread-local variables when a thread first accesses one, and ends the process if there is no
  // memory for them. So access one when a pool is made, not in the middle of a batch.
  static void take_own_memory() {
    [[maybe_unused]] static thread_local volatile char any = 0;
    any = 1;
  }

  void work(size_t lane) {
    take_own_memory();
    size_t seen = 0;
    while (true) {
      for (int spin = 0; spin < kSpins && generation_.load(std::memory_order_acquire) == seen; ++spin) pause();
      Job* job = nullptr;
      {
        std::unique_lock lock(team_->mutex);
        ++sleeping_;
        team_->wake.wait(lock, [&] { return generation_.load(std::memory_order_relaxed) != seen; });
        --sleeping_;
        seen = generation_.load(std::memory_order_relaxed);
        if (stopping_) return;
        job = job_;
      }
      take(*job, lane);
      running_.fetch_sub(1, std::memory_order_release);
    }
  }

  std::unique_ptr<Team> team_;
  pid_t process_;
  std::atomic<size_t> generation_{0}, running_{0}, sleeping_{0};
  std::atomic<bool> busy_{false};  // the team is running the blocks of some thread
  Job* job_ = nullptr;
  bool stopping_ = false;
};

}  // namespace livegnn
