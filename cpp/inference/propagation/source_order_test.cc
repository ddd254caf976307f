// Sources in ascending order, and parallel edges in that of their keys.
#include "inference/propagation/source_order.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "testing/testing.h"

namespace livegnn::source_order_test {

using namespace testing;

namespace {

// Different numbers up to `most`, in no order.
std::vector<uint32_t> some_nodes(size_t count, uint32_t most, Random* random) {
  std::set<uint32_t> taken;
  std::vector<uint32_t> nodes;
  while (nodes.size() < count) {
    const auto node = static_cast<uint32_t>(random->below(uint64_t{most} + 1));
    if (taken.insert(node).second) nodes.push_back(node);
  }
  return nodes;
}

}  // namespace

TEST(sources_are_in_ascending_order_whatever_their_number_and_size) {
  Random random;
  SourceOrder order;
  for (int round = 0; round < 200; ++round) {
    const size_t count = random.below(round % 4 == 0 ? 5000 : 200);
    const auto most = static_cast<uint32_t>(UINT32_MAX >> random.below(32 - std::bit_width(count)));
    std::vector<uint32_t> nodes = some_nodes(count, most, &random);
    if (random.chance(0.2)) std::sort(nodes.begin(), nodes.end());
    order.sort(nodes);
    CHECK_EQ(order.size(), count);
    for (size_t i = 0; i < count; ++i) {
      CHECK_EQ(nodes[order.place(i)], order.node(i));
      CHECK(i == 0 || order.node(i - 1) < order.node(i));
    }
  }
}

TEST(messages_of_parallel_edges_are_placed_by_key) {
  using Message = std::pair<uint32_t, uint32_t>;  // source and key
  Random random;
  for (int round = 0; round < 200; ++round) {
    std::vector<Message> messages, placed(200);
    for (uint32_t source = 0; source < 20; ++source) {
      const std::vector<uint32_t> keys = some_nodes(random.below(9), 20, &random);
      for (uint32_t key : keys) messages.emplace_back(source, key);
    }
    size_t count = 0;
    for (const Message& message : messages) {
      const auto follows = [&](size_t i) {
        return placed[i].first == message.first && placed[i].second > message.second;
      };
      placed[place_by_key(count++, follows, [&](size_t from, size_t to) { placed[to] = placed[from]; })] = message;
    }
    placed.resize(count);
    std::sort(messages.begin(), messages.end());
    CHECK(placed == messages);
  }
}

}  // namespace livegnn::source_order_test
