#include "memory/recent_needs.h"

#if defined(__GLIBC__)
#include <malloc.h>

#include <atomic>
#endif

namespace livegnn {

void return_freed([[maybe_unused]] size_t bytes) {
#if defined(__GLIBC__)
  constexpr size_t kMatters = size_t{4} << 20;
  // Trim once more after the next batch or sample: by then the caller has released the results of this one, too.
  static std::atomic<bool> again{false};
  const bool matters = bytes >= kMatters;
  if (!matters && !again.load(std::memory_order_relaxed)) return;
  again = matters;
  malloc_trim(0);
#endif
}

}  // namespace livegnn
