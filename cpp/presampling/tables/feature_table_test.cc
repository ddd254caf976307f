#include "presampling/tables/feature_table.h"

#include <map>

#include "testing/allocations.h"
#include "testing/testing.h"

namespace livegnn::feature_table_test {
namespace {

using testing::Random;
using Model = std::map<uint64_t, std::vector<float>>;

void check_same(const FeatureTable& table, const Model& model) {
  CHECK_EQ(table.size(), model.size());
  for (const auto& [node, row] : model) {
    const float* found = table.find(node);
    CHECK(found != nullptr);
    CHECK(std::equal(row.begin(), row.end(), found));
    CHECK_EQ(table.node_of(table.row_of(node)), node);
    CHECK(table.row_of(node) < table.size());  // rows are contiguous
  }
}

TEST(a_feature_table_is_a_map_of_rows) {
  Random random;
  for (size_t width : {0, 1, 3, 10, 128, 40'000}) {
    FeatureTable table(width);
    Model model;
    const size_t third = testing::draws(width > 1000 ? 200 : 500, 1'000);
    const uint64_t nodes = width > 1000 ? 60 : 1 + random.below(600);
    for (size_t step = 0; step < 3 * third; ++step) {
      const uint64_t node = ~random.below(nodes);
      if (random.chance(step < 2 * third ? 0.7 : 0.3)) {
        const std::vector<float> row = random.chance(0.2) && model.count(node) > 0 ? model[node] : random.floats(width);
        const bool differs = model.count(node) == 0 || model[node] != row;
        CHECK_EQ(table.set(node, row.data()), differs);
        model[node] = row;
      } else {
        CHECK_EQ(table.erase(node), model.erase(node) > 0);
      }
      table.prefetch(node);
      table.prefetch_row(node);
      if (step % 500 == 0) check_same(table, model);
    }
    check_same(table, model);
    Arrays arrays;
    table.save("f_", &arrays);
    ArrayViews views;
    for (const SavedArray& array : arrays.all()) {
      std::visit([&](const auto& values) { views.put(array.name, std::span(values), array.width); }, array.values);
    }
    FeatureTable loaded(width);
    loaded.set(3, random.floats(width).data());
    loaded.load("f_", views);
    check_same(loaded, model);
    for (const auto& [node, row] : model) CHECK(table.erase(node));
    CHECK_EQ(table.size(), 0u);
    CHECK(table.bytes() < 1'000);
  }
}

TEST(rows_that_come_and_go_leave_nothing) {
  FeatureTable table(10);
  const std::vector<float> row(10, 1);
  for (uint64_t node = 0; node < 200'000; ++node) table.set(node, row.data());
  const size_t most = table.bytes();
  CHECK(most < 200'000 * (64 + 16 * 4 + 8 * 3 / 2) + 3 * (size_t{2} << 20));
  for (uint64_t node = 0; node < 199'000; ++node) table.erase(node);
  CHECK(table.bytes() < size_t{3} << 20);
}

TEST(a_feature_table_without_memory_stays_as_it_is) {
  FeatureTable table(4);
  const std::vector<float> row(4, 1);
  for (uint64_t node = 0; node < 3'000; ++node) {
    testing::fail_each_allocation([&] { table.set(node, row.data()); },
                                  [&] {
                                    CHECK_EQ(table.size(), node);
                                    CHECK(table.find(node) == nullptr);
                                  });
  }
}

}  // namespace
}  // namespace livegnn::feature_table_test
