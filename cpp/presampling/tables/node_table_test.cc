#include "presampling/tables/node_table.h"

#include <array>
#include <map>

#include "testing/allocations.h"
#include "testing/testing.h"

namespace livegnn::node_table_test {
namespace {

using testing::Random;
using Model = std::map<uint64_t, std::array<uint64_t, 3>>;

void check_same(const NodeTable& table, const Model& model) {
  CHECK_EQ(table.size(), model.size());
  for (const auto& [node, words] : model) {
    const uint64_t* const row = table.find(node);
    CHECK(row != nullptr);
    CHECK_EQ(row[0], node);
    CHECK(std::equal(words.begin(), words.end(), row + 1));
  }
  size_t visited = 0;
  table.for_each([&](const uint64_t* row) {
    ++visited;
    CHECK(std::equal(row + 1, row + 4, model.at(row[0]).begin()));
  });
  CHECK_EQ(visited, model.size());
}

TEST(a_node_table_is_a_map_of_words) {
  Random random;
  for (int round = 0; round < 30; ++round) {
    NodeTable table;
    for (size_t column = 1; column <= 3; ++column) CHECK_EQ(table.add_column(), column);
    Model model;
    // Few nodes, so that they come and go; the least and the greatest among them.
    const uint64_t nodes = 1 + random.below(400), factor = round % 2 == 0 ? 1 : 0x123456789abcdefULL;
    for (int step = 0; step < 6'000; ++step) {
      const uint64_t drawn = random.below(nodes), node = drawn == 1 ? UINT64_MAX : drawn * factor;
      const size_t column = 1 + random.below(3);
      table.prefetch(NodeTable::hash_of(node));
      if (random.chance(step < 3'000 ? 0.7 : 0.2)) {
        uint64_t* const row = table.insert(node);
        CHECK_EQ(table.find(node), row);
        row[column] = model[node][column - 1] = 1 + random.below(1000);
      } else if (uint64_t* const row = table.find(node)) {
        const uint64_t moves = table.moves();
        row[column] = model[node][column - 1] = 0;
        const bool blank = model[node] == std::array<uint64_t, 3>{};
        CHECK_EQ(table.release(row), blank);
        if (blank) model.erase(node);
        CHECK_EQ(table.moves() != moves, blank);  // whoever knows the row must look again, also at node 0's
      } else {
        CHECK_EQ(model.count(node), 0u);
      }
      if (step % 200 == 0) check_same(table, model);
    }
    check_same(table, model);
    // A column that is set to 0 as a whole.
    table.for_each([](uint64_t* row) { row[2] = 0; });
    table.purge();
    for (auto& [node, words] : model) words[1] = 0;
    std::erase_if(model, [](const auto& one) { return one.second == std::array<uint64_t, 3>{}; });
    check_same(table, model);
    table.clear();
    CHECK_EQ(table.bytes(), 0u);
    check_same(table, {});
  }
}

// A pointer to a row is good as long as `moves` stays; rows that were not written leave when they move.
TEST(a_node_table_tells_that_rows_have_moved) {
  Random random;
  NodeTable table;
  table.add_column();
  std::map<uint64_t, uint64_t*> rows;
  uint64_t moves = table.moves();
  for (uint64_t i = 0; i < 20'000; ++i) {
    const uint64_t node = random.below(5'000);
    uint64_t* const row = table.insert(node);
    if (table.moves() != moves) rows.clear();
    moves = table.moves();
    const auto [known, is_new] = rows.emplace(node, row);
    CHECK_EQ(known->second, row);
    if (row[1] == 0 && random.chance(0.5)) row[1] = node + 1;
  }
  size_t written = 0;
  table.for_each([&](const uint64_t* row) { written += row[1] != 0; });
  table.purge();
  CHECK_EQ(table.size(), written);
}

TEST(nodes_that_come_and_go_leave_nothing_in_a_node_table) {
  NodeTable table;
  table.add_column();
  for (uint64_t node = 0; node < 100'000; ++node) table.insert(node)[1] = 1;
  const size_t most = table.bytes();
  const auto erase = [&](uint64_t node) {
    uint64_t* const row = table.find(node);
    row[1] = 0;
    CHECK(table.release(row));
  };
  for (uint64_t node = 100; node < 100'000; ++node) erase(node);
  CHECK(table.bytes() < 100 * 16 * 16 + 1);
  for (uint64_t node = 100; node < 300'000; ++node) {  // a window that moves on
    table.insert(node)[1] = 1;
    erase(node - 100);
  }
  CHECK_EQ(table.size(), 100u);
  CHECK(table.bytes() < most / 100);
}

TEST(a_node_table_without_memory_stays_as_it_is) {
  NodeTable table;
  table.add_column();
  for (uint64_t node = 1; node <= 10; ++node) table.insert(node)[1] = 1;
  const size_t failures = testing::fail_each_allocation([&] { table.insert(11 + table.size())[1] = 1; },
                                                        [&] { CHECK_EQ(table.size(), 10u); });
  CHECK(failures > 0);
  table.reserve(1000);
  testing::check_allocates_nothing([&] {
    for (uint64_t node = 100; node < 1100; ++node) table.insert(node)[1] = 1;
  });
  CHECK_EQ(table.size(), 1011u);
}

}  // namespace
}  // namespace livegnn::node_table_test
