#include "presampling/samples/sample_walk.h"

#include <map>

#include "testing/testing.h"

namespace livegnn::sample_walk_test {
namespace {

using testing::Random;

template <class Node>
void check_numbers(Node step) {
  NodeNumbers<Node> numbers;
  for (size_t expected : {0, 10, 100'000}) {
    numbers.begin(expected);
    for (uint32_t i = 0; i < 50'000; ++i) CHECK_EQ(numbers.number(i * step, i), i);
    for (uint32_t i = 0; i < 50'000; ++i) CHECK_EQ(numbers.number(i * step, 50'000), i);
    CHECK_EQ(numbers.number(~Node{0} - 1, 50'000), 50'000u);
  }
}

TEST(numbers_of_nodes_grow_with_the_sample) {
  check_numbers<uint32_t>(7);
  check_numbers<uint64_t>(7);
  check_numbers<uint64_t>(uint64_t{1} << 40);
}

TEST(ids_of_every_magnitude_have_numbers) {
  Random random;
  NodeNumbers<uint64_t> numbers;
  std::map<uint64_t, uint32_t> expected;
  numbers.begin(0);
  for (int i = 0; i < 20'000; ++i) {
    const uint64_t id = random.below(UINT64_MAX) >> random.below(64);
    const auto next = static_cast<uint32_t>(expected.size());
    CHECK_EQ(numbers.number(id, next), expected.try_emplace(id, next).first->second);
  }
}

}  // namespace
}  // namespace livegnn::sample_walk_test
