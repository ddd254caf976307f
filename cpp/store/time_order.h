// The neighbours of one node in the order of their times. A node with few neighbours needs none: its leaf is looked at.
//
//   root ─► inner | sums | times, ids: of the first | counts | children |
//             |   |   |
//          leaf leaf leaf   | times | ids | weights |          all sorted; columns that the type lacks take no space
//
// The order is by time, and of equal times the greater id comes first: a walk backwards meets the latest first, and of
// equal ones the smaller id. So the neighbours up to a time are the first so many (`rank`), and each draw from them, or
// each of the latest, costs a walk down the tree, whatever the ids are. It costs 12 bytes for each neighbour, and 4 for
// its weight.
//
// As in a samtree (samtree.h), a change builds aside the nodes that it reaches; what is appended to a leaf nobody sees
// yet. Counts and sums stand with each child, and not added up: a sum is always that of the child's own, in the order
// of the tree, so nothing drifts.
//
// Invariants: all leaves are on one level and none is empty; leaves hold at most kLeaf entries, inner nodes at most
// kInner children. Two neighbours of which one was changed last are together more than half full. Every entry of child
// i is at or behind key i and before key i + 1, where key 0 is never compared. Thread safety: any number of readers;
// `build` and `rebuild` beside them, on any number of threads, each with a lane of its own and for different nodes; all
// else alone.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "memory/block_heap.h"
#include "memory/block_lane.h"
#include "store/weight_part.h"

namespace livegnn {

template <class Id>
class TimeOrder {
 public:
  static constexpr uint32_t kLeaf = 128, kInner = 64, kMaxHeight = 32;

  struct Entry {
    double time;
    Id id;
    float weight;

    bool before(const Entry& other) const { return time != other.time ? time < other.time : id > other.id; }
  };
  // Of one entry: it comes, or has another weight; or it goes.
  struct Change {
    Entry entry;
    bool has;
  };
  // What one thread needs to work in.
  struct Lane {
    std::vector<Entry> entries;
    std::vector<Change> changes;
  };
  // The root, and what lies below it.
  struct Tree {
    BlockRef root = 0;
    uint32_t count = 0;
  };

  TimeOrder(BlockHeap* heap, bool weighted) : heap_(heap), weighted_(weighted) {}

  // -- reading; `leaves` counts those that were looked at. Requires: a tree with entries.

  // How many entries have a time that is not above this one: they are the first.
  uint32_t rank(Tree from, double until, size_t* leaves) const;
  // Requires: `at` < count.
  Entry at(Tree from, uint32_t at, size_t* leaves) const;
  // Appends entries begin .. end.
  void list(Tree from, uint32_t begin, uint32_t end, std::vector<Entry>* to, size_t* leaves) const;

  // The parts that make up the first `count` entries; what `skip(id)` is left out where it stands alone.
  template <class Skip>
  void parts(Tree from, uint32_t count, const Skip& skip, std::vector<WeightPart<Id>>* to, size_t* leaves) const {
    parts_below(from.root, count, skip, to, leaves);
  }
  // Of a part that is a node, the neighbour at which the running sum exceeds `rest`; false if all weights are 0.
  bool find(WeightPart<Id> part, double rest, Id* id, size_t* leaves) const;
  // Takes such a part apart on the way that `find` goes.
  template <class Skip>
  void take_apart(WeightPart<Id> part, double rest, const Skip& skip, std::vector<WeightPart<Id>>* to,
                  size_t* leaves) const {
    BlockRef ref = part.node;
    uint32_t count = part.count;
    while (header(ref)->height > 0) {
      const Inner from = inner(ref);
      const uint32_t taken = child_at(from, &rest);
      for (uint32_t i = 0; i < from.size; ++i) {
        if (i != taken && from.sums[i] > 0) to->push_back({from.sums[i], from.children[i], from.counts[i], Id{0}});
      }
      count = from.counts[taken];
      ref = from.children[taken];
    }
    parts_of_leaf(ref, count, skip, to, leaves);
  }

  // -- writing

  // Requires: sorted entries.
  BlockRef build(std::span<const Entry> entries, BlockLane* lane);
  // The tree after changes. Requires: changes that are sorted by their entries; an entry that goes, or gets another
  // weight, is there.
  BlockRef rebuild(Tree from, std::span<const Change> changes, Lane* work, BlockLane* lane);
  // All blocks of a tree are retired.
  void retire(BlockRef ref, BlockLane* lane) const;
  // As Samtrees::relocate.
  BlockRef relocate(BlockRef ref, BlockLane* lane, size_t* budget);

  // -- the exact shape, parents first, so that draws by weight go the same ways in a restored tree: for each node its
  // height above its number of children or entries; and, of a node with children, time and id of each key but the
  // first, which is never compared.

  void save(Tree from, std::vector<uint64_t>* to) const;
  // Of entries that are sorted, as many words as belong to them, which are taken away. Throws std::runtime_error when
  // words and entries do not fit together.
  BlockRef load(std::span<const Entry> entries, std::span<const uint64_t>* words, BlockLane* lane);

  // Throws std::logic_error naming the invariant that does not hold.
  void check(Tree from) const;

 private:
  struct Header {
    uint16_t size;  // room for entries, or number of children
    uint8_t height;
  };
  struct Leaf {
    uint32_t room;
    double* times;
    Id* ids;
    float* weights;
  };
  struct Inner {
    uint32_t size, height;
    double* sums;  // null without weights
    double* times;
    Id* ids;
    uint32_t* counts;
    BlockRef* children;
  };
  struct Child {
    Entry first;  // key
    BlockRef node;
    uint32_t count;
    double sum;
    bool fresh;  // made by the change at hand
  };

  const Header* header(BlockRef ref) const { return static_cast<const Header*>(heap_->at(ref)); }
  Leaf leaf(BlockRef ref) const;
  Inner inner(BlockRef ref) const;
  Entry entry(const Leaf& from, uint32_t i) const {
    return {from.times[i], from.ids[i], weighted_ ? from.weights[i] : 1.0f};
  }
  size_t leaf_bytes(uint32_t room) const {
    return sizeof(double) * (1 + room) + (sizeof(Id) + weighted_ * sizeof(float)) * room;
  }
  size_t inner_bytes(uint32_t size) const {
    return sizeof(double) * (1 + size) + (weighted_ * sizeof(double) + sizeof(Id) + 2 * sizeof(uint32_t)) * size;
  }
  void* make(size_t bytes, BlockRef* ref, BlockLane* lane);
  Child make_leaf(const Entry& key, std::span<const Entry> entries, BlockLane* lane);
  void make_leaves(const Entry& key, std::span<const Entry> entries, BlockLane* lane, std::vector<Child>* out);
  void write(const Leaf& to, uint32_t i, const Entry& entry) const;
  void read(BlockRef ref, uint32_t count, std::vector<Entry>* to) const;
  std::vector<Child> children_of(const Entry& key, BlockRef ref) const;
  void pack(const std::vector<Child>& children, uint32_t height, BlockLane* lane, std::vector<Child>* out);
  void update(const Child& from, std::span<const Change> changes, Lane* work, BlockLane* lane, std::vector<Child>* out);
  void append(Child child, std::span<const Change> changes, Lane* work, BlockLane* lane, std::vector<Child>* out);
  void update_leaf(const Child& child, std::span<const Change> changes, Lane* work, BlockLane* lane,
                   std::vector<Child>* out);
  void join_small(std::vector<Child>* children, uint32_t height, Lane* work, BlockLane* lane);
  BlockRef grow(std::vector<Child> children, uint32_t height, BlockLane* lane);
  uint32_t child_at(const Inner& from, double* rest) const;
  double sum_of(Tree from) const;
  void save_below(BlockRef ref, uint32_t count, std::vector<uint64_t>* to) const;
  struct Reader;  // what `load` has not read yet
  Child load_below(Reader* from, const Entry* key, const Entry* high, uint32_t height, BlockLane* lane);
  void list_below(BlockRef ref, uint32_t count, uint32_t begin, uint32_t end, std::vector<Entry>* to,
                  size_t* leaves) const;
  void check_below(BlockRef ref, uint32_t count, const Entry* low, const Entry* high, double* sum) const;

  template <class Skip>
  void parts_of_leaf(BlockRef ref, uint32_t count, const Skip& skip, std::vector<WeightPart<Id>>* to,
                     size_t* leaves) const {
    const Leaf from = leaf(ref);
    ++*leaves;
    for (uint32_t i = 0; i < count; ++i) {
      const Entry one = entry(from, i);
      if (one.weight > 0 && !skip(one.id)) to->push_back({one.weight, 0, 1, one.id});
    }
  }
  template <class Skip>
  void parts_below(BlockRef ref, uint32_t first, const Skip& skip, std::vector<WeightPart<Id>>* to,
                   size_t* leaves) const {
    if (header(ref)->height == 0) {
      parts_of_leaf(ref, first, skip, to, leaves);
      return;
    }
    const Inner from = inner(ref);
    for (uint32_t i = 0; i < from.size && first > 0; ++i) {
      if (from.counts[i] > first) {
        parts_below(from.children[i], first, skip, to, leaves);
        return;
      }
      first -= from.counts[i];
      const double sum = weighted_ ? from.sums[i] : from.counts[i];
      if (sum > 0) to->push_back({sum, from.children[i], from.counts[i], Id{0}});
    }
  }

  BlockHeap* heap_;
  bool weighted_;
};

extern template class TimeOrder<uint32_t>;
extern template class TimeOrder<uint64_t>;

}  // namespace livegnn
