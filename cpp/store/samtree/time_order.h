// The neighbours of one node in the order of their times. A node with few neighbours has none, because its leaf can be
// read.
//
//   root ─► inner | sums | times, ids: of the first | counts | children |
//             |   |   |
//          leaf leaf leaf   | times | ids | weights |          all sorted; columns that the type lacks take no space
//
// The order is by time, and among equal times the greater id comes first: a backward walk visits the latest first, and
// among equal times the smaller id. So the neighbours up to a time are a prefix (`rank`), and each draw from them, or
// each of the latest, costs one walk down the tree, whatever the ids are. It costs 12 bytes for each neighbour, and 4
// for its weight.
//
// As in a samtree (samtree.h), a change builds new versions of the nodes that it reaches; entries appended to a leaf
// are still invisible. Counts and sums are stored for each child, and not as running sums: a sum is always that of the
// child's own entries, in the order of the tree, so there is no drift.
//
// Invariants: all leaves are on one level and none is empty; leaves hold at most kLeaf entries, inner nodes at most
// kInner children. Two adjacent nodes of which one was changed last are together more than half full. Every entry of
// child i is at or after key i and before key i + 1, where key 0 is never compared. Thread safety: any number of
// readers; `build` and `rebuild` may run concurrently with them, on any number of threads, each with its own lane and
// for different nodes; everything else needs exclusive access.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "memory/block_heap.h"
#include "memory/block_lane.h"
#include "store/samtree/weight_part.h"

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
  // A change of one entry: it is added, or gets another weight, or is removed.
  struct Change {
    Entry entry;
    bool has;
  };
  // Working memory of one thread.
  struct Lane {
    std::vector<Entry> entries;
    std::vector<Change> changes;
  };
  // The root, and the number of entries below it.
  struct Tree {
    BlockRef root = 0;
    uint32_t count = 0;
  };

  TimeOrder(BlockHeap* heap, bool weighted) : heap_(heap), weighted_(weighted) {}

  // -- reading; `leaves` counts the leaves that were read. Requires: a tree with entries.

  // The number of entries whose time is not after this one; these entries are a prefix.
  uint32_t rank(Tree from, double until, size_t* leaves) const;
  // Requires: `at` < count.
  Entry at(Tree from, uint32_t at, size_t* leaves) const;
  // Appends entries begin .. end.
  void list(Tree from, uint32_t begin, uint32_t end, std::vector<Entry>* to, size_t* leaves) const;

  // The parts that make up the first `count` entries; single entries for which `skip(id)` is true are left out.
  template <class Skip>
  void parts(Tree from, uint32_t count, const Skip& skip, std::vector<WeightPart<Id>>* to, size_t* leaves) const {
    parts_below(from.root, count, skip, to, leaves);
  }
  // The neighbour at which the running sum exceeds `rest`, in a part that is a node; false if all weights are 0.
  bool find(WeightPart<Id> part, double rest, Id* id, size_t* leaves) const;
  // Divides such a part along the path that `find` follows.
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
  // The tree after changes. Requires: changes sorted by their entries; an entry that is removed, or gets another
  // weight, exists.
  BlockRef rebuild(Tree from, std::span<const Change> changes, Lane* work, BlockLane* lane);
  // Retires all blocks of a tree.
  void retire(BlockRef ref, BlockLane* lane) const;
  // Like Samtrees::relocate.
  BlockRef relocate(BlockRef ref, BlockLane* lane, size_t* budget);

  // -- the exact shape, parents first, so that draws by weight follow the same paths in a restored tree: for each node
  // one word, with its height above its number of children or entries; and, for a node with children, time and id of
  // each key except the first, which is never compared.

  void save(Tree from, std::vector<uint64_t>* to) const;
  // Builds a tree from sorted entries and the words that belong to them; the words that it reads are removed from
  // `words`. Throws std::runtime_error if words and entries do not fit together.
  BlockRef load(std::span<const Entry> entries, std::span<const uint64_t>* words, BlockLane* lane);

  // Throws std::logic_error that names the violated invariant.
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
    bool fresh;  // made by the current change
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
  struct Reader;  // input that `load` has not read yet
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
