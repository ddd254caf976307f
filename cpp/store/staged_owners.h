// The owners of nodes in a part of a graph while a batch is staged, and which edges of the batch the part keeps.
//
// Thread safety: one thread; the graph must not change.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <vector>

#include "store/graph.h"
#include "store/positions.h"

namespace livegnn {

class StagedOwners {
 public:
  // `part`: null of an undivided graph; then nothing else may be called but `divided` and `placing`.
  explicit StagedOwners(const GraphPart* part) : part_(part) {
    if (part == nullptr) return;
    types_.resize(part->node_types());
    ends_.resize(part->node_types());
  }

  bool divided() const { return part_ != nullptr; }
  // Whether the owners of some nodes are known only when the batch is staged, from its edges.
  bool placing() const { return part_ != nullptr && part_->fennel() != nullptr; }

  // The owner of the n-th node of a type that the batch adds; any, if `place` will decide. Throws
  // std::invalid_argument if there is none.
  uint16_t add(uint32_t node_type, size_t n, uint32_t index, int64_t id) {
    Type& type = types_[node_type];
    const Owners& rule = part_->rule(node_type);
    uint16_t owner = 0;
    if (rule.rule() != OwnerRule::kTable) {
      owner = static_cast<uint16_t>(rule.of_id(static_cast<uint64_t>(id)));
    } else if (placing()) {
      type.numbers.insert(index, static_cast<uint32_t>(arrived_.size()));
      arrived_.push_back(node_type);
      return owner;
    } else if (n < part_->given(node_type).size()) {
      owner = part_->given(node_type)[n];
    } else {
      throw std::invalid_argument("a node needs an owner");
    }
    type.owners.insert(index, owner);
    return owner;
  }
  bool keeps(uint32_t source_type, uint32_t source, uint32_t target_type, uint32_t target) const {
    return owner(source_type, source) == part_->self() || owner(target_type, target) == part_->self();
  }

  // Requires: `placing()`. Notes edges that the batch adds.
  void note_edges(uint32_t source_type, std::span<const uint32_t> sources, uint32_t target_type,
                  std::span<const uint32_t> targets);
  // Requires: `placing()`, and the nodes that were added here. Writes the owners of those to be placed. A node that is
  // added and removed again is placed too: other parts check its edges.
  void place(std::vector<NodeDelta>* nodes) const;

 private:
  struct Type {
    Positions owners;   // by index, of added nodes
    Positions numbers;  // by index, of added nodes that `place` will place: their place among all
  };

  // What has no owner yet is added by this batch: an index is free before a batch that uses it again. kNoIndex if it
  // is not known yet.
  uint32_t owner(uint32_t node_type, uint32_t index) const {
    const uint32_t owner = part_->owner(node_type, index);
    return owner != Owners::kNoOwner ? owner : types_[node_type].owners.find(index);
  }
  void note_edge(uint32_t source_type, uint32_t source, uint32_t target_type, uint32_t target);

  const GraphPart* const part_;
  std::vector<Type> types_;
  std::vector<uint32_t> arrived_;         // types of the nodes to be placed
  std::vector<uint32_t> tied_;            // of edges between these and others: the number of the node,
  std::vector<uint16_t> tied_to_;         // and the owner of the other
  std::vector<uint32_t> first_, second_;  // of edges between two of these
  std::vector<int64_t> ends_;             // by type, of edges that were noted
};

}  // namespace livegnn
