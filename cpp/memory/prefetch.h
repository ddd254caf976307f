// Prefetches that stay in the program.
//
// GCC takes a function that does nothing but prefetch for one without any effect, and drops the calls of it, inline
// functions among them. What a compiler must not see through keeps them.
//
// Thread safety: all of it; any address will do.
#pragma once

namespace livegnn {

inline void prefetch(const void* address) {
  __builtin_prefetch(address);
  asm volatile("" : : "r"(address));
}

}  // namespace livegnn
