#include "memory/huge_pages.h"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <string>

#include "memory/table.h"
#include "testing/testing.h"

namespace livegnn::huge_pages_test {
namespace {

constexpr size_t kRows = 1 << 18, kWidth = 16, kPage = 4096;  // 16 MiB

size_t huge_kilobytes() {
  std::ifstream rollup("/proc/self/smaps_rollup");
  for (std::string line; std::getline(rollup, line);) {
    if (line.starts_with("AnonHugePages:")) return std::stoul(line.substr(14));
  }
  return 0;
}

}  // namespace

TEST(huge_pages_that_a_fork_has_left_in_pieces_are_joined) {
  Table table(kWidth);
  table.resize(kRows);
  for (size_t row = 0; row < kRows; ++row) table.row(row)[0] = static_cast<float>(row);
  const size_t before = huge_kilobytes();
  const pid_t child = fork();
  if (child == 0) {
    pause();
    _exit(0);
  }
  for (size_t row = 0; row < kRows; row += kPage / (kWidth * sizeof(float))) table.row(row)[1] = 1;
  CHECK_EQ(kill(child, SIGKILL), 0);
  CHECK_EQ(waitpid(child, nullptr, 0), child);
  const size_t between = huge_kilobytes();
  const size_t whole = join_huge_pages();
  CHECK(huge_kilobytes() >= between);
  if (whole > 0) CHECK(huge_kilobytes() >= before);  // not all systems have huge pages
  for (size_t row = 0; row < kRows; ++row) CHECK_EQ(table.row(row)[0], static_cast<float>(row));
  for (size_t row = 0; row < kRows; row += kPage / (kWidth * sizeof(float))) CHECK_EQ(table.row(row)[1], 1.0f);
}

}  // namespace livegnn::huge_pages_test
