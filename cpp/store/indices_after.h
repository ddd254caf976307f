// The indices that nodes of a type would have after a change that is staged and not committed.
//
// Thread safety: constant; graph and change must not change meanwhile.
#pragma once

#include <tsl/robin_map.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "hashing/mix_hash.h"
#include "store/graph.h"

namespace livegnn {

class IndicesAfter {
 public:
  // Requires: graph and change outlive it.
  IndicesAfter(const Graph& graph, const Delta& delta, uint32_t node_type)
      : ids_(graph.nodes[node_type].ids), removed_(delta.nodes[node_type].removed) {
    const NodeDelta& nodes = delta.nodes[node_type];
    for (size_t i = 0; i < nodes.added.size(); ++i) {
      if (nodes.added_ids[i] != kNoId) added_[nodes.added_ids[i]] = nodes.added[i];
    }
    std::sort(removed_.begin(), removed_.end());
  }

  // kNoIndex if there would be no such node.
  uint32_t index_of(int64_t id) const {
    if (!added_.empty()) {
      if (const auto found = added_.find(id); found != added_.end()) return found->second;
    }
    const uint32_t index = ids_.index_of(id);
    return std::binary_search(removed_.begin(), removed_.end(), index) ? kNoIndex : index;
  }

 private:
  const IdMap& ids_;
  std::vector<uint32_t> removed_;  // sorted
  tsl::robin_map<int64_t, uint32_t, MixHash> added_;
};

}  // namespace livegnn
