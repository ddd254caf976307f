// The rows of a part's nodes, beside a map from nodes to rows.
#include "memory/held_rows.h"

#include <map>
#include <set>
#include <vector>

#include "testing/allocations.h"
#include "testing/testing.h"

namespace livegnn::held_rows_test {

using namespace testing;

constexpr size_t kWidth = 5;

// What `held` and its slab say of every node, and of no other.
void check_rows(const HeldRows& held, const Table& slab, const std::map<uint32_t, float>& expected, size_t capacity) {
  CHECK_EQ(held.capacity(), capacity);
  std::set<uint32_t> taken{0};
  std::vector<bool> free(slab.rows(), true);
  for (uint32_t node = 0; node < capacity; ++node) {
    const auto found = expected.find(node);
    CHECK_EQ(held.has(node), found != expected.end());
    const uint32_t slot = held.slots()[node];
    free[slot] = false;
    if (slot != 0) CHECK(taken.insert(slot).second);
    for (size_t c = 0; c < kWidth; ++c) CHECK_EQ(slab.row(slot)[c], found == expected.end() ? 0.0f : found->second);
  }
  for (size_t slot = 0; slot < slab.rows(); ++slot) {
    for (size_t c = 0; c < kWidth && (slot == 0 || free[slot]); ++c) CHECK_EQ(slab.row(slot)[c], 0.0f);
  }
  CHECK(slab.rows() <= std::max<size_t>(capacity, 1) + 1);
}

void check_batches(Random* from) {
  Random& random = *from;
  HeldRows held;
  Table slab(kWidth);
  std::map<uint32_t, float> expected;
  size_t capacity = 20, most = 0;
  std::vector<uint32_t> begun;
  for (uint32_t node = 0; node < capacity; node += 3) begun.push_back(node);
  held.assign(begun, capacity, &slab);
  for (uint32_t node : begun) expected[node] = 0;
  check_rows(held, slab, expected, capacity);
  for (size_t batch = 0; batch < 30; ++batch) {
    const size_t grown = capacity + random.below(3);
    std::vector<uint32_t> written, leaving;
    for (size_t i = random.below(8); i > 0; --i) written.push_back(static_cast<uint32_t>(random.below(grown)));
    for (size_t i = random.below(6); i > 0; --i) leaving.push_back(static_cast<uint32_t>(random.below(capacity)));
    held.prepare(written, leaving, grown, &slab);
    if (random.chance(0.2)) {  // the batch is given up
      held.settle();
      slab.settle();
      check_rows(held, slab, expected, capacity);
      continue;
    }
    check_allocates_nothing([&] { held.commit(grown, &slab); });
    capacity = grown;
    for (uint32_t node : leaving) expected.erase(node);
    for (uint32_t node : written) {
      const auto value = static_cast<float>(1 + random.below(1000));
      if (!expected.contains(node) || random.chance(0.5)) expected[node] = 0;
      expected[node] += value;
      const std::vector<float> row(kWidth, expected[node]);
      slab.write(held.slots()[node], row.data());
    }
    held.settle();
    slab.settle();
    most = std::max(most, expected.size());
    check_rows(held, slab, expected, capacity);
    CHECK(slab.rows() <= most + 9);  // slots are used again
  }
}

// Tables grow by half, and most faults need a batch that makes one grow: so a few batches, many times.
TEST(held_rows_are_those_of_a_map) {
  Random random;
  for (size_t i = 0; i < testing::draws(60, 600); ++i) check_batches(&random);
}

}  // namespace livegnn::held_rows_test
