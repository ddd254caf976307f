// What a batch makes of the rows of a value.
#include "inference/rows/changes.h"

#include <vector>

#include "program/program.h"
#include "testing/testing.h"

namespace livegnn::changes_test {

using namespace testing;

TEST(changes_keep_the_rows_that_are_marked) {
  Random random;
  Changes changes;
  for (int round = 0; round < 50; ++round) {
    const size_t width = random.below(20), count = random.below(40);
    changes.begin(width);
    CHECK_EQ(changes.stride(), row_stride(width));
    float* const rows = changes.open(count);
    std::vector<uint32_t> nodes, kept, positions;
    std::vector<uint8_t> marks;
    for (uint32_t i = 0; i < count; ++i) {
      for (size_t c = 0; c < changes.stride(); ++c) rows[i * changes.stride() + c] = static_cast<float>(i);
      nodes.push_back(1000 - 3 * i);
      marks.push_back(random.chance(0.5));
      if (!marks.back()) continue;
      kept.push_back(nodes.back());
      positions.push_back(i);
    }
    changes.keep(nodes, marks);
    CHECK(changes.nodes() == kept);
    for (size_t i = 0; i < kept.size(); ++i) {
      CHECK_EQ(changes.position(i), positions[i]);
      CHECK(width == 0 || changes.row(i)[width - 1] == static_cast<float>(positions[i]));
      CHECK(changes.row(i) == changes.at(positions[i]));
      CHECK(changes.row(i) == changes.row_to_write(positions[i]));
    }
    const std::vector<float> elsewhere(3 * changes.stride() + 1);
    changes.lie_at(elsewhere.data());
    CHECK(changes.at(2) == elsewhere.data() + 2 * changes.stride());
  }
}

}  // namespace livegnn::changes_test
