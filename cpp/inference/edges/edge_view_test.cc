#include "inference/edges/edge_view.h"

#include <algorithm>
#include <set>
#include <stdexcept>
#include <tuple>

#include "testing/testing.h"

namespace livegnn::edge_view_test {
namespace {

using testing::Random;
using Found = std::multiset<std::tuple<uint32_t, uint32_t, float>>;  // node, key, weight

constexpr uint32_t kNodes = 12;

template <class Scan>
Found found(const Scan& scan) {
  Found all;
  scan([&](NeighborSpan span) {
    for (size_t i = 0; i < span.size; ++i) all.emplace(span.ids[i], key_at(span, i), span.weights[i]);
  });
  return all;
}

EdgeOptions options(bool undirected, bool keyed) {
  EdgeOptions made{{true, false, false}, undirected, false};
  made.samtree = {4, 1};
  made.keyed = keyed;
  return made;
}

}  // namespace

TEST(edge_view_reads_a_store_either_way) {
  Random random;
  for (bool undirected : {false, true}) {
    for (bool keyed : {false, true}) {
      GraphStore store(options(undirected, keyed));
      store.resize(kNodes, kNodes);
      for (int i = 0; i < 200; ++i) {
        const auto source = static_cast<uint32_t>(random.below(kNodes)),
                   target = static_cast<uint32_t>(random.below(3));
        store.upsert(source, target, {random.between(0, 1), 0}, keyed ? static_cast<uint32_t>(random.below(5)) : 0);
      }
      const EdgeView view(store, false), reversed(store, true);
      CHECK_EQ(view.keyed(), keyed);
      for (uint32_t node = 0; node < kNodes; ++node) {
        const Found in = found([&](auto visit) { store.scan_in(node, visit); });
        const Found out = found([&](auto visit) { store.scan_out(node, visit); });
        CHECK(found([&](auto visit) { view.scan_in(node, visit); }) == in);
        CHECK(found([&](auto visit) { view.scan_out(node, visit); }) == out);
        CHECK(found([&](auto visit) { reversed.scan_in(node, visit); }) == out);
        CHECK(found([&](auto visit) { reversed.scan_out(node, visit); }) == in);
        CHECK_EQ(view.degree_in(node), in.size());
        CHECK_EQ(view.degree_out(node), out.size());
        CHECK_EQ(reversed.degree_in(node), out.size());
        CHECK_EQ(reversed.degree_out(node), in.size());
        CHECK_EQ(view.out_leaf(node), store.out_leaf(node));
        CHECK_EQ(reversed.out_leaf(node) == nullptr, in.empty());
        Found loops;
        reversed.scan_loops(node,
                            [&](uint32_t key, const EdgeValue& value) { loops.emplace(node, key, value.weight); });
        Found expected;
        std::copy_if(in.begin(), in.end(), std::inserter(expected, expected.end()),
                     [&](const auto& edge) { return std::get<0>(edge) == node; });
        CHECK(loops == expected);
      }
    }
  }
}

TEST(edge_view_needs_both_lists) {
  EdgeOptions one_sided = options(false, false);
  one_sided.in_lists = false;
  const GraphStore store(one_sided);
  for (bool reversed : {false, true})
    CHECK_THROWS(EdgeView(store, reversed), std::logic_error, "no lists of in-neighbours");
}

}  // namespace livegnn::edge_view_test
