// Memory of samtrees follows the edges.
#include <vector>

#include "store/samtree/samtree_model.h"
#include "testing/testing.h"

namespace livegnn::samtree_compaction_test {

using namespace testing;

TEST(samtree_memory_follows_the_edges) {
  Random random;
  const auto nodes = static_cast<uint32_t>(testing::draws(500, 3000));
  Samtrees<uint32_t> trees({true, false, false}, {});
  trees.resize(nodes);
  std::vector<NeighborModel<uint32_t>> models(nodes);
  for (uint32_t i = 0; i < 300 * nodes; ++i) {
    const uint32_t node = random.index(nodes), id = random.index(1 << 20);
    trees.upsert(node, id, {1.0f});
    models[node][id] = {1.0f};
  }
  size_t entries = 0;
  for (uint32_t node = 0; node < nodes; ++node) {
    if (node % 3 != 0) {
      while (trees.degree(node) > 0) {
        uint32_t some = 0;
        trees.scan(node, [&](NeighborSpan span) { some = span.ids[0]; });
        trees.remove(node, some);
      }
      models[node].clear();
    }
    entries += trees.degree(node);
  }
  const size_t before = trees.bytes();
  CHECK(trees.wants_compaction());
  compact(&trees, [&] {
    for (size_t node = 0; node < nodes; ++node) check_against(trees, node, models[node]);
  });
  trees.check();
  for (size_t node = 0; node < nodes; ++node) check_against(trees, node, models[node]);
  CHECK(trees.bytes() < before / 2);
  CHECK(!trees.wants_compaction());
  // What compaction cannot help: a slab that is not full, for each size of a block.
  CHECK(trees.bytes() < 8 * entries + 200 * BlockHeap::kSlabBytes);
}

TEST(samtree_pays_for_no_column_that_it_lacks) {
  auto bytes = [](EdgeColumns columns) {
    Samtrees<uint32_t> trees(columns, {});
    trees.resize(100);
    for (uint32_t i = 0; i < 200'000; ++i) trees.upsert(i % 100, i, {});
    compact(&trees, [] {});
    return static_cast<double>(trees.bytes()) / 200'000;
  };
  const double plain = bytes({});
  CHECK(plain < 3.5);
  CHECK(bytes({true, false, false}) > plain + 4);
  CHECK(bytes({false, true, false}) > plain + 8);
  CHECK(bytes({false, false, true}) > plain + 4);
}

}  // namespace livegnn::samtree_compaction_test
