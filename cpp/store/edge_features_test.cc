#include "store/edge_features.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "testing/allocations.h"
#include "testing/testing.h"

namespace livegnn::edge_features_test {

using namespace testing;

namespace {

// Edges, named by their rows, beside their features, and the free rows in the order in which they became free.
struct FeatureModel {
  size_t width;
  std::vector<std::vector<float>> rows;
  std::vector<uint32_t> free;

  std::vector<uint32_t> used() const {
    std::vector<uint32_t> all;
    for (uint32_t row = 0; row < rows.size(); ++row) {
      if (std::find(free.begin(), free.end(), row) == free.end()) all.push_back(row);
    }
    return all;
  }

  // A batch that adds, changes and removes edges; and what it does.
  EdgeFeaturesDelta batch(const EdgeFeatures& features, Random* random) {
    EdgeFeaturesDelta delta;
    std::vector<uint32_t> known = used();
    std::vector<uint32_t> named;
    delta.taken = random->below(6);
    for (size_t n = 0; n < delta.taken; ++n) named.push_back(features.next_row(n));
    std::vector<uint32_t> next_free(free.begin(),
                                    free.end() - static_cast<std::ptrdiff_t>(std::min(free.size(), delta.taken)));
    for (uint32_t row : named) rows.resize(std::max(rows.size(), size_t{row} + 1), std::vector<float>(width));
    for (int i = 0; i < 3 && !known.empty(); ++i) {
      const size_t at = random->index(known.size());
      (random->chance(0.5) ? delta.freed : named).push_back(known[at]);
      known.erase(known.begin() + static_cast<std::ptrdiff_t>(at));
    }
    for (uint32_t row : named) {
      if (random->chance(0.3)) continue;  // without features, or as it was
      rows[row] = random->floats(width);
      delta.rows.push_back(row);
      delta.features.insert(delta.features.end(), rows[row].begin(), rows[row].end());
      delta.features.resize(delta.rows.size() * row_stride(width));
    }
    for (uint32_t row : delta.freed) {
      rows[row].assign(width, 0);
      next_free.push_back(row);
    }
    free = next_free;
    return delta;
  }

  void check(const EdgeFeatures& features) const {
    CHECK_EQ(features.table().rows(), rows.size());
    CHECK(features.free_list() == free);
    CHECK_EQ(features.room(), kNoRow - rows.size() + free.size());
    for (uint32_t row = 0; row < rows.size(); ++row) {
      CHECK(std::equal(rows[row].begin(), rows[row].end(), features.table().row(row)));
    }
  }
};

}  // namespace

TEST(edge_features_agree_with_plain_rows) {
  Random random;
  for (const std::string& directory : {std::string(), std::filesystem::temp_directory_path().string()}) {
    for (size_t width : {1u, 3u, 20u}) {
      EdgeFeatures features(width, directory);
      FeatureModel model{width, {}, {}};
      for (int turn = 0; turn < 300; ++turn) {
        const FeatureModel before = model;
        const EdgeFeaturesDelta delta = model.batch(features, &random);
        features.prepare(delta);
        before.check(features);
        if (random.chance(0.2)) {  // nothing comes of it
          model = before;
        } else {
          check_allocates_nothing([&] { features.commit(delta); });
        }
        features.settle();
        model.check(features);
      }
      EdgeFeatures restored(width, directory);
      std::vector<float> values;
      for (const auto& row : model.rows) values.insert(values.end(), row.begin(), row.end());
      restored.restore(values.data(), model.rows.size(), model.free, model.used());
      model.check(restored);
    }
  }
}

TEST(edge_features_refuse_rows_without_an_owner_or_with_two) {
  EdgeFeatures features(1, "");
  const float values[] = {1, 2, 0};
  auto restore = [&](std::vector<uint32_t> free, const std::vector<uint32_t>& used) {
    features.restore(values, 3, std::move(free), used);
  };
  CHECK_THROWS(restore({2}, {0, 0}), std::runtime_error, "two owners");
  CHECK_THROWS(restore({2}, {0, 2}), std::runtime_error, "two owners");
  CHECK_THROWS(restore({2}, {0, 3}), std::runtime_error, "is not there");
  CHECK_THROWS(restore({}, {0, 1}), std::runtime_error, "no edge names");
  CHECK_EQ(features.table().rows(), 0u);
  restore({2}, {1, 0});
  CHECK_EQ(features.table().row(1)[0], 2.0f);
  CHECK_EQ(features.next_row(0), 2u);
  CHECK_EQ(features.next_row(1), 3u);
}

}  // namespace livegnn::edge_features_test
