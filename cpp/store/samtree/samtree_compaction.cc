// Compacts the blocks of samtrees, so that memory is returned when edges are removed.
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "store/samtree/samtree.h"

namespace livegnn {

template <class Id>
void Samtrees<Id>::note_batch() noexcept {
  churn_ = std::max(freed_, churn_ - churn_ / 8);
  freed_ = 0;
}

template <class Id>
bool Samtrees<Id>::wants_compaction() const {
  constexpr size_t kWorthwhile = size_t{1} << 20;
  return heap_.free_bytes() > stuck_ + churn_ + heap_.live_bytes() / 32 + kWorthwhile;
}

template <class Id>
bool Samtrees<Id>::begin_compaction() {
  if (heap_.mark_sparse()) return true;
  stuck_ = heap_.free_bytes();
  return false;
}

template <class Id>
bool Samtrees<Id>::end_compaction(size_t* budget) noexcept {
  constexpr size_t kSlabCost = 256;
  size_t slabs = budget == nullptr ? SIZE_MAX : (*budget + kSlabCost - 1) / kSlabCost;
  if (!heap_.reclaim(&slabs)) return false;
  stuck_ = heap_.free_bytes();
  return true;
}

template <class Id>
BlockRef Samtrees<Id>::relocate_below(BlockRef ref, Lane* lane, size_t* budget) {
  if (header(ref)->height == 0) return heap_.in_sparse(ref) ? lane->copy(&heap_, ref, budget) : ref;
  const Inner<Id>* from = inner(ref);
  BlockRef made = heap_.in_sparse(ref) ? lane->copy(&heap_, ref, budget) : 0;
  for (uint32_t i = 0; i < from->size && (budget == nullptr || *budget > 0); ++i) {
    const BlockRef child = from->children(columns_)[i];
    // The children of the lowest inner nodes are leaves, which need not be read.
    if (from->height == 1 && !heap_.in_sparse(child)) continue;
    const BlockRef moved = relocate_below(child, lane, budget);
    if (moved == child) continue;
    if (made == 0) made = lane->copy(&heap_, ref, budget);
    static_cast<Inner<Id>*>(heap_.at(made))->children(columns_)[i] = moved;
  }
  if (columns_.timed && from->order(columns_) != 0 && (budget == nullptr || *budget > 0)) {
    const BlockRef moved = by_time_.relocate(from->order(columns_), lane, budget);
    if (moved != from->order(columns_)) {
      if (made == 0) made = lane->copy(&heap_, ref, budget);
      *static_cast<Inner<Id>*>(heap_.at(made))->order(columns_) = moved;
    }
  }
  return made == 0 ? ref : made;
}

template <class Id>
SamtreeRoot Samtrees<Id>::relocate(SamtreeRoot root, Lane* lane, size_t* budget) {
  if (root.node == 0) return root;
  // A root with this few neighbours is a leaf.
  const bool few = root.degree < options_.min_leaf();
  if (few && !heap_.in_sparse(root.node)) return root;
  return {relocate_below(root.node, lane, budget), root.degree};
}

// Instantiates only these members: all others are instantiated where they are defined.
template void Samtrees<uint32_t>::note_batch() noexcept;
template bool Samtrees<uint32_t>::wants_compaction() const;
template bool Samtrees<uint32_t>::begin_compaction();
template bool Samtrees<uint32_t>::end_compaction(size_t*) noexcept;
template BlockRef Samtrees<uint32_t>::relocate_below(BlockRef, Lane*, size_t*);
template SamtreeRoot Samtrees<uint32_t>::relocate(SamtreeRoot, Lane*, size_t*);
template void Samtrees<uint64_t>::note_batch() noexcept;
template bool Samtrees<uint64_t>::wants_compaction() const;
template bool Samtrees<uint64_t>::begin_compaction();
template bool Samtrees<uint64_t>::end_compaction(size_t*) noexcept;
template BlockRef Samtrees<uint64_t>::relocate_below(BlockRef, Lane*, size_t*);
template SamtreeRoot Samtrees<uint64_t>::relocate(SamtreeRoot, Lane*, size_t*);

}  // namespace livegnn
