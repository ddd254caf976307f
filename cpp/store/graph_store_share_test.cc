// The lists that a part keeps of a store: some trees as they are, and others of a few edges.
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "store/graph_store.h"
#include "store/graph_store_model.h"
#include "testing/testing.h"

namespace livegnn::graph_store_share_test {

using namespace testing;

namespace {

constexpr uint32_t kNodes = 40;

bool owns(uint32_t node) { return node % 3 == 1; }

std::vector<std::tuple<uint32_t, uint32_t, float>> list_of(const GraphStore& store, uint32_t node, bool out) {
  std::vector<std::tuple<uint32_t, uint32_t, float>> list;
  const auto visit = [&](const NeighborSpan& span) {
    for (size_t i = 0; i < span.size; ++i) list.emplace_back(span.ids[i], key_at(span, i), span.weights[i]);
  };
  out ? store.scan_out(node, visit) : store.scan_in(node, visit);
  return list;
}

// Two stores with the shares of both halves of the nodes have all lists of the whole.
void check_joined(const GraphStore& whole) {
  const bool keyed = whole.options().keyed;
  std::vector<std::unique_ptr<GraphStore>> halves;
  std::vector<const GraphStore*> stores;
  for (const bool first : {true, false}) {
    const auto owns_half = [&](uint32_t node) { return owns(node) == first; };
    halves.push_back(std::make_unique<GraphStore>(whole.options()));
    halves.back()->resize(kNodes, kNodes);
    if (keyed) {
      const auto share = whole.keyed_share(owns_half, owns_half);
      halves.back()->load(share.out, share.in, share.num_edges);
    } else {
      const auto share = whole.share(owns_half, owns_half);
      halves.back()->load(share.out, share.in, share.num_edges);
    }
    stores.push_back(halves.back().get());
  }
  const auto owner = [](uint32_t node) { return owns(node) ? size_t{0} : size_t{1}; };
  GraphStore joined(whole.options());
  joined.resize(kNodes, kNodes);
  if (keyed) {
    const auto all = GraphStore::keyed_join(stores, owner, owner);
    joined.load(all.out, all.in, all.num_edges);
  } else {
    const auto all = GraphStore::join(stores, owner, owner);
    joined.load(all.out, all.in, all.num_edges);
  }
  joined.check();
  CHECK_EQ(joined.num_edges(), whole.num_edges());
  for (const bool out : {true, false}) {
    for (uint32_t node = 0; node < kNodes; ++node) CHECK(list_of(joined, node, out) == list_of(whole, node, out));
  }
}

}  // namespace

TEST(a_share_has_the_lists_of_owned_nodes_and_the_edges_to_them) {
  for (const bool undirected : {false, true}) {
    for (const bool keyed : {false, true}) {
      const EdgeOptions options{{true, false}, undirected, false, true, {4, 1}, keyed};
      GraphStore whole(options), part(options);
      for (GraphStore* store : {&whole, &part}) store->resize(kNodes, kNodes);
      Random random;
      for (size_t i = 0; i < 1500; ++i) {
        const auto source = static_cast<uint32_t>(random.below(kNodes)),
                   target = static_cast<uint32_t>(random.below(9));
        const auto key = keyed ? static_cast<uint32_t>(random.below(3)) : 0;
        if (random.chance(0.6)) {
          whole.upsert(source, target, {random.between(0, 1), 0, kNoRow}, key);
        } else {
          whole.remove(source, target, key);
        }
      }
      if (keyed) {
        const auto share = whole.keyed_share(owns, owns);
        part.load(share.out, share.in, share.num_edges);
      } else {
        const auto share = whole.share(owns, owns);
        part.load(share.out, share.in, share.num_edges);
      }
      part.check();
      check_joined(whole);
      for (const bool out : {true, false}) {
        for (uint32_t node = 0; node < kNodes; ++node) {
          if (owns(node)) CHECK(list_of(part, node, out) == list_of(whole, node, out));
          Neighbors expected = neighbors(whole, node, out);
          if (!owns(node)) std::erase_if(expected, [](const auto& each) { return !owns(each.first.first); });
          check_same(expected, neighbors(part, node, out));
        }
      }
    }
  }
}

}  // namespace livegnn::graph_store_share_test
