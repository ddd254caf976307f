#include "presampling/tables/cell_heap.h"

#include <set>

#include "presampling/tables/cell_model.h"
#include "testing/allocations.h"
#include "testing/testing.h"

namespace livegnn::cell_heap_test {
namespace {

using testing::best_of;
using testing::CellList;
using testing::check_cell;
using testing::Random;

// Whatever the history, a cell is that of the list.
TEST(a_cell_is_a_function_of_the_list) {
  Random random;
  for (size_t round = 0; round < testing::draws(80, 200); ++round) {
    const CellOptions options = testing::random_cell_options(&random);
    CellHeap cells(options);
    CellDraw draw(&cells.format());
    CellList list;
    CellRoot root;
    const uint64_t node = random.below(1000), ids = 1 + random.below(60);
    for (int step = 0; step < 300; ++step) {
      const std::vector<CellEntry> before = best_of(options, node, list);
      const Neighbor neighbor = testing::random_neighbor(&random, ids);
      CellChange change;
      if (random.chance(0.65)) {
        list[neighbor.id] = {neighbor.weight, neighbor.time};
        change = cells.insert(node, &root, neighbor);
      } else {
        list.erase(neighbor.id);
        change = cells.erase(&root, neighbor.id);
      }
      const std::vector<CellEntry> after = best_of(options, node, list);
      if (change.incomplete) {
        draw.begin(node);
        for (const auto& [id, edge] : list) draw.offer({id, edge.weight, edge.time});
        cells.assign(&root, draw.finish());
      } else {
        std::set<uint64_t> old_ids, new_ids;
        for (const CellEntry& entry : before) old_ids.insert(entry.neighbor.id);
        for (const CellEntry& entry : after) new_ids.insert(entry.neighbor.id);
        CHECK_EQ(change.added, old_ids.count(neighbor.id) < new_ids.count(neighbor.id));
        if (change.added) old_ids.insert(neighbor.id);
        if (change.removed) CHECK_EQ(old_ids.erase(change.removed_id), 1u);
        CHECK(old_ids == new_ids);
        if (!change.changed) check_cell(options, cells.view(root), before);
      }
      check_cell(options, cells.view(root), after);
    }
  }
}

TEST(without_the_list_a_place_stays_empty_until_another_neighbour_comes) {
  const CellOptions options{SampleBy::kUniform, 3};
  CellHeap cells(options);
  CellRoot root;
  for (uint64_t id = 0; id < 100; ++id) cells.insert(7, &root, {id});
  const uint64_t first = cells.view(root).ids[0], second = cells.view(root).ids[1], last = cells.view(root).ids[2];
  const CellChange erased = cells.erase(&root, first);
  CHECK(erased.changed && erased.removed && erased.incomplete && erased.removed_id == first);
  CHECK_EQ(cells.view(root).size, 2u);
  CHECK(!cells.erase(&root, first).changed);
  // Whatever its priority.
  const CellChange inserted = cells.insert(7, &root, {1000});
  CHECK(inserted.added && !inserted.removed);
  const CellView cell = cells.view(root);
  const std::set<uint64_t> ids(cell.ids, cell.ids + cell.size);
  CHECK(ids == (std::set<uint64_t>{second, last, 1000}));
}

TEST(late_edges_and_ties_of_the_latest) {
  CellHeap cells({SampleBy::kLatest, 2});
  CellRoot root;
  cells.insert(0, &root, {5, 1, 10});
  cells.insert(0, &root, {6, 1, 20});
  CHECK(!cells.insert(0, &root, {7, 1, 9}).changed);            // late
  CHECK_EQ(cells.insert(0, &root, {4, 1, 10}).removed_id, 5u);  // the smaller id of equal times
  CHECK(!cells.insert(0, &root, {5, 1, 10}).changed);
  CHECK_EQ(cells.view(root).ids[0], 6u);
  CHECK_EQ(cells.view(root).ids[1], 4u);
  CHECK(cells.insert(0, &root, {6, 1, 3}).incomplete);  // it went back in time: another may be later
  CHECK_EQ(cells.view(root).ids[1], 6u);
}

TEST(few_neighbours_take_little_room) {
  const CellFormat format({SampleBy::kUniform, 25});
  CHECK_EQ(format.bytes(format.room(1)), 32u);
  CHECK_EQ(format.bytes(format.room(3)), 32u);
  CHECK_EQ(format.bytes(format.room(25)), 200u);
  for (uint32_t count : {1, 2, 3, 10, 25, 1000, 1024}) {
    const CellFormat other({SampleBy::kWeight, count, true, true});
    CHECK(other.bytes(other.room(count)) <= BlockHeap::kMaxBlock);
    CHECK_EQ(other.room(count), count);
    for (uint32_t size = 1; size <= count; ++size) {
      CHECK(other.room(size) >= size && other.room(size) <= count);
      CHECK(size <= 8 ? other.room(size) < size + 4 : 2 * other.room(size) < 3 * size);
      CHECK(size == 1 || other.room(size) >= other.room(size - 1));
    }
  }
}

TEST(cells_without_memory_stay_as_they_are) {
  Random random;
  CellHeap cells({SampleBy::kWeight, 1000, true, true});
  // Many roots, so that slabs of the heap are used up.
  std::vector<CellRoot> roots(3000);
  for (int i = 0; i < 20'000; ++i) {
    CellRoot& root = roots[random.below(roots.size())];
    const CellRoot before = root;
    const Neighbor neighbor{random.below(1000), random.between(0.1f, 2)};
    const std::vector<uint64_t> ids(cells.view(root).ids, cells.view(root).ids + root.size);
    testing::fail_each_allocation([&] { cells.insert(1, &root, neighbor); },
                                  [&] {
                                    CHECK(root.block == before.block && root.size == before.size);
                                    CHECK(std::equal(ids.begin(), ids.end(), cells.view(root).ids));
                                  });
  }
}

TEST(a_heap_of_cells_gives_memory_back) {
  Random random;
  CellHeap cells({SampleBy::kUniform, 25});
  std::vector<CellRoot> roots(60'000);
  for (size_t node = 0; node < roots.size(); ++node) {
    for (uint64_t id = 0; id < 20; ++id) cells.insert(node, &roots[node], {id});
  }
  const size_t most = cells.bytes();
  for (size_t node = 0; node < roots.size(); ++node) {
    if (node % 10 != 0) cells.free(&roots[node]);
  }
  CHECK(cells.is_sparse());
  cells.compact([&](const auto& move) {
    for (CellRoot& root : roots) {
      if (root.size > 0) move(&root.block);
    }
  });
  CHECK(!cells.is_sparse());
  CHECK(cells.bytes() < most / 5);
  const CellOptions options{SampleBy::kUniform, 25};
  CellList list;
  for (uint64_t id = 0; id < 20; ++id) list[id] = {};
  for (size_t node = 0; node < roots.size(); node += 10) {
    check_cell(options, cells.view(roots[node]), best_of(options, node, list));
  }
}

}  // namespace
}  // namespace livegnn::cell_heap_test
