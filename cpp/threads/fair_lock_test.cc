#include "threads/fair_lock.h"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <shared_mutex>
#include <thread>

#include "testing/readers.h"
#include "testing/testing.h"
#include "threads/waiting.h"

namespace livegnn::fair_lock_test {

using testing::Random;
using testing::Readers;

// Each reader keeps the lock until another has it too, or until a good while has gone by because none can come in any
// more. A lock that lets readers pass a waiting writer never lets this writer in, and the test never ends.
TEST(readers_who_overlap_do_not_starve_a_writer) {
  constexpr int kPatience = 2000, kCommits = 50;
  FairLock lock;
  std::atomic<size_t> entries{0};
  size_t a = 0, b = 0;  // equal, but while a writer is at work
  Readers readers(3, [&](Random*) {
    std::shared_lock shared(lock);
    const size_t mine = entries.fetch_add(1) + 1;
    CHECK_EQ(a, b);
    for (int i = 0; i < kPatience && entries.load() == mine; ++i) std::this_thread::yield();
    CHECK_EQ(a, b);
  });
  readers.wait_for(10);
  for (int i = 0; i < kCommits; ++i) {
    std::unique_lock alone(lock);
    const size_t before = entries.load();
    ++a;
    std::this_thread::yield();
    ++b;
    CHECK_EQ(entries.load(), before);
  }
  readers.finish();
  CHECK_EQ(a, static_cast<size_t>(kCommits));
}

// A reader who only tries is refused while somebody commits, and never waits; one who gets in sees no batch half done.
TEST(readers_who_only_try_are_refused_while_a_writer_is_at_work) {
  FairLock lock;
  {
    std::unique_lock alone(lock);
    CHECK(!lock.try_lock_shared());
  }
  {
    std::shared_lock shared(lock);
    CHECK(lock.try_lock_shared());
    lock.unlock_shared();
  }
  std::atomic<size_t> reads{0};
  size_t a = 0, b = 0;  // equal, but while a writer is at work
  Readers readers(3, [&](Random*) {
    if (!lock.try_lock_shared()) return;
    std::shared_lock shared(lock, std::adopt_lock);
    CHECK_EQ(a, b);
    reads.fetch_add(1);
  });
  for (size_t commits = 0; (commits < 200 || reads.load() < 100) && !readers.failed(); ++commits) {
    std::unique_lock alone(lock);
    ++a;
    std::this_thread::yield();
    ++b;
  }
  readers.finish();
}

// The writer forks while a reader waits: neither it nor that reader is there to unlock it in the child.
TEST(a_forked_process_makes_the_lock_free) {
  FairLock lock;
  std::atomic<bool> waits{false};
  std::thread reader;
  {
    std::unique_lock alone(lock);
    reader = std::thread([&] {
      waits = true;
      std::shared_lock shared(lock);
    });
    while (!waits) std::this_thread::yield();
    const pid_t child = fork();
    if (child == 0) {
      alarm(300);  // for a child that waits for ever
      alone.release()->renew();
      for (int round = 0; round < 2; ++round) {
        std::unique_lock writer(lock);
        writer.unlock();
        std::shared_lock shared(lock);
      }
      _exit(lock.try_lock_shared() ? 7 : 1);
    }
    int status = 0;
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK(WIFEXITED(status));
    CHECK_EQ(WEXITSTATUS(status), 7);
  }
  reader.join();
}

// What the bindings rely on in their tests: whoever may have to wait is asked first, whether it comes to that or not.
TEST(readers_and_writers_say_that_they_are_about_to_wait) {
  static std::atomic<int> said;
  said = 0;
  Checked<FairLock> lock;
  before_waiting = +[] { said.fetch_add(1); };
  {
    std::unique_lock alone(lock);
  }
  {
    std::shared_lock shared(lock);
  }
  CHECK_EQ(said.load(), 2);
  CHECK(lock.try_lock_shared());
  lock.unlock_shared();
  CHECK_EQ(said.load(), 2);
  before_waiting = nullptr;
}

}  // namespace livegnn::fair_lock_test
