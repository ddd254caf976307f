// Runs the tests whose names contain one of the arguments, or all of them.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string_view>

#include "livegnn/mix_hash.h"
#include "testing.h"

int main(int argc, char** argv) {
  using livegnn::testing::Test;
  const char* given = std::getenv("LIVEGNN_SEED");
  const uint64_t seed = given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device{}();
  std::printf("LIVEGNN_SEED=%llu\n", static_cast<unsigned long long>(seed));
  int passed = 0, failed = 0;
  for (const Test& test : livegnn::testing::tests()) {
    auto wanted = [&](const char* part) { return std::string_view(test.name).find(part) != std::string_view::npos; };
    if (argc > 1 && std::none_of(argv + 1, argv + argc, wanted)) continue;
    livegnn::testing::seed = seed;
    for (const char* c = test.name; *c != 0; ++c)
      livegnn::testing::seed = livegnn::MixHash{}(livegnn::testing::seed ^ *c);
    try {
      test.body();
      ++passed;
    } catch (const std::exception& error) {
      std::printf("FAILED %s\n  %s\n", test.name, error.what());
      ++failed;
    }
  }
  std::printf("%d passed, %d failed\n", passed, failed);
  return failed == 0 && passed > 0 ? 0 : 1;
}
