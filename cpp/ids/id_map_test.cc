#include "ids/id_map.h"

#include <map>
#include <stdexcept>
#include <utility>
#include <vector>

#include "testing/testing.h"

namespace livegnn::id_map_test {
namespace {

using testing::Random;

struct Model {
  std::map<int64_t, uint32_t> indices;
  std::vector<uint32_t> free;  // the one freed last at the end
  uint32_t capacity = 0;
};

void check_against(const IdMap& map, const Model& model) {
  CHECK_EQ(map.size(), model.indices.size());
  CHECK_EQ(map.capacity(), model.capacity);
  for (auto [id, index] : model.indices) {
    CHECK_EQ(map.index_of(id), index);
    CHECK_EQ(map.id_of(index), id);
    CHECK(map.in_use(index));
  }
  for (uint32_t index : model.free) CHECK(!map.in_use(index));
  CHECK(!map.in_use(model.capacity));
  for (size_t n = 0; n < model.free.size() + 3; ++n) {
    uint32_t expected = n < model.free.size() ? model.free[model.free.size() - 1 - n]
                                              : static_cast<uint32_t>(model.capacity + n - model.free.size());
    CHECK_EQ(map.next_index(n), expected);
  }
}

void insert(int64_t id, IdMap* map, Model* model) {
  uint32_t expected = map->next_index(0);
  CHECK_EQ(map->insert(id), expected);
  if (model->free.empty()) {
    CHECK_EQ(expected, model->capacity++);
  } else {
    CHECK_EQ(expected, model->free.back());
    model->free.pop_back();
  }
  model->indices[id] = expected;
}

void erase(int64_t id, IdMap* map, Model* model) {
  uint32_t index = model->indices.at(id);
  map->erase(index);
  model->indices.erase(id);
  model->free.push_back(index);
  CHECK_EQ(map->index_of(id), kNoIndex);
}

// Without a hash map an index costs its id and no more.
bool has_hash_map(const IdMap& map) {
  return map.bytes() > map.ids().capacity() * sizeof(int64_t) + map.free_list().capacity() * sizeof(uint32_t);
}

void change_at_random(size_t times, bool identity, Random* random, IdMap* map, Model* model) {
  for (size_t i = 0; i < times; ++i) {
    if (model->indices.empty() || random->chance(0.6)) {
      int64_t id = identity ? map->next_index(0) : static_cast<int64_t>(random->below(uint64_t{1} << 62));
      if (!model->indices.contains(id)) insert(id, map, model);
    } else {
      auto found = model->indices.lower_bound(static_cast<int64_t>(random->below(model->capacity)));
      erase(found == model->indices.end() ? model->indices.begin()->first : found->first, map, model);
    }
    if (i % 32 == 0) check_against(*map, *model);
  }
  check_against(*map, *model);
}

TEST(id_map_refuses_what_does_not_fit_together) {
  auto restore = [](std::vector<int64_t> ids, std::vector<uint32_t> free) {
    IdMap().restore(std::move(ids), std::move(free));
  };
  restore({0, kNoId, 2, kNoId}, {3, 1});
  restore({7, kNoId, 2}, {1});
  CHECK_THROWS(restore({0, kNoId, 2}, {}), std::runtime_error, "no id and is not free");
  CHECK_THROWS(restore({0, kNoId, 2}, {1, 1}), std::runtime_error, "listed twice");
  CHECK_THROWS(restore({0, kNoId, kNoId}, {1, 1}), std::runtime_error, "listed twice");
  CHECK_THROWS(restore({0, kNoId, 2}, {1, 0}), std::runtime_error, "in use");
  CHECK_THROWS(restore({0, kNoId, 2}, {1, 3}), std::runtime_error, "not there");
  CHECK_THROWS(restore({0, kNoId, 2}, {kNoIndex}), std::runtime_error, "not there");
  CHECK_THROWS(restore({0, -2, 2}, {}), std::runtime_error, "no id can be -2");
  CHECK_THROWS(restore({5, 6, 5}, {}), std::runtime_error, "two of them have");
}

}  // namespace

TEST(id_map_that_is_the_identity_has_no_hash_map) {
  Random random;
  IdMap map;
  Model model;
  check_against(map, model);
  change_at_random(1000, true, &random, &map, &model);
  CHECK(!has_hash_map(map));
  for (int64_t id : {int64_t{-1}, int64_t{1000}, int64_t{1} << 32, (int64_t{1} << 32) + 1, INT64_MAX, INT64_MIN}) {
    CHECK_EQ(map.index_of(id), kNoIndex);
  }
}

TEST(id_map_takes_any_ids) {
  Random random;
  IdMap map;
  Model model;
  change_at_random(2000, false, &random, &map, &model);
  CHECK(has_hash_map(map));
  CHECK_EQ(map.index_of(-1), kNoIndex);
}

TEST(id_map_keeps_every_id_when_the_identity_ends) {
  Random random;
  IdMap map;
  Model model;
  change_at_random(500, true, &random, &map, &model);
  insert(INT64_MAX, &map, &model);
  check_against(map, model);
  CHECK(has_hash_map(map));
  change_at_random(500, true, &random, &map, &model);
  change_at_random(500, false, &random, &map, &model);
}

TEST(id_map_passes_an_index_through) {
  for (bool identity : {true, false}) {
    IdMap map;
    map.insert(identity ? 0 : 70);
    uint32_t passed = map.insert(kNoId);
    CHECK_EQ(passed, 1u);
    CHECK_EQ(map.insert(identity ? 2 : 90), 2u);
    CHECK(!map.in_use(passed));
    CHECK_EQ(map.index_of(kNoId), kNoIndex);
    map.release(passed);
    CHECK_EQ(map.size(), 2u);
    CHECK_EQ(map.next_index(0), passed);
    CHECK_EQ(map.insert(1), passed);
    CHECK_EQ(map.index_of(1), passed);
    CHECK_EQ(has_hash_map(map), !identity);
  }
}

TEST(id_map_knows_an_id_that_moves_to_another_index) {
  for (bool identity : {true, false}) {
    IdMap map;
    for (int64_t id = 0; id < 4; ++id) map.insert(identity ? id : id + 10);
    const int64_t id = map.id_of(1);
    // As a batch does that removes a node and adds it again: new indices first.
    CHECK_EQ(map.insert(id), 4u);
    map.erase(1);
    CHECK_EQ(map.index_of(id), 4u);
    CHECK_EQ(map.size(), 4u);
    CHECK(!map.in_use(1));
    map.erase(4);
    CHECK_EQ(map.index_of(id), kNoIndex);
  }
}

TEST(id_map_is_restored) {
  Random random;
  for (bool identity : {true, false}) {
    IdMap map, restored;
    Model model;
    change_at_random(600, identity, &random, &map, &model);
    restored.insert(12345);  // what was there goes
    restored.restore(map.ids(), map.free_list());
    check_against(restored, model);
    CHECK_EQ(restored.index_of(12345), kNoIndex);
    CHECK_EQ(has_hash_map(restored), !identity);
    change_at_random(600, identity, &random, &restored, &model);
  }
}

}  // namespace livegnn::id_map_test
