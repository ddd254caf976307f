// Makes and changes leaves of samtrees (leaf.h) while readers use the old ones.
//
// A new entry that fits is appended in place, after the entries that readers know of; every other change makes a new
// leaf. If there are too many entries for one leaf, they are divided by ids: α-Split (PlatoD2GL, section IV-C). A
// replaced leaf is retired in the lane, and may be read until the owner frees it.
//
// Invariants: leaves depend only on the earlier entries and on the changes. Except in a split, the last entry replaces
// a removed one, and new entries are placed after all others, in the order of their changes.
// Thread safety: any number of threads, concurrently with readers, each with its own lane and for leaves of different
// nodes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "memory/block_heap.h"
#include "memory/block_lane.h"
#include "memory/recent_needs.h"
#include "store/samtree/leaf.h"

namespace livegnn {

struct SamtreeOptions {
  uint32_t capacity = 256;  // of leaves and inner nodes; from 4 to kMaxCapacity
  uint32_t slack = 32;      // how far from the middle an α-Split may be; at most capacity / 4
  bool compress = true;     // false: full ids, for comparison

  static constexpr uint32_t kMaxCapacity = 1024;
  uint32_t min_leaf() const { return capacity / 2 > slack ? capacity / 2 - slack : 1; }
  uint32_t min_inner() const { return capacity / 2; }
};

template <class Id>
class LeafWriter {
 public:
  // A change of one neighbour of one node.
  struct Change {
    Id id;
    bool has;  // false: it is removed
    EdgeValue value;
  };

  // A leaf or inner node, as its parent describes it.
  struct Child {
    Id key;          // lower bound of the ids below it
    BlockRef node;   // 0: none
    uint32_t count;  // number of ids below it
    double sum;      // sum of their weights
  };

  // What one thread needs: its own blocks, and working memory.
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

  // Requires: valid options (see SamtreeOptions). The heap must outlive it.
  LeafWriter(EdgeColumns columns, SamtreeOptions options, BlockHeap* heap);

  // Rounded to a float: then sums in doubles, and differences of these sums, are exact if weights are of similar size.
  double sum(const Leaf<Id>& leaf, uint32_t count) const {
    return static_cast<float>(leaf.weight_sum(columns_, count));
  }

  // Appends to `out` the leaves that result from one leaf and its changes: none if it becomes empty, several if one
  // would be too full. Requires: changes of distinct ids, in any order.
  void update(Child child, std::span<const Change> changes, Lane* lane, std::vector<Child>* out);
  // Appends the leaves that hold the entries of two leaves; the caller retires these.
  void join(const Child& a, const Child& b, Lane* lane, std::vector<Child>* out);
  // Appends the leaves that hold `lane->entries`, whose ids are distinct.
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
