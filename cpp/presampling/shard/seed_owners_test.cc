#include "presampling/shard/seed_owners.h"

#include "testing/testing.h"

namespace livegnn::seed_owners_test {
namespace {

TEST(seeds_go_to_a_new_worker_alone) {
  constexpr uint64_t kSeeds = 20000;
  for (uint32_t workers = 1; workers < 40; workers += workers < 5 ? 1 : 7) {
    std::vector<size_t> of(workers + 1);
    size_t moved = 0;
    for (uint64_t seed = 0; seed < kSeeds; ++seed) {
      const uint32_t before = serving_worker_of(seed, workers), after = serving_worker_of(seed, workers + 1);
      CHECK(before < workers && (after == before || after == workers));
      moved += after != before;
      ++of[after];
    }
    CHECK_EQ(moved, of[workers]);
    const double share = static_cast<double>(kSeeds) / (workers + 1);
    for (size_t each : of) CHECK(static_cast<double>(each) > 0.75 * share && static_cast<double>(each) < 1.25 * share);
  }
}

TEST(seeds_that_were_moved_are_where_they_are_said_to_be) {
  const SeedOwners owners(3, {{9, 0}, {4, 2}, {UINT64_MAX, 1}});
  for (uint64_t seed : {0, 1, 5, 8, 10, 100}) CHECK_EQ(owners.of(seed), serving_worker_of(seed, 3));
  CHECK_EQ(owners.of(9), 0u);
  CHECK_EQ(owners.of(4), 2u);
  CHECK_EQ(owners.of(UINT64_MAX), 1u);
  CHECK_THROWS(SeedOwners(3, {{9, 3}}), std::invalid_argument, "none of 3");
  CHECK_THROWS(SeedOwners(3, {{9, 1}, {9, 2}}), std::invalid_argument, "moved twice");
  CHECK_THROWS(SeedOwners(0), std::invalid_argument, "serving workers, not 0");
  CHECK_THROWS(SeedOwners(kMaxServingWorkers + 1), std::invalid_argument, "serving workers, not 4001");
}

}  // namespace
}  // namespace livegnn::seed_owners_test
