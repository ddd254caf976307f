// Allocations of the test binary: how many there were, and which one fails (test_main.cpp takes the place of `new`).
#pragma once

#include <atomic>
#include <cstddef>
#include <new>

#include "testing/testing.h"

namespace livegnn::testing {

inline std::atomic<size_t> allocations{0}, deallocations{0};
inline std::atomic<size_t> allocations_left{0};  // before one fails; 0: none does

// While it lives, the n-th allocation from now on fails, whichever thread asks.
class FailingAllocation {
 public:
  explicit FailingAllocation(size_t n) { allocations_left = n; }
  ~FailingAllocation() { allocations_left = 0; }
};

// Runs `attempt` with its first allocation failing, then the second, and so on, until it gets all that it asks for;
// after each that threw, what `unchanged` checks must hold. Returns how often it threw.
template <class Attempt, class Unchanged>
size_t fail_each_allocation(const Attempt& attempt, const Unchanged& unchanged) {
  size_t failures = 0;
  for (size_t n = 1;; n += 1 + n / 16) {
    try {
      FailingAllocation failing(n);
      attempt();
      return failures;
    } catch (const std::bad_alloc&) {
      ++failures;
    }
    unchanged();
  }
}

// Of something that must need no memory, and free none: whatever grew would have had to.
template <class Body>
void check_allocates_nothing(const Body& body) {
  const size_t made = allocations, freed = deallocations;
  body();
  CHECK_EQ(allocations - made, 0u);
  CHECK_EQ(deallocations - freed, 0u);
}

}  // namespace livegnn::testing
