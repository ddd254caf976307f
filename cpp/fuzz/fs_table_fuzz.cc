#include <algorithm>
#include <vector>

#include "fuzz/fuzz.h"
#include "store/samtree/fs_table.h"

namespace livegnn {
namespace {

template <class Table>
void check(const std::vector<float>& weights, const std::vector<float>& table, fuzz::Input* input) {
  const auto n = static_cast<uint32_t>(weights.size());
  std::vector<float> fresh(Table::size(n));
  Table::build(weights.data(), n, fresh.data());
  CHECK(fresh == table);
  double exact = 0;
  for (float weight : weights) exact += std::max(0.0f, weight);
  const double total = Table::total(weights.data(), n, table.data());
  // Where floats lose bits for being small, the bound is absolute.
  const double tolerance = 32 * std::ldexp(exact, -24) + 1e-36;
  CHECK_NEAR(total, exact, tolerance);

  double at = total * input->byte() / 256;
  const uint32_t found = Table::find(weights.data(), n, table.data(), at);
  CHECK_EQ(found < n, exact > 0);
  if (found == n) return;
  CHECK(weights[found] > 0);
  double before = 0;
  for (uint32_t i = 0; i < found; ++i) before += std::max(0.0f, weights[i]);
  CHECK(before <= at + tolerance);
  CHECK(before + weights[found] >= at - tolerance);
}

template <class Table>
void change(fuzz::Input* input) {
  std::vector<float> weights, table;
  while (input->more()) {
    const uint8_t kind = input->byte();
    const auto n = static_cast<uint32_t>(weights.size());
    if (n == 0 || (kind < 140 && n < 1024)) {
      // A few at once, for else the long tables take long inputs.
      for (uint32_t more = 1 + kind % 32; more > 0; --more) {
        weights.push_back(input->weight());
        table.resize(Table::size(static_cast<uint32_t>(weights.size())));
        Table::append(weights.data(), static_cast<uint32_t>(weights.size()), table.data());
      }
    } else if (kind < 200) {
      const uint32_t i = input->below(n);
      weights[i] = input->weight();
      Table::update(weights.data(), n, table.data(), i);
    } else {
      const uint32_t i = input->below(n);
      weights[i] = weights.back();
      weights.pop_back();
      table.resize(Table::size(n - 1));
      Table::remove(weights.data(), n - 1, table.data(), i);
    }
    check<Table>(weights, table, input);
  }
}

void body(fuzz::Input* input) {
  switch (input->below(3)) {
    case 0:
      return change<FSTable>(input);
    case 1:
      return change<BasicFSTable<4>>(input);
    default:
      return change<BasicFSTable<1>>(input);
  }
}

}  // namespace
}  // namespace livegnn

FUZZ(livegnn::body)
