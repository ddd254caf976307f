#include "presampling/tables/subscription_table.h"

#include <map>

#include "testing/allocations.h"
#include "testing/testing.h"

namespace livegnn::subscription_table_test {
namespace {

using testing::Random;
using Model = std::map<std::pair<uint64_t, uint32_t>, uint32_t>;  // by node and worker

Model read(const SubscriptionTable& table) {
  Model model;
  table.for_each([&](uint64_t node, uint32_t worker, uint32_t count) {
    CHECK(count > 0);
    CHECK(model.emplace(std::pair(node, worker), count).second);
  });
  return model;
}

TEST(a_subscription_table_counts_by_worker) {
  Random random;
  for (int round = 0; round < 40; ++round) {
    SubscriptionTable table;
    Model model;
    const uint64_t nodes = 1 + random.below(50);
    const auto workers = 1 + random.index(round % 4 == 0 ? 1 : 6);
    for (int step = 0; step < 2'000; ++step) {
      const uint64_t node = random.below(nodes) * 0xabcdef12345ULL;
      const uint32_t worker = random.index(workers);
      const auto change = static_cast<int64_t>(random.below(5)) - (step < 1'200 ? 1 : 3);
      const auto found = model.find({node, worker});
      const int64_t before = found == model.end() ? 0 : found->second, after = before + change;
      if (after < 0) {
        CHECK_THROWS(table.add(node, worker, change), std::runtime_error, "subscriptions: ");
        continue;
      }
      const Subscribed subscribed = table.add(node, worker, change);
      CHECK(subscribed == (before == 0 && after > 0   ? Subscribed::kNow
                           : before > 0 && after == 0 ? Subscribed::kNoLonger
                                                      : Subscribed::kAsBefore));
      if (after > 0) {
        model[{node, worker}] = static_cast<uint32_t>(after);
      } else {
        model.erase({node, worker});
      }
      CHECK_EQ(table.count(node, worker), static_cast<uint32_t>(after));
      bool any = false;
      table.for_each_worker(node, [&](uint32_t one) {
        any = true;
        CHECK_EQ(model.count({node, one}), 1u);
      });
      CHECK_EQ(table.has(node), any);
    }
    CHECK(read(table) == model);
    Arrays arrays;
    table.save("s_", &arrays);
    ArrayViews views;
    for (const SavedArray& array : arrays.all()) {
      std::visit([&](const auto& values) { views.put(array.name, std::span(values)); }, array.values);
    }
    SubscriptionTable loaded;
    loaded.add(1, 2, 3);
    loaded.load("s_", views);
    CHECK(read(loaded) == model);
    for (const auto& [key, count] : model) table.add(key.first, key.second, -int64_t{count});
    table.settle();
    CHECK_EQ(table.size(), 0u);
    CHECK(table.bytes() < 100'000);
  }
}

TEST(one_worker_takes_one_slot_a_node) {
  SubscriptionTable table;
  for (uint64_t node = 0; node < 100'000; ++node) table.add(node, 5, 3);
  const size_t most = table.bytes();
  CHECK(most < 100'000 * 2 * 16 * 8 / 5);
  // A second worker comes and goes.
  for (uint64_t node = 0; node < 100'000; ++node) table.add(node, 7, 1);
  CHECK(table.bytes() > most);
  for (uint64_t node = 0; node < 100'000; ++node) table.add(node, 5, -3);
  for (uint64_t node = 0; node < 100'000; ++node) table.add(node, 7, -1);
  table.settle();
  CHECK_EQ(table.size(), 0u);
  CHECK(table.bytes() < 200'000);
}

TEST(a_subscription_table_has_room_for_all_workers) {
  SubscriptionTable table;
  for (uint32_t worker = 0; worker < kMaxServingWorkers; ++worker) table.add(1, worker, worker + 1);
  CHECK_EQ(table.count(1, kMaxServingWorkers - 1), kMaxServingWorkers);
  CHECK_THROWS(table.add(1, 3, int64_t{UINT32_MAX}), std::runtime_error, "subscriptions: ");
  for (uint32_t worker = 0; worker < kMaxServingWorkers; ++worker) table.add(1, worker, -int64_t{worker + 1});
  CHECK_EQ(table.size(), 0u);
}

TEST(a_subscription_table_without_memory_stays_as_it_is) {
  Random random;
  SubscriptionTable table;
  for (int i = 0; i < 5'000; ++i) {
    const uint64_t node = random.below(1'000);
    const uint32_t worker = random.index(30);
    const uint32_t before = table.count(node, worker);
    const int64_t change = before > 0 && random.chance(0.5) ? -int64_t{before} : 1;
    testing::fail_each_allocation([&] { table.add(node, worker, change); },
                                  [&] { CHECK_EQ(table.count(node, worker), before); });
    CHECK_EQ(table.count(node, worker), before + change);
  }
}

}  // namespace
}  // namespace livegnn::subscription_table_test
