#include "memory/slot_table.h"

#include <map>

#include "testing/allocations.h"
#include "testing/testing.h"

namespace livegnn::slot_table_test {
namespace {

using testing::Random;

struct Slot {
  uint64_t key;
  uint32_t value, spare;
  bool empty() const { return value == 0; }
};

void check_same(const SlotTable<Slot>& table, const std::map<uint64_t, uint32_t>& model) {
  CHECK_EQ(table.size(), model.size());
  for (const auto& [key, value] : model) {
    CHECK(table.find(key) != nullptr);
    CHECK_EQ(table.find(key)->value, value);
  }
  size_t visited = 0;
  table.for_each([&](const Slot& slot) {
    ++visited;
    CHECK_EQ(model.at(slot.key), slot.value);
  });
  CHECK_EQ(visited, model.size());
}

TEST(a_slot_table_is_a_map) {
  Random random;
  for (int round = 0; round < 30; ++round) {
    SlotTable<Slot> table;
    std::map<uint64_t, uint32_t> model;
    // Few keys, so that they come and go; the least and the greatest among them.
    const uint64_t keys = 1 + random.below(400), factor = round % 2 == 0 ? 1 : 0x123456789abcdefULL;
    for (int step = 0; step < 4'000; ++step) {
      const uint64_t drawn = random.below(keys), key = drawn == 1 ? UINT64_MAX : drawn * factor;
      // First more come, then more go.
      if (random.chance(step < 2'000 ? 0.7 : 0.2)) {
        Slot* slot = table.insert(key);
        CHECK_EQ(slot->empty(), model.count(key) == 0);
        slot->value = model[key] = 1 + random.index(1000);
      } else if (Slot* slot = table.find(key)) {
        table.erase(slot);
        CHECK_EQ(model.erase(key), 1u);
      } else {
        CHECK_EQ(model.count(key), 0u);
      }
      table.prefetch(key);
      if (step % 100 == 0) check_same(table, model);
    }
    check_same(table, model);
    while (!model.empty()) {
      table.erase(table.find(model.begin()->first));
      model.erase(model.begin());
    }
    CHECK_EQ(table.bytes(), 0u);
    CHECK(table.find(0) == nullptr);
  }
}

TEST(keys_that_come_and_go_leave_nothing_in_a_slot_table) {
  SlotTable<Slot> table;
  for (uint64_t key = 0; key < 100'000; ++key) table.insert(key)->value = 1;
  const size_t most = table.bytes();
  for (uint64_t key = 100; key < 100'000; ++key) table.erase(table.find(key));
  CHECK(table.bytes() < 100 * 16 * sizeof(Slot) + 1);
  // A window of keys that moves on.
  for (uint64_t key = 100; key < 300'000; ++key) {
    table.insert(key)->value = 1;
    table.erase(table.find(key - 100));
  }
  CHECK_EQ(table.size(), 100u);
  CHECK(table.bytes() < most / 100);
}

TEST(a_slot_table_without_memory_stays_as_it_is) {
  SlotTable<Slot> table;
  for (uint64_t key = 0; key < 10; ++key) table.insert(key)->value = 1;
  const size_t failures = testing::fail_each_allocation([&] { table.insert(10 + table.size())->value = 1; },
                                                        [&] { CHECK_EQ(table.size(), 10u); });
  CHECK(failures > 0);
  table.reserve(1000);
  testing::check_allocates_nothing([&] {
    for (uint64_t key = 100; key < 1100; ++key) table.insert(key)->value = 1;
  });
  CHECK_EQ(table.size(), 1011u);
}

}  // namespace
}  // namespace livegnn::slot_table_test
