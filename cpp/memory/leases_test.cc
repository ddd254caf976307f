#include "memory/leases.h"

#include <atomic>
#include <thread>
#include <vector>

#include "testing/testing.h"

namespace livegnn::leases_test {
namespace {

struct Leased {
  Leased() { ++alive; }
  ~Leased() { --alive; }
  size_t bytes() const { return size; }
  void restore() noexcept { ++restored; }

  size_t size = 10;
  int restored = 0;
  static inline std::atomic<int> alive{0};
};

}  // namespace

TEST(what_comes_back_is_taken_again) {
  Leases<Leased> all;
  Leased* first;
  {
    const auto lease = all.take();
    first = lease.get();
    CHECK(all.take().get() != first);
    CHECK_EQ(all.bytes(), 10u);  // the other one
    lease->size = 30;
  }
  CHECK_EQ(all.bytes(), 40u);
  const auto again = all.take();
  CHECK_EQ(again.get(), first);
  CHECK_EQ(again->restored, 1);
  CHECK_EQ(all.bytes(), 10u);
}

TEST(few_and_small_ones_are_kept) {
  Leases<Leased> all(2, 10);
  {
    std::vector<Leases<Leased>::Lease> taken;
    for (int i = 0; i < 5; ++i) taken.push_back(all.take());
    taken[0]->size = 11;
  }
  CHECK_EQ(Leased::alive.load(), 2);
  CHECK_EQ(all.bytes(), 20u);
}

TEST(idle_ones_are_released_and_those_in_use_are_not) {
  Leases<Leased> all;
  const auto used = all.take();
  all.take();
  CHECK_EQ(all.bytes(), 10u);
  all.release();
  CHECK_EQ(all.bytes(), 0u);
  CHECK_EQ(Leased::alive.load(), 1);
}

TEST(threads_take_different_ones) {
  Leases<Leased> all;
  std::atomic<int> shared{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int k = 0; k < 10'000; ++k) {
        const auto one = all.take(), other = all.take();
        shared += one.get() == other.get();
        ++one->size, ++other->size;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK_EQ(shared.load(), 0);
  CHECK(Leased::alive.load() <= 8);
  CHECK_EQ(all.bytes(), static_cast<size_t>(Leased::alive.load()) * 10 + 80'000);  // no addition is lost
}

}  // namespace livegnn::leases_test
