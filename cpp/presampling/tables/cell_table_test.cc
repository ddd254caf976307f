#include "presampling/tables/cell_table.h"

#include <deque>
#include <set>

#include "presampling/tables/cell_model.h"
#include "testing/allocations.h"
#include "testing/chi_square.h"
#include "testing/testing.h"

namespace livegnn::cell_table_test {
namespace {

using testing::best_of;
using testing::CellList;
using testing::check_cell;
using testing::Random;
using Lists = std::map<uint64_t, CellList>;
using Ids = std::set<uint64_t>;

Ids ids_of(const CellTable& table, uint64_t node) {
  const CellView cell = table.find(node);
  return {cell.ids, cell.ids + cell.size};
}

void check_table(const CellTable& table, const Lists& lists) {
  table.check();
  size_t cells = 0;
  for (const auto& [node, list] : lists) {
    const std::vector<CellEntry> expected = best_of(table.format().options(), node, list);
    check_cell(table.format().options(), table.find(node), expected);
    cells += !expected.empty();
  }
  CHECK_EQ(table.size(), cells);
}

// One change, and the cell drawn anew from the list where it has to be; what was reported is held against the ids.
void change_edge(CellTable* table, Lists* lists, uint64_t node, const Neighbor& neighbor, bool has) {
  Ids ids = ids_of(*table, node);
  CellList& list = (*lists)[node];
  CellChange change;
  if (has) {
    list[neighbor.id] = {neighbor.weight, neighbor.time};
    change = table->insert(node, neighbor);
  } else {
    list.erase(neighbor.id);
    change = table->erase(node, neighbor.id);
  }
  if (change.added) CHECK(ids.insert(neighbor.id).second);
  if (change.removed) CHECK_EQ(ids.erase(change.removed_id), 1u);
  if (change.incomplete) {
    table->redraw(
        node,
        [&](const auto& offer) {
          for (const auto& [id, edge] : list) offer({id, edge.weight, edge.time});
        },
        [&](uint64_t id) { CHECK_EQ(ids.erase(id), 1u); }, [&](uint64_t id) { CHECK(ids.insert(id).second); });
  }
  CHECK(ids == ids_of(*table, node));
}

TEST(a_cell_table_follows_the_lists) {
  Random random;
  for (int round = 0; round < 60; ++round) {
    CellTable table(testing::random_cell_options(&random));
    Lists lists;
    const uint64_t nodes = 1 + random.below(40), ids = 1 + random.below(60);
    for (int step = 0; step < 1'500; ++step) {
      const uint64_t node = random.below(nodes) * 0x123456789abcdefULL;
      if (random.chance(0.01)) {
        Ids removed;
        table.erase_cell(node, [&](uint64_t id) { removed.insert(id); });
        Ids expected;
        for (const CellEntry& entry : best_of(table.format().options(), node, lists[node])) {
          expected.insert(entry.neighbor.id);
        }
        CHECK(removed == expected);
        lists.erase(node);
      } else {
        const double grows = step < 1'000 ? 0.7 : 0.2;
        change_edge(&table, &lists, node, testing::random_neighbor(&random, ids), random.chance(grows));
      }
      if (step % 100 == 0) check_table(table, lists);
    }
    check_table(table, lists);
    for (const auto& [node, list] : lists) table.erase_cell(node, [](uint64_t) {});
    CHECK_EQ(table.size(), 0u);
  }
}

// Two tables of cells of ids alone that share their rows, and one whose entries have times, which takes another way.
TEST(tables_that_share_rows_are_tables_of_their_own) {
  Random random;
  for (int round = 0; round < 30; ++round) {
    const auto count = [&] { return 1 + random.index(round % 2 == 0 ? 40 : 9); };
    const CellOptions options[] = {{SampleBy::kUniform, count(), false, false, 7, 0},
                                   {SampleBy::kUniform, count(), false, false, 7, 1},
                                   {SampleBy::kUniform, count(), false, true, 7, 2}};
    NodeTable nodes;
    std::deque<CellTable> tables, alone;
    for (const CellOptions& of_table : options) {
      tables.emplace_back(of_table, &nodes);
      alone.emplace_back(of_table);
    }
    const uint64_t ids = 1 + random.below(30);
    for (int step = 0; step < 1'500; ++step) {
      const uint64_t node = random.below(ids);
      const Neighbor neighbor = testing::random_neighbor(&random, 60);
      const bool has = random.chance(step < 1'000 ? 0.8 : 0.2);
      for (size_t i = 0; i < tables.size(); ++i) {
        CellChange change;
        if (has && i < 2 && random.chance(0.7)) {
          uint64_t* const row = nodes.insert(node);
          const CellTable::Draw draw = tables[i].draw_of_id(node, neighbor.id);
          tables[i].prefetch_ids(row, draw.priority);
          change = tables[i].insert_id_at(row, draw, neighbor.id);
        } else {
          change = has ? tables[i].insert(node, neighbor) : tables[i].erase(node, neighbor.id);
        }
        const CellChange other = has ? alone[i].insert(node, neighbor) : alone[i].erase(node, neighbor.id);
        CHECK(change.changed == other.changed && change.first == other.first && change.added == other.added &&
              change.removed == other.removed && change.incomplete == other.incomplete &&
              change.removed_id == other.removed_id);
      }
    }
    for (size_t i = 0; i < tables.size(); ++i) {
      tables[i].check();
      CHECK_EQ(tables[i].size(), alone[i].size());
      alone[i].for_each([&](uint64_t node, const CellView& cell) {
        const CellView other = tables[i].find(node);
        CHECK_EQ(cell.size, other.size);
        for (uint32_t k = 0; k < cell.size; ++k) CHECK_EQ(cell.ids[k], other.ids[k]);
      });
    }
    for (CellTable& table : tables) table.clear();
    CHECK_EQ(nodes.size(), 0u);
  }
}

// Every sequence that can be drawn without replacement, with its probability.
void enumerate(const std::vector<double>& weights, size_t count, std::vector<uint64_t> drawn, double probability,
               std::map<std::vector<uint64_t>, double>* to) {
  double left = 0;
  for (uint64_t i = 0; i < weights.size(); ++i) {
    if (std::find(drawn.begin(), drawn.end(), i) == drawn.end()) left += weights[i];
  }
  if (drawn.size() == count || left == 0) {
    (*to)[drawn] += probability;
    return;
  }
  for (uint64_t i = 0; i < weights.size(); ++i) {
    if (weights[i] == 0 || std::find(drawn.begin(), drawn.end(), i) != drawn.end()) continue;
    std::vector<uint64_t> longer = drawn;
    longer.push_back(i);
    enumerate(weights, count, longer, probability * weights[i] / left, to);
  }
}

// The cells of many nodes, after ten million changes: neighbours come, go, come again and change their weights. In the
// end all nodes have the same neighbours, and these are drawn as if nothing else had ever been.
void check_distribution(SampleBy by, const std::vector<double>& weights) {
  constexpr size_t kNodes = 40'000;
  const size_t updates = testing::draws(500'000, 10'000'000);
  const auto ids = static_cast<uint64_t>(weights.size()) + 3;
  CellTable table({by, 2, false, false, 11, 0});
  std::vector<uint32_t> present(kNodes);          // a bit for each neighbour
  std::vector<float> weight(kNodes * ids, 1.0f);  // of each
  const auto change = [&](uint64_t node, uint64_t id, bool has, float to) {
    present[node] = (present[node] & ~(1u << id)) | (has ? 1u << id : 0);
    weight[node * ids + id] = to;
    const CellChange result = has ? table.insert(node, {id, to}) : table.erase(node, id);
    if (!result.incomplete) return;
    const auto scan = [&](const auto& offer) {
      for (uint64_t i = 0; i < ids; ++i) {
        if ((present[node] >> i & 1) != 0) offer({i, weight[node * ids + i]});
      }
    };
    table.redraw(node, scan, [](uint64_t) {}, [](uint64_t) {});
  };
  for (uint64_t i = 0; i < updates; ++i) {
    const uint64_t random = MixHash{}(i);
    const uint64_t node = random % kNodes, id = (random >> 20) % ids;
    change(node, id, (random >> 40) % 8 < 5, static_cast<float>(1 + (random >> 50)) / 1000);
  }
  std::map<std::vector<uint64_t>, double> expected;
  enumerate(weights, 2, {}, 1, &expected);
  std::map<std::vector<uint64_t>, size_t> place;
  std::vector<double> probabilities;
  for (const auto& [sequence, probability] : expected) {
    place[sequence] = probabilities.size();
    probabilities.push_back(probability);
  }
  std::vector<size_t> seen(probabilities.size());
  for (uint64_t node = 0; node < kNodes; ++node) {
    for (uint64_t id = 0; id < ids; ++id) {
      const bool stays = id < weights.size();
      change(node, id, stays, stays ? static_cast<float>(weights[id]) : 1.0f);
    }
    const CellView cell = table.find(node);
    const std::vector<uint64_t> drawn(cell.ids, cell.ids + cell.size);
    CHECK_EQ(place.count(drawn), 1u);
    ++seen[place[drawn]];
  }
  CHECK(testing::chi_square(seen, probabilities) < testing::chi_square_limit(probabilities.size() - 1));
}

TEST(uniform_cells_have_the_law_of_a_draw) { check_distribution(SampleBy::kUniform, {1, 1, 1, 1, 1}); }
TEST(weighted_cells_have_the_law_of_successive_draws) { check_distribution(SampleBy::kWeight, {1, 2, 3, 0, 4, 0.5}); }

TEST(nodes_that_come_and_go_leave_nothing_in_a_cell_table) {
  CellTable table({SampleBy::kUniform, 25});
  for (uint64_t node = 0; node < 100'000; ++node) {
    for (uint64_t id = 0; id < 3; ++id) table.insert(node, {id});
  }
  table.settle();
  // A node of degree 3: a slot, four places, and what is free.
  CHECK(table.bytes() < 100'000 * 2 * (32 + 32));
  const size_t most = table.bytes();
  for (uint64_t node = 100'000; node < 200'000; ++node) {
    for (uint64_t id = 0; id < 3; ++id) table.insert(node, {id});
    table.erase_cell(node - 100'000, [](uint64_t) {});
    if (node % 1000 == 0) table.settle();
  }
  CHECK(table.bytes() < most + most / 2 + (size_t{4} << 20));
  for (uint64_t node = 100'000; node < 200'000; ++node) {
    for (uint64_t id = 0; id < 3; ++id) table.erase(node, id);
  }
  table.settle();
  CHECK_EQ(table.size(), 0u);
  CHECK(table.bytes() < size_t{1} << 20);
}

TEST(a_cell_table_is_saved_and_loaded) {
  Random random;
  for (int round = 0; round < 40; ++round) {
    const CellOptions options = testing::random_cell_options(&random);
    CellTable table(options), loaded(options);
    Lists lists;
    for (int i = 0; i < 400; ++i) {
      change_edge(&table, &lists, random.below(20), testing::random_neighbor(&random, 50), random.chance(0.8));
    }
    loaded.insert(3, {4});
    Arrays arrays;
    table.save("q0_", &arrays);
    const auto views_of = [&] {
      ArrayViews views;
      for (const SavedArray& array : arrays.all()) {
        std::visit([&](const auto& values) { views.put(array.name, std::span(values)); }, array.values);
      }
      return views;
    };
    loaded.load("q0_", views_of());
    check_table(loaded, lists);
    if (table.size() == 0) continue;
    // Sizes that are not those of the entries, and entries in another order.
    auto& sizes = std::get<std::vector<uint32_t>>(arrays.all()[1].values);
    ++sizes[random.below(sizes.size())];
    CHECK_THROWS(loaded.load("q0_", views_of()), std::runtime_error, "cells: ");
    CHECK_EQ(loaded.size(), 0u);
    table.save("other_", &arrays);
    CellOptions otherwise = options;
    ++otherwise.seed;
    if (options.by == SampleBy::kUniform && options.count > 2 && table.size() > 10) {
      CellTable other(otherwise);
      CHECK_THROWS(other.load("other_", views_of()), std::runtime_error, "order of their priorities");
    }
  }
}

TEST(a_cell_that_was_taken_changes_for_the_first_time) {
  CellTable table({SampleBy::kUniform, 2});
  CHECK_EQ(table.take(1).size, 0u);
  CHECK(table.insert(1, {5}).first);
  CHECK(!table.insert(1, {6}).first);
  CHECK(!table.insert(1, {6}).changed);
  CHECK_EQ(table.take(1).size, 2u);
  CHECK(!table.insert(1, {6}).changed);
  CHECK(table.erase(1, 6).first);
  CHECK(!table.erase(1, 5).first);
  CHECK(table.insert(1, {5}).first);
  table.check();
}

TEST(a_cell_table_without_memory_stays_as_it_is) {
  Random random;
  CellTable table({SampleBy::kLatest, 20, true});
  Lists lists;
  for (int i = 0; i < 3'000; ++i) {
    const uint64_t node = random.below(3'000);
    const Neighbor neighbor = testing::random_neighbor(&random, 100);
    const size_t nodes = table.size();
    testing::fail_each_allocation([&] { table.insert(node, neighbor); }, [&] { CHECK_EQ(table.size(), nodes); });
    lists[node][neighbor.id] = {neighbor.weight, neighbor.time};
  }
  table.check();
  check_table(table, lists);
}

}  // namespace
}  // namespace livegnn::cell_table_test
