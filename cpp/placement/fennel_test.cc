#include "placement/fennel.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>

#include "hashing/mix_hash.h"
#include "hashing/random.h"
#include "testing/testing.h"

namespace livegnn::fennel_test {
namespace {

using testing::Random;

// A batch of one type, and what is placed by it.
struct Batch {
  std::vector<uint32_t> types, tied, first, second;
  std::vector<uint16_t> owners;
  std::vector<int64_t> ends;

  Arrivals arrivals() const { return {types, tied, owners, first, second, ends}; }
};

void adopt(Fennel* fennel, const Batch& batch, const std::vector<uint16_t>& placed) {
  std::vector<int64_t> nodes(fennel->num_types() * fennel->parts());
  for (size_t i = 0; i < placed.size(); ++i) ++nodes[batch.types[i] * fennel->parts() + placed[i]];
  fennel->add({nodes, batch.ends});
}

Batch random_batch(Random* random, uint32_t parts, size_t types, size_t most) {
  Batch batch;
  batch.types.resize(random->below(most));
  for (uint32_t& type : batch.types) type = random->index(types);
  batch.ends.resize(types);
  const size_t count = batch.types.size();
  for (size_t i = count == 0 ? 0 : random->below(4 * most); i > 0; --i) {
    const uint32_t node = random->index(count);
    if (random->chance(0.5)) {
      batch.tied.push_back(node);
      batch.owners.push_back(static_cast<uint16_t>(random->below(std::min(parts, 2u))));  // most to the same few
    } else {
      batch.first.push_back(node);
      batch.second.push_back(random->index(count));
    }
    batch.ends[batch.types[node]] += 2;
  }
  return batch;
}

TEST(nodes_are_placed_by_the_best_score) {
  Random random;
  for (int round = 0; round < 200; ++round) {
    const auto parts = static_cast<uint32_t>(1 + random.below(6));
    const size_t types = 1 + random.below(3);
    Fennel fennel(parts, types);
    for (int step = 0; step < 8; ++step) {
      const Batch batch = random_batch(&random, parts, types, 40);
      const std::vector<uint16_t> placed = fennel.place(batch.arrivals());
      std::vector<std::vector<uint64_t>> load;
      std::vector<uint64_t> nodes, ends;
      for (size_t type = 0; type < types; ++type) {
        load.emplace_back(fennel.load(type).begin(), fennel.load(type).end());
        nodes.push_back(std::accumulate(load[type].begin(), load[type].end(), uint64_t{0}) +
                        std::ranges::count(batch.types, type));
        ends.push_back(fennel.ends(type) + batch.ends[type]);
      }
      for (uint32_t node = 0; node < placed.size(); ++node) {
        const uint32_t type = batch.types[node];
        std::vector<int64_t> edges(parts);
        for (size_t i = 0; i < batch.tied.size(); ++i) edges[batch.owners[i]] += batch.tied[i] == node;
        for (size_t i = 0; i < batch.first.size(); ++i) {
          const uint32_t a = batch.first[i], b = batch.second[i];
          if (a == node && b < node) ++edges[placed[b]];
          if (b == node && a < node) ++edges[placed[a]];
        }
        const FennelRule rule(parts, nodes[type], ends[type]);
        std::tuple<double, uint64_t, uint32_t> best;
        bool found = false;
        for (uint32_t part = 0; part < parts; ++part) {
          if (load[type][part] >= rule.most()) continue;
          const std::tuple here(-rule.score(edges[part], load[type][part]), load[type][part], part);
          if (!found || here < best) best = here;
          found = true;
        }
        CHECK(found);
        CHECK_EQ(uint32_t{placed[node]}, std::get<2>(best));
        ++load[type][placed[node]];
      }
      adopt(&fennel, batch, placed);
    }
  }
}

TEST(no_part_has_five_percent_more_than_its_share) {
  Random random;
  for (int round = 0; round < 50; ++round) {
    const auto parts = static_cast<uint32_t>(1 + random.below(16));
    Fennel fennel(parts, 2);
    for (int step = 0; step < 30; ++step) {
      const Batch batch = random_batch(&random, parts, 2, random.chance(0.2) ? 500 : 5);
      adopt(&fennel, batch, fennel.place(batch.arrivals()));
      for (size_t type = 0; type < 2; ++type) {
        const auto load = fennel.load(type);
        const uint64_t nodes = std::accumulate(load.begin(), load.end(), uint64_t{0});
        const uint64_t most = *std::ranges::max_element(load);
        CHECK(most * parts * 100 <= nodes * 105 || most <= (nodes + parts - 1) / parts);
      }
    }
  }
}

// A replay on another machine, or by another build, must place the same.
TEST(no_bit_of_the_rule_has_changed) {
  uint64_t hash = 0;
  Fennel fennel(7, 2);
  RandomStream stream(1, 2, 3);
  for (int step = 0; step < 50; ++step) {
    Batch batch;
    batch.ends = {0, 0};
    for (uint32_t node = 0; node < 40; ++node) {
      batch.types.push_back(static_cast<uint32_t>(stream.below(2)));
      for (uint64_t edges = stream.below(6); edges > 0; --edges) {
        if (stream.below(2) == 0) {
          batch.tied.push_back(node);
          batch.owners.push_back(static_cast<uint16_t>(stream.below(7)));
        } else {
          batch.first.push_back(node);
          batch.second.push_back(static_cast<uint32_t>(stream.below(40)));
        }
        batch.ends[batch.types[node]] += 2;
      }
    }
    const auto placed = fennel.place(batch.arrivals());
    for (uint16_t part : placed) hash = MixHash{}(hash ^ part);
    adopt(&fennel, batch, placed);
  }
  CHECK_EQ(hash, 13709216904018855200u);
}

TEST(batches_that_do_not_fit_are_refused) {
  CHECK_THROWS(Fennel(0, 1), std::invalid_argument, "parts, not 0");
  CHECK_THROWS(Fennel(4001, 1), std::invalid_argument, "parts, not 4001");
  Fennel fennel(2, 1);
  const Batch good{{0, 0}, {1}, {0}, {1}, {1}, {4}};
  CHECK(fennel.place(good.arrivals()) == std::vector<uint16_t>({0, 1}));
  Batch bad = good;
  bad.ends.push_back(0);
  CHECK_THROWS(fennel.place(bad.arrivals()), std::invalid_argument, "do not fit together");
  for (auto spoil : {+[](Batch* b) { b->types[0] = 1; }, +[](Batch* b) { b->tied[0] = 2; },
                     +[](Batch* b) { b->owners[0] = 2; }, +[](Batch* b) { b->first[0] = 2; }}) {
    bad = good;
    spoil(&bad);
    CHECK_THROWS(fennel.place(bad.arrivals()), std::invalid_argument, "out of range");
  }
  bad = good;
  bad.ends[0] = -1;
  CHECK_THROWS(fennel.place(bad.arrivals()), std::invalid_argument, "more ends of edges are removed");
  const std::vector<int64_t> nodes{1, -1}, ends{0};
  CHECK_THROWS(fennel.add({nodes, ends}), std::invalid_argument, "never become negative");
  CHECK_EQ(fennel.load(0)[0], 0u);
}

}  // namespace
}  // namespace livegnn::fennel_test
