// What the machine's memory gives one core: the two rates that the floors of the benchmark are made of.
//
// Thread safety: any number of calls at once, which then share the memory.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>

#include "batch.h"

namespace livegnn::bench {

// Cache lines per second from random places, independent of each other so that as many as the core can are under way at
// once; and bytes per second that are copied from one array to another.
inline std::pair<double, double> memory_rates(size_t bytes) {
  using Clock = std::chrono::steady_clock;
  constexpr size_t kLine = 64 / sizeof(uint64_t);
  const size_t words = bytes / 2 / sizeof(uint64_t), lines = words / kLine;
  const auto from = std::make_unique<uint64_t[]>(words), to = std::make_unique<uint64_t[]>(words);
  std::memset(from.get(), 1, words * sizeof(uint64_t));
  std::memset(to.get(), 1, words * sizeof(uint64_t));

  constexpr size_t kReads = size_t{1} << 22;
  Random random(1);
  uint64_t sum = 0;
  auto start = Clock::now();
  for (size_t i = 0; i < kReads; ++i) sum += from[random.below(static_cast<uint32_t>(lines)) * kLine];
  const double reading = std::chrono::duration<double>(Clock::now() - start).count();
  start = Clock::now();
  std::memcpy(to.get(), from.get(), words * sizeof(uint64_t));
  const double copying = std::chrono::duration<double>(Clock::now() - start).count();
  volatile uint64_t used = sum + to[sum % words];  // or the compiler leaves both out
  (void)used;
  return {kReads / reading, static_cast<double>(words * sizeof(uint64_t)) / copying};
}

}  // namespace livegnn::bench
