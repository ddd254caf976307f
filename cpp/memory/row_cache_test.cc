#include "memory/row_cache.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <memory>
#include <numeric>
#include <tuple>

#include "testing/testing.h"

namespace livegnn::row_cache_test {
namespace {

using testing::Random;

const std::vector<RowCache::Type> kTypes = {{3, 2}, {0, 0}, {40, 1}};
constexpr size_t kMemory = size_t{4} << 20;

// Memory that a file has, as processes share it.
class SharedPages {
 public:
  SharedPages() : states(RowCache::kState * kTypes.size(), 0) {
    data =
        static_cast<unsigned char*>(mmap(nullptr, kMemory, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  }
  ~SharedPages() { munmap(data, kMemory); }

  unsigned char* data;
  std::vector<int64_t> states;
};

float feature_of(int64_t row, size_t channel, int version) {
  return static_cast<float>(row * 100 + static_cast<int64_t>(channel)) + 0.001F * static_cast<float>(version);
}

struct Model {
  struct Entry {
    int64_t degree;
    int version;
  };
  std::map<std::pair<size_t, int64_t>, Entry> entries;

  size_t bytes() const {
    size_t bytes = 0;
    for (const auto& [key, entry] : entries) bytes += kTypes[key.first].entry_bytes();
    return bytes;
  }
};

void check_same(const RowCache& cache, const Model& model, int64_t most_row) {
  CHECK_EQ(cache.size(), model.entries.size());
  CHECK_EQ(cache.bytes(), model.bytes());
  std::vector<int64_t> rows(static_cast<size_t>(most_row));
  std::iota(rows.begin(), rows.end(), 0);
  for (size_t of = 0; of < kTypes.size(); ++of) {
    const auto [width, noted] = kTypes[of];
    std::vector<float> out(rows.size() * width);
    std::vector<unsigned char> notes(rows.size() * noted);
    const auto there = std::make_unique<bool[]>(rows.size()), also = std::make_unique<bool[]>(rows.size());
    cache.read(of, RowCache::kFeatures, rows, out.data(), there.get());
    cache.read(of, RowCache::kNotes, rows, notes.data(), also.get());
    for (size_t i = 0; i < rows.size(); ++i) {
      const auto found = model.entries.find({of, rows[i]});
      CHECK_EQ(there[i], found != model.entries.end());
      CHECK_EQ(there[i], also[i]);
      if (!there[i]) continue;
      for (size_t j = 0; j < width; ++j) CHECK_EQ(out[i * width + j], feature_of(rows[i], j, found->second.version));
      for (size_t j = 0; j < noted; ++j) CHECK_EQ(notes[i * noted + j], static_cast<unsigned char>(rows[i] + j));
    }
  }
}

// Which entries are there, by what the cache says.
std::vector<std::pair<size_t, int64_t>> left_in(const RowCache& cache, const Model& model) {
  std::vector<std::pair<size_t, int64_t>> left;
  for (const auto& [key, entry] : model.entries) {
    std::vector<float> out(kTypes[key.first].width);
    bool there;
    cache.read(key.first, RowCache::kFeatures, std::vector<int64_t>{key.second}, out.data(), &there);
    if (there) left.push_back(key);
  }
  return left;
}

void follow(const RowCache& cache, int64_t room, Model* model) {
  const auto left = left_in(cache, *model);
  int64_t least_left = INT64_MAX, most_gone = -1;
  Model after;
  for (const auto& key : left) {
    after.entries.insert(*model->entries.find(key));
    least_left = std::min(least_left, model->entries.at(key).degree);
  }
  for (const auto& [key, entry] : model->entries) {
    if (!after.entries.contains(key)) most_gone = std::max(most_gone, entry.degree);
  }
  CHECK(most_gone <= least_left);
  CHECK(static_cast<int64_t>(after.bytes()) <= std::max<int64_t>(room, 0));
  if (most_gone >= 0) CHECK(static_cast<int64_t>(after.bytes() + kTypes[2].entry_bytes()) > room);
  *model = std::move(after);
}

void insert(Random* random, int version, int64_t most_row, RowCache* cache, Model* model) {
  const size_t of = random->index(kTypes.size());
  std::map<int64_t, int64_t> chosen;
  for (size_t i = random->index(60); i > 0; --i) {
    chosen[static_cast<int64_t>(random->below(static_cast<uint64_t>(most_row)))] =
        static_cast<int64_t>(random->below(7));
  }
  std::vector<int64_t> rows, degrees, at;
  std::vector<float> features;
  std::vector<unsigned char> notes;
  for (const auto& [row, degree] : chosen) {
    at.push_back(static_cast<int64_t>(rows.size()));
    rows.push_back(row);
    degrees.push_back(degree);
    for (size_t j = 0; j < kTypes[of].width; ++j) features.push_back(feature_of(row, j, version));
    for (size_t j = 0; j < kTypes[of].noted; ++j)
      notes.push_back(static_cast<unsigned char>(row + static_cast<int64_t>(j)));
    model->entries.try_emplace({of, row}, Model::Entry{degree, version});
  }
  const int64_t room = random->chance(0.7) ? int64_t{1} << 40 : static_cast<int64_t>(random->below(40'000));
  cache->insert(of, {rows, degrees, at, features.data(), notes.data()}, room);
  follow(*cache, room, model);
}

void check_against_model(RowCache* cache) {
  Random random;
  Model model;
  const int64_t most_row = 1 + static_cast<int64_t>(random.below(400));
  for (int version = 0; version < 200; ++version) {
    if (random.chance(0.02)) {
      cache->clear();
      model.entries.clear();
    } else if (random.chance(0.2)) {
      const auto room = static_cast<int64_t>(random.below(model.bytes() + 100));
      cache->evict(room, {});
      follow(*cache, room, &model);
    } else {
      insert(&random, version, most_row, cache, &model);
    }
    if (random.chance(0.2)) check_same(*cache, model, most_row);
  }
  check_same(*cache, model, most_row);
}

}  // namespace

TEST(row_cache_does_what_a_map_does) {
  RowCache cache(kTypes);
  check_against_model(&cache);
}

TEST(row_cache_does_it_in_memory_that_is_given) {
  SharedPages pages;
  RowCache cache(kTypes, {pages.data, kMemory}, pages.states);
  check_against_model(&cache);
  // Another one in the same memory has the same entries.
  const RowCache other(kTypes, {pages.data, kMemory}, pages.states);
  CHECK_EQ(other.size(), cache.size());
  CHECK_EQ(other.bytes(), cache.bytes());
}

TEST(row_cache_keeps_what_it_is_told_to_keep) {
  RowCache cache(std::vector<RowCache::Type>{{1, 0}});
  std::vector<int64_t> rows(100);
  std::iota(rows.begin(), rows.end(), 0);
  const std::vector<float> features(100, 1);
  CHECK_EQ(cache.insert(0, {rows, rows, rows, features.data(), nullptr}, 1 << 20), size_t{0});
  const std::vector<int64_t> keep = {0, 1, 2, 77, 500};
  CHECK_EQ(cache.evict(0, {{0, keep}}), size_t{96});
  const auto there = std::make_unique<bool[]>(100);
  std::vector<float> out(100);
  cache.read(0, RowCache::kFeatures, rows, out.data(), there.get());
  for (size_t i = 0; i < 100; ++i) CHECK_EQ(there[i], i < 3 || i == 77);
}

TEST(row_cache_takes_no_more_rows_than_the_memory_has_places_for) {
  SharedPages pages;
  RowCache cache({{1000, 0}}, {pages.data, size_t{64} << 10}, {pages.states.data(), RowCache::kState});
  const size_t most = cache.most(0);
  CHECK(most > 0 && most < 16);
  std::vector<int64_t> rows(most + 1), at(most + 1, 0);
  std::iota(rows.begin(), rows.end(), 0);
  const std::vector<float> features(1000, 1);
  CHECK_EQ(cache.insert(0, {rows, rows, at, features.data(), nullptr}, 1 << 20), size_t{0});
  CHECK_EQ(cache.size(), size_t{0});
  rows.pop_back();
  at.pop_back();
  cache.insert(0, {rows, rows, at, features.data(), nullptr}, 1 << 20);
  CHECK_EQ(cache.size(), most);
  // None of these is in memory at all.
  CHECK_EQ(RowCache({{1000, 0}}, {pages.data, 0}, {pages.states.data() + 2, RowCache::kState}).most(0), size_t{0});
}

TEST(row_cache_takes_a_row_that_is_given_twice_once) {
  RowCache cache(std::vector<RowCache::Type>{{1, 0}});
  const std::vector<int64_t> rows = {5, 6, 5}, at = {0, 1, 2};
  const std::vector<float> features = {1, 2, 3};
  cache.insert(0, {rows, at, at, features.data(), nullptr}, 1 << 20);
  CHECK_EQ(cache.size(), size_t{2});
  cache.evict(0, {});
  CHECK_EQ(cache.size(), size_t{0});
}

}  // namespace livegnn::row_cache_test
