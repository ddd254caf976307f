#include "ids/owners.h"

#include "testing/testing.h"

namespace livegnn::owners_test {
namespace {

// A hash of the owners of many ids, negative ones too.
uint64_t digest(const Owners& owners) {
  uint64_t hash = 0;
  for (int64_t id = -5000; id < 20000; ++id) {
    hash = MixHash{}(hash ^ owners.of_id(static_cast<uint64_t>(id * id * id)));
  }
  return hash;
}

TEST(ids_go_to_a_new_worker_alone) {
  constexpr uint64_t kIds = 20000;
  for (uint32_t workers = 1; workers < 40; workers += workers < 5 ? 1 : 7) {
    const Owners fewer(OwnerRule::kJump, workers), more(OwnerRule::kJump, workers + 1);
    std::vector<size_t> of(workers + 1);
    size_t moved = 0;
    for (uint64_t id = 0; id < kIds; ++id) {
      const uint32_t before = fewer.of_id(id), after = more.of_id(id);
      CHECK(before < workers && (after == before || after == workers));
      moved += after != before;
      ++of[after];
    }
    CHECK_EQ(moved, of[workers]);
    const double share = static_cast<double>(kIds) / (workers + 1);
    for (size_t each : of) CHECK(static_cast<double>(each) > 0.75 * share && static_cast<double>(each) < 1.25 * share);
  }
}

TEST(ids_that_were_moved_are_where_they_are_said_to_be) {
  for (OwnerRule rule : {OwnerRule::kJump, OwnerRule::kModulo}) {
    const Owners owners(rule, 3, {{9, 0}, {4, 2}, {UINT64_MAX, 1}}), plain(rule, 3);
    for (uint64_t id : {0, 1, 5, 8, 10, 100}) CHECK_EQ(owners.of_id(id), plain.of_id(id));
    CHECK_EQ(owners.of_id(9), 0u);
    CHECK_EQ(owners.of_id(4), 2u);
    CHECK_EQ(owners.of_id(UINT64_MAX), 1u);
    CHECK(owners == Owners(rule, 3, {{UINT64_MAX, 1}, {4, 2}, {9, 0}}) && owners != plain);
    CHECK_THROWS(Owners(rule, 3, {{9, 3}}), std::invalid_argument, "none of 3");
    CHECK_THROWS(Owners(rule, 3, {{9, 1}, {9, 2}}), std::invalid_argument, "moved twice");
    CHECK_THROWS(Owners(rule, 0), std::invalid_argument, "workers, not 0");
    CHECK_THROWS(Owners(rule, Owners::kMaxWorkers + 1), std::invalid_argument, "workers, not 4001");
  }
  CHECK_THROWS(Owners(OwnerRule::kTable, 3, {{9, 1}}), std::invalid_argument, "has no ids");
}

// What streams of workers have on disk depends on these.
TEST(no_bit_of_a_rule_has_changed) {
  CHECK_EQ(digest(Owners(OwnerRule::kModulo, 7)), 3836145126628424317u);
  CHECK_EQ(digest(Owners(OwnerRule::kModulo, 1000)), 12006998909231866263u);
  CHECK_EQ(digest(Owners(OwnerRule::kJump, 7)), 8936043291589043317u);
  CHECK_EQ(digest(Owners(OwnerRule::kJump, 1000)), 9042435987174109109u);
}

TEST(a_table_has_an_owner_for_each_index) {
  Owners owners(4, std::vector<uint16_t>{3, Owners::kNoOwner, 0});
  IdMap ids;
  for (int64_t id : {50, 60, 70}) ids.insert(id);
  ids.erase(1);
  CHECK_EQ(owners.of_index(0), 3u);
  CHECK_EQ(owners.of_id(70, ids), 0u);
  CHECK_EQ(owners.of_id(60, ids), uint32_t{Owners::kNoOwner});
  CHECK_EQ(owners.of_index(3), uint32_t{Owners::kNoOwner});
  owners.prepare(6);
  CHECK_EQ(owners.of_index(2), 0u);
  owners.adopt();
  owners.settle();
  owners.assign(5, 2);
  owners.assign(1, 1);
  CHECK(owners.table() == std::vector<uint16_t>({3, 1, 0, Owners::kNoOwner, Owners::kNoOwner, 2}));
  CHECK(owners == Owners(4, owners.table()));
  CHECK_THROWS(Owners(3, owners.table()), std::invalid_argument, "index 0 is owned by worker 3");
}

TEST(a_hash_has_owners_of_indices_too) {
  IdMap ids;
  for (int64_t id : {50, 60, 70}) ids.insert(id);
  ids.erase(1);
  const Owners owners(OwnerRule::kJump, 40);
  CHECK_EQ(owners.of_index(2, ids), owners.of_id(70));
  CHECK_EQ(owners.of_id(70, ids), owners.of_id(70));
  CHECK_EQ(owners.of_index(1, ids), uint32_t{Owners::kNoOwner});
}

}  // namespace
}  // namespace livegnn::owners_test
