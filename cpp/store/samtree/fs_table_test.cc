#include "store/samtree/fs_table.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "testing/testing.h"

namespace livegnn::fs_table_test {
namespace {

using testing::Random;

template <class Table>
struct Weights {
  std::vector<float> weights, table;

  uint32_t size() const { return static_cast<uint32_t>(weights.size()); }
  void fit() { table.resize(Table::size(size())); }
  void append(float weight) {
    weights.push_back(weight);
    fit();
    Table::append(weights.data(), size(), table.data());
  }
  void set(uint32_t i, float weight) {
    weights[i] = weight;
    Table::update(weights.data(), size(), table.data(), i);
  }
  void remove(uint32_t i) {
    weights[i] = weights.back();
    weights.pop_back();
    fit();
    Table::remove(weights.data(), size(), table.data(), i);
  }
};

template <class Table>
void check_table(const Weights<Table>& w) {
  std::vector<float> fresh(Table::size(w.size()));
  Table::build(w.weights.data(), w.size(), fresh.data());
  CHECK(fresh == w.table);  // whatever came before: an entry is a function of the weights
  double exact = 0;
  for (float weight : w.weights) exact += std::max(0.0f, weight);
  const double total = Table::total(w.weights.data(), w.size(), w.table.data());
  CHECK(std::abs(total - exact) <= 32 * std::ldexp(exact, -24));
}

template <class Table>
void run(int changes, Random* random) {
  Weights<Table> w;
  for (int i = 0; i < changes; ++i) {
    const float weight = random->chance(0.1) ? 0 : random->chance(0.05) ? -1 : random->between(0, 2);
    const double kind = random->between(0, 1);
    if (w.size() == 0 || (kind < 0.5 && w.size() < 300)) {
      w.append(weight);
    } else if (kind < 0.8) {
      w.set(random->index(w.size()), weight);
    } else {
      w.remove(random->index(w.size()));
    }
    if (i % 16 == 0) check_table(w);
    if (w.size() == 0) continue;
    // The paper's property: entry 2^k - 1 is the sum of all runs up to it (theorem 5).
    const double total = Table::total(w.weights.data(), w.size(), w.table.data());
    if (!(total > 0)) continue;
    const double at = random->between(0, 1) * total * 0.999;
    const uint32_t found = Table::find(w.weights.data(), w.size(), w.table.data(), at);
    CHECK(found < w.size());
    CHECK(w.weights[found] > 0);
    double before = 0;
    for (uint32_t j = 0; j < found; ++j) before += std::max(0.0f, w.weights[j]);
    CHECK(before <= at + 1e-5 * total);
    CHECK(before + w.weights[found] >= at - 1e-5 * total);
  }
}

}  // namespace

TEST(fs_table_is_a_function_of_the_weights) {
  Random random;
  run<BasicFSTable<1>>(4000, &random);
  run<BasicFSTable<4>>(4000, &random);
  run<BasicFSTable<32>>(4000, &random);
}

TEST(fs_table_with_a_run_of_one_is_the_papers) {
  using Table = BasicFSTable<1>;
  const std::vector<float> weights{0.5f, 0.25f, 0.125f, 1, 2, 4};
  std::vector<float> table(6);
  Table::build(weights.data(), 6, table.data());
  CHECK(table == std::vector<float>({0.5f, 0.75f, 0.125f, 1.875f, 2, 6}));
}

TEST(fs_table_does_not_drift_in_millions_of_updates) {
  Random random;
  Weights<FSTable> w;
  for (int i = 0; i < 256; ++i) w.append(1);
  for (int i = 0; i < 2'000'000; ++i) w.set(random.index(256), random.chance(0.01) ? 1e20f : random.between(0, 1));
  for (uint32_t i = 0; i < 256; ++i) {
    if (w.weights[i] > 1) w.set(i, 0.5f);
  }
  check_table(w);
}

TEST(fs_table_draws_nothing_from_zeros) {
  Weights<FSTable> w;
  for (int i = 0; i < 100; ++i) w.append(i % 2 == 0 ? 0.0f : -1.0f);
  CHECK_EQ(FSTable::total(w.weights.data(), 100, w.table.data()), 0.0);
  CHECK_EQ(FSTable::find(w.weights.data(), 100, w.table.data(), 0), 100u);
  w.set(3, 1);
  // Past the end, as rounding may carry it: the only weight there is.
  CHECK_EQ(FSTable::find(w.weights.data(), 100, w.table.data(), 1.0), 3u);
}

}  // namespace livegnn::fs_table_test
