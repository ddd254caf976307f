// The owners of nodes in a part of a graph while a batch is staged, and which edges of the batch the part keeps.
//
// Thread safety: one thread; the graph must not change.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "store/graph_part.h"
#include "store/positions.h"

namespace livegnn {

class StagedOwners {
 public:
  // `part`: null of an undivided graph; then nothing else may be called but `divided` and `give`.
  StagedOwners(const GraphPart* part, size_t node_types) : part_(part) {
    if (part != nullptr) types_.resize(node_types);
  }

  bool divided() const { return part_ != nullptr; }
  void give(uint32_t node_type, std::span<const uint16_t> owners) {
    if (part_ == nullptr) throw std::invalid_argument("an undivided graph has no owners");
    for (uint16_t owner : owners) {
      if (owner >= part_->parts()) throw std::invalid_argument("there is no part " + std::to_string(owner));
    }
    std::vector<uint16_t>& given = types_[node_type].given;
    given.insert(given.end(), owners.begin(), owners.end());
  }
  // The owner of the n-th node that the batch adds.
  uint16_t place(uint32_t node_type, size_t n, uint32_t index, int64_t id) {
    Type& type = types_[node_type];
    const bool told = n < type.given.size();
    if (!told && part_->rule().rule() == OwnerRule::kTable) throw std::invalid_argument("a node needs an owner");
    const auto owner = told ? type.given[n] : static_cast<uint16_t>(part_->rule().of_id(static_cast<uint64_t>(id)));
    type.placed.insert(index, owner);
    return owner;
  }
  bool keeps(uint32_t source_type, uint32_t source, uint32_t target_type, uint32_t target) const {
    return owns(source_type, source) || owns(target_type, target);
  }

 private:
  struct Type {
    std::vector<uint16_t> given;
    Positions placed;  // index -> owner
  };

  bool owns(uint32_t node_type, uint32_t index) const {
    // What has no owner yet is added by this batch: an index is free before a batch that uses it again.
    const uint32_t owner = part_->owner(node_type, index);
    return (owner != Owners::kNoOwner ? owner : types_[node_type].placed.find(index)) == part_->self();
  }

  const GraphPart* const part_;
  std::vector<Type> types_;
};

}  // namespace livegnn
