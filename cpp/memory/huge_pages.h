// Puts huge pages together again that a fork has left in pieces.
//
// While a forked process shares a huge page, the first write to it copies a small page, and what is left is in pieces
// from then on. Then reads of random rows miss the TLB, and the next fork copies a page table that is 500 times as
// large. The system mends this by itself, but it takes hours for gigabytes.
//
// Thread safety: any thread may call it, while others read, write, map and unmap.
#pragma once

#include <cstddef>

namespace livegnn {

inline constexpr size_t kHugePage = size_t{2} << 20;  // bytes

// Goes through all memory of the process that asked for huge pages (`MADV_HUGEPAGE`), and returns how many there are
// whole. It takes less than a millisecond for each, and takes no memory that was not in use. Call it when the forked
// process has ended. Where the system cannot do it (before Linux 6.1), it does nothing and returns 0.
size_t join_huge_pages();

}  // namespace livegnn
