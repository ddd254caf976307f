// The owners of nodes while a batch is prepared, those that it adds and removes included; or without a batch.
//
// Thread safety: constant.
#pragma once

#include <tsl/robin_map.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "hashing/mix_hash.h"
#include "store/graph.h"

namespace livegnn {

class OwnersAfter {
 public:
  // Without a batch. Requires: a part of a graph, which outlives it.
  OwnersAfter(const GraphPart& part, size_t node_types) : part_(part), added_(node_types) {}
  // Requires: a part of a graph, which outlives it, and a batch that was staged on it.
  OwnersAfter(const GraphPart& part, const Delta& delta) : part_(part), added_(delta.nodes.size()) {
    for (size_t n = 0; n < delta.nodes.size(); ++n) {
      const NodeDelta& nodes = delta.nodes[n];
      added_[n].reserve(nodes.added.size());
      for (size_t i = 0; i < nodes.added.size(); ++i) added_[n][nodes.added[i]] = nodes.owners[i];
    }
  }

  uint32_t self() const { return part_.self(); }
  uint32_t of(uint32_t node_type, uint32_t node) const {
    const uint32_t owner = part_.owner(node_type, node);
    if (owner != Owners::kNoOwner) return owner;
    const auto added = added_[node_type].find(node);
    return added == added_[node_type].end() ? uint32_t{Owners::kNoOwner} : added->second;
  }
  bool owns(uint32_t node_type, uint32_t node) const { return of(node_type, node) == self(); }

 private:
  const GraphPart& part_;
  std::vector<tsl::robin_map<uint32_t, uint16_t, MixHash>> added_;
};

}  // namespace livegnn
