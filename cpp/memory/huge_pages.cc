#include "memory/huge_pages.h"

#ifdef __linux__
#include <sys/mman.h>

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>
#include <utility>
#include <vector>
#endif

namespace livegnn {

#ifdef __linux__
namespace {

constexpr int kCollapse = 25;  // MADV_COLLAPSE, which older headers lack

using Range = std::pair<uintptr_t, uintptr_t>;

// The mappings that asked for huge pages: the flag "hg" of proc_pid_smaps(5).
std::vector<Range> advised() {
  std::vector<Range> found;
  std::ifstream smaps("/proc/self/smaps");
  Range current;
  for (std::string line; std::getline(smaps, line);) {
    unsigned long from = 0, to = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &from, &to) == 2) {
      current = {from, to};
    } else if (line.starts_with("VmFlags:") && line.find(" hg") != std::string::npos) {
      found.push_back(current);
    }
  }
  return found;
}

}  // namespace

size_t join_huge_pages() {
  size_t whole = 0;
  for (const auto& [from, to] : advised()) {
    for (uintptr_t at = (from + kHugePage - 1) / kHugePage * kHugePage; at + kHugePage <= to; at += kHugePage) {
      // One at a time, so that nobody waits for many. Where nothing is mapped any more, it fails.
      whole += madvise(reinterpret_cast<void*>(at), kHugePage, kCollapse) == 0;
    }
  }
  return whole;
}
#else
size_t join_huge_pages() { return 0; }
#endif

}  // namespace livegnn
