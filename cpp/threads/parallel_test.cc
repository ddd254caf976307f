#include "threads/parallel.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <numeric>

#include "testing/testing.h"

namespace livegnn::parallel_test {
namespace {

constexpr double kMuchWork = 1e9;  // worth waking everybody for

}  // namespace

TEST(thread_pool_runs_every_block_once) {
  for (size_t threads : {1u, 2u, 3u, 5u}) {
    ThreadPool pool(threads);
    CHECK_EQ(pool.threads(), threads);
    for (size_t blocks : {0u, 1u, 2u, 3u, 7u, 64u, 1000u}) {
      for (double nanoseconds : {0.0, kMuchWork}) {
        // Without atomics: the end of `run` is what makes them visible.
        std::vector<int> runs(blocks);
        pool.run(blocks, nanoseconds, [&](size_t block) { ++runs[block]; });
        CHECK(std::all_of(runs.begin(), runs.end(), [](int n) { return n == 1; }));
      }
    }
  }
}

TEST(thread_pool_does_little_work_where_it_is) {
  ThreadPool pool(3);
  std::vector<std::thread::id> runners(100);
  pool.run(runners.size(), 100, [&](size_t block) { runners[block] = std::this_thread::get_id(); });
  for (auto runner : runners) CHECK(runner == std::this_thread::get_id());
}

TEST(thread_pool_uses_its_workers) {
  ThreadPool pool(3);
  // Each block waits for the others: this ends only if three threads are at it.
  std::atomic<int> arrived{0};
  pool.run(3, kMuchWork, [&](size_t) {
    ++arrived;
    while (arrived.load() < 3) std::this_thread::yield();
  });
  CHECK_EQ(arrived.load(), 3);
}

TEST(thread_pool_runs_many_small_jobs) {
  for (size_t threads : {2u, 3u}) {
    ThreadPool pool(threads);
    std::vector<size_t> sums(8);
    constexpr size_t kJobs = 3000;
    // What a job writes is what the next one reads.
    for (size_t job = 0; job < kJobs; ++job) {
      pool.run(sums.size(), kMuchWork, [&](size_t block) { sums[block] += block + job; });
    }
    for (size_t block = 0; block < sums.size(); ++block) {
      CHECK_EQ(sums[block], kJobs * block + kJobs * (kJobs - 1) / 2);
    }
  }
}

TEST(thread_pool_throws_what_a_block_throws) {
  for (size_t threads : {1u, 3u}) {
    ThreadPool pool(threads);
    for (size_t blocks : {1u, 2u, 100u}) {
      for (size_t bad = 0; bad < blocks; bad += 33) {
        auto run = [&] {
          pool.run(blocks, kMuchWork, [&](size_t block) {
            if (block == bad) throw std::runtime_error("block " + std::to_string(block));
          });
        };
        CHECK_THROWS(run(), std::runtime_error, "block " + std::to_string(bad));
        // The pool is as good as before.
        std::vector<int> runs(blocks);
        pool.run(blocks, kMuchWork, [&](size_t block) { ++runs[block]; });
        CHECK_EQ(std::accumulate(runs.begin(), runs.end(), size_t{0}), blocks);
      }
    }
    auto run = [&] { pool.run(50, kMuchWork, [](size_t block) { throw block; }); };
    bool thrown = false;
    try {
      run();
    } catch (size_t block) {
      thrown = block < 50;
    }
    CHECK(thrown);
  }
}

TEST(thread_pools_come_and_go) {
  for (int i = 0; i < 50; ++i) {
    ThreadPool idle(3), busy(2);
    std::atomic<size_t> done{0};
    busy.run(4, kMuchWork, [&](size_t) { ++done; });
    CHECK_EQ(done.load(), 4u);
  }
}

TEST(thread_pool_runs_its_blocks_alone_in_a_forked_process) {
  ThreadPool pool(3);
  pool.run(4, kMuchWork, [](size_t) {});
  const pid_t child = fork();
  if (child == 0) {
    alarm(300);  // for a child that waits for threads which it does not have
    std::vector<size_t> lanes(100, 1);
    pool.run(lanes.size(), kMuchWork, [&](size_t block, size_t lane) { lanes[block] = lane; });
    _exit(std::accumulate(lanes.begin(), lanes.end(), size_t{7}));
  }
  int status = 0;
  CHECK_EQ(waitpid(child, &status, 0), child);
  CHECK(WIFEXITED(status));
  CHECK_EQ(WEXITSTATUS(status), 7);
}

#ifdef __GLIBC__
TEST(thread_pool_that_cannot_start_its_threads_says_so) {
  // Stacks of 64 TiB, of which no more than three have a place on any processor.
  pthread_attr_t before, huge;
  CHECK_EQ(pthread_getattr_default_np(&before), 0);
  CHECK_EQ(pthread_attr_init(&huge), 0);
  CHECK_EQ(pthread_attr_setstacksize(&huge, size_t{1} << 46), 0);
  CHECK_EQ(pthread_setattr_default_np(&huge), 0);
  CHECK_THROWS(ThreadPool(8), ThreadError, "expected to work with 8 threads, got ");
  CHECK_EQ(pthread_setattr_default_np(&before), 0);
  ThreadPool pool(4);
  CHECK_EQ(pool.threads(), 4u);
}
#endif

}  // namespace livegnn::parallel_test
