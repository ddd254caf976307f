#include "inference/edges/edge_record.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <vector>

#include "testing/allocations.h"
#include "testing/testing.h"

namespace livegnn::edge_record_test {

using namespace testing;

namespace {

using Name = std::tuple<uint32_t, uint32_t, uint32_t>;  // target, source, key
using Weights = std::map<Name, float>;

// What a batch of random changes does to some edges, in the order of the record.
std::vector<DirectedChange> batch_of(const Weights& before, const Weights& after) {
  std::vector<DirectedChange> changes;
  std::map<Name, bool> names;
  for (const auto& [name, weight] : before) names[name];
  for (const auto& [name, weight] : after) names[name];
  for (const auto& [name, unused] : names) {
    const auto old = before.find(name), now = after.find(name);
    const bool had = old != before.end(), has = now != after.end();
    if (had && has && old->second == now->second) continue;
    const auto [target, source, key] = name;
    changes.push_back({source, target, had ? old->second : 0, has ? now->second : 0, had, has, key, nullptr, nullptr});
  }
  return changes;
}

}  // namespace

// However many batches lie between, the record is the difference of the edges now and at its beginning.
TEST(edge_record_is_the_net_change) {
  Random random;
  for (int run = 0; run < 20; ++run) {
    EdgeRecord record;
    Weights now, first;
    for (int turn = 0; turn < 100; ++turn) {
      Weights next = now;
      for (size_t i = random.below(12); i > 0; --i) {
        const Name name{random.index(8), random.index(6), random.index(2)};
        // Few weights, so that some edges are again as they were.
        if (random.chance(0.6)) {
          next[name] = static_cast<float>(random.below(3));
        } else {
          next.erase(name);
        }
      }
      record.prepare(batch_of(now, next));
      if (random.chance(0.1)) {
        record.forget();  // the batch is given up
      } else {
        record.merge();
        now = next;
      }
      if (random.chance(0.05)) {
        record.clear();
        first = now;
      }
      const std::vector<DirectedChange> expected = batch_of(first, now);
      CHECK_EQ(record.size(), expected.size());
      size_t i = 0;
      for (uint32_t target = 0; target < 9; ++target) {
        for (const DirectedChange& change : record.of(target)) {
          const DirectedChange& other = expected.at(i++);
          CHECK_EQ(change.target, other.target);
          CHECK_EQ(change.order(), other.order());
          CHECK_EQ(change.had, other.had);
          CHECK_EQ(change.has, other.has);
          if (change.had) CHECK_EQ(change.old_weight, other.old_weight);
          if (change.has) CHECK_EQ(change.new_weight, other.new_weight);
        }
      }
      CHECK_EQ(i, expected.size());
    }
  }
}

TEST(edge_record_needs_no_memory_once_it_is_prepared) {
  EdgeRecord record;
  Weights before, after;
  for (uint32_t i = 0; i < 3000; ++i) after[{i, i + 1, 0}] = 1;
  record.prepare(batch_of(before, after));
  CHECK_EQ(record.size(), 0u);
  const size_t made = allocations;
  record.merge();
  CHECK_EQ(allocations.load(), made);
  CHECK_EQ(record.size(), 3000u);
  CHECK(record.bytes() >= 3000 * sizeof(DirectedChange));
}

}  // namespace livegnn::edge_record_test
