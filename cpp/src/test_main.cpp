// Runs the tests whose names contain one of the arguments, or all of them.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string_view>

#include "livegnn/mix_hash.h"
#include "testing.h"

int main(int argc, char** argv) {
  using namespace livegnn;
  const char* given = std::getenv("LIVEGNN_SEED");
  const uint64_t seed = given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device{}();
  std::fprintf(stderr, "LIVEGNN_SEED=%llu\n", static_cast<unsigned long long>(seed));
  int passed = 0, failed = 0;
  for (const auto& [name, body] : testing::tests) {
    const std::string_view text = name;
    auto wanted = [text](const char* part) { return text.find(part) != text.npos; };
    if (argc > 1 && std::none_of(argv + 1, argv + argc, wanted)) continue;
    testing::seed = seed;
    for (char c : text) testing::seed = MixHash{}(testing::seed ^ static_cast<uint64_t>(c));
    std::string failure;
    try {
      body();
    } catch (const testing::Failure& error) {
      failure = error.what;
    } catch (const std::exception& error) {
      failure = std::string("threw ") + error.what();
    }
    ++(failure.empty() ? passed : failed);
    if (!failure.empty()) std::fprintf(stderr, "FAILED %s\n  %s\n", name, failure.c_str());
  }
  std::fprintf(stderr, "%d passed, %d failed\n", passed, failed);
  return failed == 0 && passed > 0 ? 0 : 1;
}
