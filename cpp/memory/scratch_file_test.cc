#include "memory/scratch_file.h"

#include <algorithm>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "testing/testing.h"

namespace livegnn::scratch_file_test {

using namespace testing;

// Grows in steps, some of which are taken back or come when there is room; what is written stays, and the rest is zero.
TEST(scratch_file_keeps_what_is_written_as_it_grows) {
  Random random;
  ScratchFile file(std::filesystem::temp_directory_path().string());
  std::vector<float> expected;
  for (int turn = 0; turn < 60; ++turn) {
    const size_t before = file.size();
    file.reserve(random.below(before + 30'000));
    CHECK_EQ(file.size(), before);
    float* const old = file.data();
    if (!expected.empty()) old[0] = expected[0] = static_cast<float>(turn);
    if (random.chance(0.8)) file.adopt();
    CHECK(file.size() >= before);
    // Who reads at the old place goes on until it is settled.
    CHECK(std::equal(expected.begin(), expected.end(), old));
    expected.resize(file.size());
    CHECK(std::equal(expected.begin(), expected.end(), file.data()));
    file.settle();
    for (int i = 0; i < 100 && !expected.empty(); ++i) {
      const size_t at = random.below(expected.size());
      file.data()[at] = expected[at] = random.between(-1, 1);
    }
  }
  CHECK(file.size() > 0);
}

TEST(scratch_file_that_cannot_be_made_or_grow_says_so) {
  CHECK_THROWS(ScratchFile("/dev/null/nowhere"), std::system_error, "cannot be made in /dev/null/nowhere");
  ScratchFile file(std::filesystem::temp_directory_path().string());
  file.reserve(1000);
  file.adopt();
  file.data()[999] = 7;
  CHECK_THROWS(file.reserve(size_t{1} << 60), std::system_error, "cannot grow");
  file.adopt();
  CHECK_EQ(file.size(), 1000u);
  CHECK_EQ(file.data()[999], 7.0f);
}

}  // namespace livegnn::scratch_file_test
