// Leaves of samtrees (leaf.h), made and changed beside those who read them.
//
// An entry that is new and fits is appended in place, beyond the number of entries that readers know of; every other
// change makes a leaf aside. Entries that are too many for one leaf are parted by ids: α-Split (PlatoD2GL, section
// IV-C). What is replaced is retired in the lane, and read until the owner frees it.
//
// Invariants: leaves depend on what was there and on the changes alone. But for a split, a removed entry is replaced by
// the last one, and new ones stand behind all others, in the order of their changes.
// Thread safety: any number of threads beside readers, each with a lane of its own and for leaves of different nodes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "memory/block_heap.h"
#include "memory/block_lane.h"
#include "memory/recent_needs.h"
#include "store/leaf.h"

namespace livegnn {

struct SamtreeOptions {
  uint32_t capacity = 256;  // of leaves and inner nodes; at least 4, at most kMaxCapacity
  uint32_t slack = 32;      // how far from the middle an α-Split may fall; at most capacity / 4
  bool compress = true;     // false: ids in full, for comparison

  static constexpr uint32_t kMaxCapacity = 1024;
  uint32_t min_leaf() const { return capacity / 2 > slack ? capacity / 2 - slack : 1; }
  uint32_t min_inner() const { return capacity / 2; }
};

template <class Id>
class LeafWriter {
 public:
  // One change to one node's neighbours.
  struct Change {
    Id id;
    bool has;  // false: it goes
    EdgeValue value;
  };

  // A leaf, or an inner node, as it stands below another.
  struct Child {
    Id key;          // no id below it is less
    BlockRef node;   // 0: none
    uint32_t count;  // of ids below it
    double sum;      // of their weights
  };

  // What one thread needs: its own blocks, and memory to work in.
  struct Lane : BlockLane {
    struct Entries {
      std::vector<Id> ids;
      std::vector<double> times;
      std::vector<float> weights;
      std::vector<uint32_t> rows;
      void clear() { ids.clear(), times.clear(), weights.clear(), rows.clear(); }
    } entries;
    std::vector<uint32_t> order;
    std::vector<const Change*> added;

    size_t bytes() const {
      return bytes_of(made) + bytes_of(retired) + bytes_of(entries.ids) + bytes_of(entries.times) +
             bytes_of(entries.weights) + bytes_of(entries.rows) + bytes_of(order) + bytes_of(added);
    }
  };

  // Requires: options as SamtreeOptions says. The heap outlives it.
  LeafWriter(EdgeColumns columns, SamtreeOptions options, BlockHeap* heap);

  // As a float: then sums of them in doubles, and the differences of these, are exact where weights are alike.
  double sum(const Leaf<Id>& leaf, uint32_t count) const {
    return static_cast<float>(leaf.weight_sum(columns_, count));
  }

  // Appends to `out` the leaves that changes make of one: none if nothing is left, several if one would be too full.
  // Requires: changes of distinct ids, in any order.
  void update(Child child, std::span<const Change> changes, Lane* lane, std::vector<Child>* out);
  // The leaves of the entries of two, which the caller retires.
  void join(const Child& a, const Child& b, Lane* lane, std::vector<Child>* out);
  // The leaves of `lane->entries`, whose ids are distinct.
  void write(Id key, Lane* lane, std::vector<Child>* out);

 private:
  const Leaf<Id>* leaf(BlockRef ref) const { return static_cast<const Leaf<Id>*>(heap_->at(ref)); }
  uint32_t room_for(uint32_t size, uint32_t bits) const;
  Leaf<Id>* make_leaf(uint32_t size, IdFormat<Id> format, BlockRef* ref, Lane* lane);
  Leaf<Id>* copy_leaf(const Leaf<Id>* from, uint32_t size, uint32_t new_size, BlockRef* ref, Lane* lane);
  bool update_by_one(Child* child, const Change& change, Lane* lane);
  void change_entries(std::span<const Change> changes, Lane* lane) const;
  void decode(const Child& from, Lane* lane) const;
  Child encode(Id key, std::span<const uint32_t> order, Lane* lane);
  void encode_split(Id key, std::span<uint32_t> order, uint32_t pieces, Lane* lane, std::vector<Child>* out);
  uint32_t part(std::span<uint32_t> order, uint32_t middle, uint32_t slack, const Lane& lane) const;

  EdgeColumns columns_;
  SamtreeOptions options_;
  BlockHeap* heap_;
};

extern template class LeafWriter<uint32_t>;
extern template class LeafWriter<uint64_t>;

}  // namespace livegnn
