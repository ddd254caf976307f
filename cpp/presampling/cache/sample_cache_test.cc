#include "presampling/cache/sample_cache.h"

#include <map>

#include "presampling/tables/cell_model.h"
#include "testing/testing.h"

namespace livegnn::sample_cache_test {
namespace {

using testing::Random;

const std::vector<PlannedEdgeType> kTypes{{0, 1, false, true, true}};

QueryPlan plan_of(bool weighted, bool timed) {
  return QueryPlan(0, 2, kTypes,
                   std::vector<OneHopRequest>{{0, false, 25, SampleBy::kLatest, {kSeeds}, weighted, timed}});
}

// What was published last is what is found; workers that publish do not mix.
TEST(a_cache_is_a_map_of_what_was_published) {
  Random random;
  for (size_t round = 0; round < testing::draws(4, 16); ++round) {
    const bool weighted = round % 2 == 0, timed = round % 4 < 2;
    const QueryPlan plan = plan_of(weighted, timed);
    CellOptions options = plan.cell_options(0, 1);
    SampleCache cache(plan, {2, 0}, 4, 2);
    PublicationWriter writers[2] = {{0, 4}, {1, 4}};
    std::map<uint64_t, std::vector<CellEntry>> samples;
    std::map<uint64_t, std::vector<float>> rows;
    for (int step = 0; step < 2'000; ++step) {
      const uint64_t node = random.below(100);
      PublicationWriter& writer = writers[node % 2];
      if (random.chance(0.5)) {
        CellHeap cells(options);
        CellRoot root;
        for (uint64_t i = 1 + random.below(40); i > 0; --i) {
          cells.insert(node, &root, testing::random_neighbor(&random, 60));
        }
        writer.sample(0, node, cells.format(), cells.view(root));
        samples[node].clear();
        for (uint32_t i = 0; i < root.size; ++i) {
          samples[node].push_back({0, cells.format().neighbor_at(cells.view(root), i)});
        }
      } else if (random.chance(0.5)) {
        writer.no_sample(0, node);
        samples.erase(node);
      } else if (random.chance(0.5)) {
        rows[node] = random.floats(2);
        writer.features(0, node, rows[node]);
      } else {
        writer.no_features(0, node);
        rows.erase(node);
      }
      if (random.chance(0.9)) continue;
      for (PublicationWriter& one : writers) {
        one.finish();
        cache.apply(one.bytes());
        if (random.chance(0.3)) cache.apply(one.bytes());
        one.clear();
      }
      CHECK_EQ(cache.num_samples(0), samples.size());
      CHECK_EQ(cache.num_features(0), rows.size());
      Lookups lookups;
      for (uint64_t asked = 0; asked < 100; ++asked) {
        cache.prefetch_sample(0, asked);
        cache.prefetch_cell(0, asked);
        const CellView cell = cache.sample(0, asked, &lookups);
        const auto& expected = samples.count(asked) > 0 ? samples[asked] : std::vector<CellEntry>{};
        CHECK_EQ(cell.size, expected.size());
        for (uint32_t i = 0; i < cell.size; ++i) {
          CHECK_EQ(cell.ids[i], expected[i].neighbor.id);
          if (weighted) CHECK_EQ(cell.weights[i], expected[i].neighbor.weight);
          if (timed) CHECK_EQ(cell.times[i], expected[i].neighbor.time);
        }
        const float* row = cache.features(0, asked, &lookups);
        CHECK_EQ(row != nullptr, rows.count(asked) == 1);
        if (row != nullptr) CHECK(std::equal(row, row + 2, rows[asked].begin()));
      }
      CHECK(lookups.samples == 100 && lookups.features == 100);
    }
    cache.clear();
    CHECK(cache.num_samples(0) == 0 && cache.num_features(0) == 0);
    CHECK(cache.bytes() < 200'000);
  }
}

TEST(a_worker_that_begins_again_is_read_again) {
  SampleCache cache(plan_of(false, false), {2, 0}, 0, 2);
  const auto tell = [&](uint32_t sender, uint64_t sequence, uint64_t node) {
    PublicationWriter writer(sender, 0);
    writer.set_next_sequence(sequence);
    writer.features(0, node, std::vector<float>{1, 2});
    writer.finish();
    cache.apply(writer.bytes());
    return cache.num_features(0);
  };
  CHECK_EQ(tell(0, 0, 1), 1u);
  CHECK_EQ(tell(1, 0, 2), 2u);
  CHECK_EQ(tell(0, 0, 3), 2u);  // a block of this number was there before
  cache.restart(0);
  CHECK_EQ(tell(0, 0, 3), 3u);
  CHECK_EQ(tell(1, 0, 4), 3u);
  CHECK_THROWS(cache.restart(2), std::invalid_argument, "no sampling worker 2");
}

TEST(a_cache_refuses_what_is_not_for_it) {
  const QueryPlan plan = plan_of(false, false);
  CHECK_THROWS(SampleCache(plan, {2}, 0, 1), std::invalid_argument, "2 node types, and widths of 1");
  const auto refused = [&](uint32_t receiver, const char* why, const auto& write) {
    SampleCache cache(plan, {2, 0}, 0, 1);
    PublicationWriter writer(0, receiver);
    writer.no_sample(0, 1);
    write(&writer);
    writer.finish();
    CHECK_THROWS(cache.apply(writer.bytes()), std::runtime_error, why);
  };
  const char* const unfit = "does not fit the query";
  const std::vector<float> row(3);
  refused(1, "for serving worker 1", [](PublicationWriter*) {});
  refused(0, unfit, [](PublicationWriter* writer) { writer->no_sample(1, 1); });
  refused(0, unfit, [](PublicationWriter* writer) { writer->no_features(2, 1); });
  refused(0, unfit, [](PublicationWriter* writer) { writer->reference(0, 1, 0, 1); });
  refused(0, unfit, [&](PublicationWriter* writer) { writer->features(0, 1, row); });
  CellHeap cells({SampleBy::kUniform, 1000, true});
  CellRoot root;
  for (uint64_t id = 0; id < 3; ++id) cells.insert(1, &root, {id});
  refused(0, unfit, [&](PublicationWriter* writer) { writer->sample(0, 1, cells.format(), cells.view(root)); });
  CellHeap more({SampleBy::kUniform, 1000});
  CellRoot large;
  for (uint64_t id = 0; id < 26; ++id) more.insert(1, &large, {id});
  refused(0, unfit, [&](PublicationWriter* writer) { writer->sample(0, 1, more.format(), more.view(large)); });
  PublicationWriter writer(0, 0);
  writer.set_next_sequence(1);
  writer.no_sample(0, 1);
  writer.finish();
  SampleCache cache(plan, {2, 0}, 0, 1);
  CHECK_THROWS(cache.apply(writer.bytes()), std::runtime_error, "number 0 is missing");
}

}  // namespace
}  // namespace livegnn::sample_cache_test
