#include "store/staged_owners.h"

#include "placement/fennel.h"

namespace livegnn {

void StagedOwners::note_edge(uint32_t source_type, uint32_t source, uint32_t target_type, uint32_t target) {
  ++ends_[source_type];
  ++ends_[target_type];
  const uint32_t source_owner = owner(source_type, source), target_owner = owner(target_type, target);
  if (source_owner != kNoIndex && target_owner != kNoIndex) return;
  if (source_owner == kNoIndex && target_owner == kNoIndex) {
    first_.push_back(types_[source_type].numbers.find(source));
    second_.push_back(types_[target_type].numbers.find(target));
    return;
  }
  const bool is_source = source_owner == kNoIndex;
  tied_.push_back(is_source ? types_[source_type].numbers.find(source) : types_[target_type].numbers.find(target));
  tied_to_.push_back(static_cast<uint16_t>(is_source ? target_owner : source_owner));
}

void StagedOwners::note_edges(uint32_t source_type, std::span<const uint32_t> sources, uint32_t target_type,
                              std::span<const uint32_t> targets) {
  for (size_t i = 0; i < sources.size(); ++i) note_edge(source_type, sources[i], target_type, targets[i]);
}

void StagedOwners::place(std::vector<NodeDelta>* nodes) const {
  const std::vector<uint16_t> placed = part_->fennel()->place({arrived_, tied_, tied_to_, first_, second_, ends_});
  for (size_t i = 0; i < placed.size(); ++i) {
    NodeDelta& of_type = (*nodes)[arrived_[i]];
    uint16_t& owner = of_type.owners[of_type.placed.size()];
    if (owner != Owners::kNoOwner) owner = placed[i];
    of_type.placed.push_back(placed[i]);
  }
}

}  // namespace livegnn
