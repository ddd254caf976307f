// What a part of a graph keeps of the edges of one type.
#include <vector>

#include "store/graph_store.h"
#include "threads/parallel.h"

namespace livegnn {

template <>
const EdgeLists<uint32_t>& GraphStore::lists_of() const {
  return lists_;
}

template <>
const EdgeLists<uint64_t>& GraphStore::lists_of() const {
  return *keyed_;
}

// The lists of nodes that the part does not own are those of a store which has only the edges between a node that it
// owns and one that it does not.
template <class Id>
GraphStore::Share<Id> GraphStore::share_lists(const EdgeLists<Id>& lists, const Owns& owns_source,
                                              const Owns& owns_target) const {
  Share<Id> share;
  std::vector<EdgeUpdate> crossing;
  for (uint32_t source = 0; source < lists.out.size(); ++source) {
    const bool owned = owns_source(source);
    scan_out(source, [&](const NeighborSpan& span) {
      for (size_t i = 0; i < span.size; ++i) {
        const uint32_t target = span.ids[i];
        if (options_.undirected && target < source) continue;  // as it is in the list of the other end
        const bool other = owns_target(target);
        if (owned || other) ++share.num_edges;
        if (owned == other) continue;
        const EdgeValue value{span.weights == nullptr ? 1.0f : span.weights[i],
                              span.times == nullptr ? 0.0 : span.times[i],
                              span.rows == nullptr ? kNoRow : span.rows[i]};
        crossing.push_back({source, target, true, value, key_at(span, i)});
      }
    });
  }
  GraphStore others(options_);
  ThreadPool pool(1);
  others.resize(num_sources(), num_targets());
  others.apply(crossing, &pool);
  const EdgeLists<Id>& half = others.lists_of<Id>();
  for (uint32_t node = 0; node < lists.out.size(); ++node) {
    (owns_source(node) ? lists : half).out.save_list(node, &share.out);
  }
  for (uint32_t node = 0; lists_in() && node < lists.in.size(); ++node) {
    (owns_target(node) ? lists : half).in.save_list(node, &share.in);
  }
  return share;
}

GraphStore::Share<uint32_t> GraphStore::share(const Owns& owns_source, const Owns& owns_target) const {
  return share_lists(lists_, owns_source, owns_target);
}

GraphStore::Share<uint64_t> GraphStore::keyed_share(const Owns& owns_source, const Owns& owns_target) const {
  return share_lists(*keyed_, owns_source, owns_target);
}

template <class Id>
GraphStore::Share<Id> GraphStore::join_lists(std::span<const GraphStore* const> stores, const OwnerOf& source_owner,
                                             const OwnerOf& target_owner) {
  Share<Id> joined;
  const GraphStore& first = *stores[0];
  size_t loops = 0;
  for (uint32_t node = 0; node < first.num_sources(); ++node) {
    const GraphStore& store = *stores[source_owner(node)];
    store.lists_of<Id>().out.save_list(node, &joined.out);
    store.scan_between(node, node, [&](auto...) { ++loops; });
  }
  for (uint32_t node = 0; first.lists_in() && node < first.num_targets(); ++node) {
    stores[target_owner(node)]->lists_of<Id>().in.save_list(node, &joined.in);
  }
  joined.num_edges = first.options_.undirected ? (joined.out.ids.size() + loops) / 2 : joined.out.ids.size();
  return joined;
}

GraphStore::Share<uint32_t> GraphStore::join(std::span<const GraphStore* const> stores, const OwnerOf& source_owner,
                                             const OwnerOf& target_owner) {
  return join_lists<uint32_t>(stores, source_owner, target_owner);
}

GraphStore::Share<uint64_t> GraphStore::keyed_join(std::span<const GraphStore* const> stores,
                                                   const OwnerOf& source_owner, const OwnerOf& target_owner) {
  return join_lists<uint64_t>(stores, source_owner, target_owner);
}

}  // namespace livegnn
