#include "memory/table.h"

#include <sys/resource.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "testing/testing.h"

namespace livegnn::table_test {
namespace {

using testing::Random;

// A directory that goes with the test.
struct Directory {
  std::string name = (std::filesystem::temp_directory_path() / "livegnn-test-XXXXXX").string();
  Directory() { CHECK(mkdtemp(name.data()) != nullptr); }
  ~Directory() { std::filesystem::remove_all(name); }
};

// Rows come, go, grow and are written like those of a vector, in memory and in a file; growth is prepared or not.
void check_against_vector(const std::string& directory) {
  Random random;
  for (size_t width : {1u, 3u, 9u, 300u}) {
    Table table(width, directory);
    std::vector<std::vector<float>> expected;
    for (int turn = 0; turn < 60; ++turn) {
      const size_t rows = random.chance(0.2) ? random.below(expected.size() + 1) : expected.size() + random.below(90);
      if (random.chance(0.7)) table.prepare(random.chance(0.8) ? rows : rows + random.below(90));
      if (random.chance(0.2)) table.settle();
      for (size_t i = 0; i < expected.size(); ++i)
        CHECK(std::equal(expected[i].begin(), expected[i].end(), table.row(i)));
      table.resize(rows);
      expected.resize(rows, std::vector<float>(width));
      for (int write = 0; write < 20 && rows > 0; ++write) {
        const uint32_t i = random.index(rows);
        expected[i] = random.chance(0.1) ? std::vector<float>(width) : random.floats(width);
        if (expected[i] == std::vector<float>(width)) {
          table.clear_row(i);
        } else {
          table.write(i, expected[i].data());
        }
      }
      CHECK_EQ(table.rows(), rows);
      for (size_t i = 0; i < rows; ++i) {
        CHECK(std::equal(expected[i].begin(), expected[i].end(), table.row(i)));
        for (size_t pad = width; pad < table.stride(); ++pad) CHECK_EQ(table.row(i)[pad], 0.0f);
      }
    }
    const size_t needed = table.rows() * table.stride() * sizeof(float);
    CHECK((directory.empty() ? table.bytes() : table.mapped_bytes()) >= needed);
    CHECK_EQ(directory.empty() ? table.mapped_bytes() : table.bytes(), 0u);
  }
}

TEST(table_in_memory_is_like_a_vector) { check_against_vector(""); }

TEST(table_in_a_file_is_like_a_vector) {
  Directory directory;
  check_against_vector(directory.name);
  CHECK(std::filesystem::is_empty(directory.name));
}

TEST(table_file_has_no_name_while_it_is_open) {
  Directory directory;
  Table table(4, directory.name);
  table.resize(10);
  CHECK(std::filesystem::is_empty(directory.name));
}

TEST(table_says_where_no_file_can_be_made) {
  CHECK_THROWS(Table(4, "/dev/null/nowhere"), std::system_error, "cannot be made in /dev/null/nowhere");
}

TEST(table_that_cannot_grow_stays_as_it_was) {
  Directory directory;
  Table table(4, directory.name);
  table.resize(10);
  table.row(9)[3] = 7;
  CHECK_THROWS(table.prepare(size_t{1} << 56), std::system_error, "cannot grow");
  CHECK_EQ(table.rows(), 10u);
  CHECK_EQ(table.row(9)[3], 7.0f);
  table.resize(1000);
  CHECK_EQ(table.row(9)[3], 7.0f);
}

TEST(table_forgets_growth_that_was_not_used) {
  Table table(4);
  table.resize(10);
  table.prepare(1000);
  table.resize(9);
  table.row(8)[0] = 7;
  table.resize(1000);
  CHECK_EQ(table.row(8)[0], 7.0f);
}

TEST(large_table_grows_where_it_is) {
  Table table(16);
  size_t rows = kHugePage / (16 * sizeof(float));
  table.resize(rows);
  table.row(rows - 1)[15] = 7;
  const float* const first = table.row(0);
  for (size_t more = rows; more < 16 * rows; more += more / 2) {
    if (more % 3 != 0) {
      table.prepare(more);
      table.settle();  // the growth is not used
    }
    table.resize(more);
    CHECK(table.row(0) == first);
    CHECK_EQ(table.row(more - 1)[15], more == rows ? 7.0f : 0.0f);
  }
  table.resize(100 * rows);  // more than is reserved
  CHECK(table.row(0) != first);
  CHECK_EQ(table.row(rows - 1)[15], 7.0f);
  CHECK_EQ(table.row(100 * rows - 1)[15], 0.0f);
}

TEST(large_table_grows_where_addresses_are_limited) {
  rlimit before{};
  CHECK_EQ(getrlimit(RLIMIT_AS, &before), 0);
  const rlimit limited{size_t{1} << 46, before.rlim_max};
  CHECK_EQ(setrlimit(RLIMIT_AS, &limited), 0);
  Table table(16);
  const size_t rows = kHugePage / (16 * sizeof(float));
  table.resize(rows);
  table.row(rows - 1)[15] = 7;
  table.resize(4 * rows);
  CHECK_EQ(setrlimit(RLIMIT_AS, &before), 0);
  CHECK_EQ(table.row(rows - 1)[15], 7.0f);
  CHECK_EQ(table.row(4 * rows - 1)[15], 0.0f);
}

TEST(table_without_columns_takes_no_memory) {
  Table table(0);
  table.prepare(1000);
  table.resize(1000);
  table.clear_row(999);
  CHECK_EQ(table.rows(), 1000u);
  CHECK_EQ(table.bytes(), 0u);
}

}  // namespace
}  // namespace livegnn::table_test
