// Runs the tests whose names contain one of the arguments, or all of them; with `--part=I/N` as the first argument
// every N-th of these, from the I-th on, so that N processes share them. The slowest are printed, in seconds of the
// processor.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <functional>
#include <new>
#include <string_view>
#include <utility>
#include <vector>

#include "hashing/mix_hash.h"
#include "testing/allocations.h"
#include "testing/testing.h"

namespace {

// The same cases everywhere; LIVEGNN_SEED draws others, as tests/explore.py does.
constexpr uint64_t kGateSeed = 20261125;
constexpr size_t kSlowest = 5;

void* allocate(std::size_t bytes, std::size_t alignment) {
  using namespace livegnn::testing;
  ++allocations;
  if (allocations_left > 0 && --allocations_left == 0) throw std::bad_alloc();
  void* const made = alignment == 0 ? std::malloc(bytes)
                                    : std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (made == nullptr) throw std::bad_alloc();
  return made;
}

void deallocate(void* block) {
  if (block != nullptr) ++livegnn::testing::deallocations;
  std::free(block);
}

}  // namespace

void* operator new(std::size_t bytes) { return allocate(bytes > 0 ? bytes : 1, 0); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return allocate(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* block) noexcept { deallocate(block); }
void operator delete(void* block, std::size_t) noexcept { deallocate(block); }
void operator delete(void* block, std::align_val_t) noexcept { deallocate(block); }
void operator delete(void* block, std::size_t, std::align_val_t) noexcept { deallocate(block); }

int main(int argc, char** argv) {
  using namespace livegnn;
  const char* given = std::getenv("LIVEGNN_SEED");
  const uint64_t seed = given != nullptr ? std::strtoull(given, nullptr, 10) : kGateSeed;
  std::fprintf(stderr, "LIVEGNN_SEED=%llu\n", static_cast<unsigned long long>(seed));
  unsigned part = 1, parts = 1, place = 0;
  if (argc > 1 && std::sscanf(argv[1], "--part=%u/%u", &part, &parts) == 2) --argc, ++argv;
  int passed = 0, failed = 0;
  std::vector<std::pair<double, const char*>> times;
  for (const auto& [name, body] : testing::tests) {
    const std::string_view text = name;
    auto wanted = [text](const char* part) { return text.find(part) != text.npos; };
    if (argc > 1 && std::none_of(argv + 1, argv + argc, wanted)) continue;
    if (place++ % parts != part - 1) continue;
    testing::seed = seed;
    for (char c : text) testing::seed = MixHash{}(testing::seed ^ static_cast<uint64_t>(c));
    std::string failure;
    const std::clock_t begun = std::clock();
    try {
      body();
    } catch (const testing::Failure& error) {
      failure = error.what;
    } catch (const std::exception& error) {
      failure = std::string("threw ") + error.what();
    }
    times.emplace_back(static_cast<double>(std::clock() - begun) / CLOCKS_PER_SEC, name);
    ++(failure.empty() ? passed : failed);
    if (!failure.empty()) std::fprintf(stderr, "FAILED %s\n  %s\n", name, failure.c_str());
  }
  const size_t shown = std::min<size_t>(times.size(), kSlowest);
  std::partial_sort(times.begin(), times.begin() + shown, times.end(), std::greater());
  for (size_t i = 0; i < shown; ++i) std::fprintf(stderr, "%6.2f s %s\n", times[i].first, times[i].second);
  std::fprintf(stderr, "%d passed, %d failed\n", passed, failed);
  return failed == 0 && passed > 0 ? 0 : 1;
}
