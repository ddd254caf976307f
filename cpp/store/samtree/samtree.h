// The neighbours of many nodes (PlatoD2GL, section IV): a single leaf for each node, or a samtree of leaves if it has
// many.
//
//   few neighbours:        many neighbours:
//   root ─► leaf           root ─► inner  | keys: smallest ids | counts, sums: of all children so far (CSTable) |
//                                     |   |   |
//                                  leaf leaf leaf       ids inside a leaf are in no order (leaf.h)
//
// If edges have times, a root that is an inner node also refers to the order of all its neighbours by time
// (time_order.h), which is created and changed together with it.
//
// A root is 8 bytes: a block of the heap (block_heap.h) and the number of neighbours.
//
// A change builds new versions of the nodes that it reaches, from the bottom up (except for entries appended to a leaf,
// which are still invisible), and ends with a new root; replaced nodes are kept while readers may use them. So there
// are two steps: `rebuild` while readers go on, then `set_root` and, when these readers have finished, `free`. The same
// changes in the same order give the same trees.
//
// Invariants: all leaves are on one level. Except for a root, a leaf holds between capacity / 2 - slack (at least 1)
// and capacity ids, and an inner node between capacity / 2 and capacity children; an inner root has at least two. Every
// id below child i is at least key i and less than key i + 1, where key 0 is never compared. An id occurs once. Counts
// are those of the children, added from left to right. Sums are too, except for rounding: the old sum of an untouched
// child is recovered as the difference of two sums, so that its leaf need not be read. That is exact if weights are
// within six orders of magnitude. Otherwise `Inner::error` counts the loss, and before it matters (`kMaxError`) the
// sums are added up again from the children's own: they are always correct to 2^-30 of the sum of the whole node.
//
// Thread safety: any number of readers; `rebuild` may run concurrently with them, on any number of threads, each with
// its own lane and for different nodes; everything else needs exclusive access.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "memory/block_heap.h"
#include "memory/growing_array.h"
#include "memory/prefetch.h"
#include "memory/recent_needs.h"
#include "store/samtree/leaf_writer.h"
#include "store/samtree/time_order.h"

namespace livegnn {

// A run of neighbours from one leaf. Columns that the edge type lacks are null.
template <class Id>
struct BasicNeighborSpan {
  const Id* ids;
  const float* weights;
  const double* times;
  const uint32_t* rows;
  size_t size;
  const uint32_t* keys = nullptr;  // of parallel edges (graph_store.h)
};
using NeighborSpan = BasicNeighborSpan<uint32_t>;

inline NeighborSpan subspan(const NeighborSpan& span, size_t begin, size_t end) {
  auto from = [&](const auto* column) { return column == nullptr ? nullptr : column + begin; };
  return {from(span.ids), from(span.weights), from(span.times), from(span.rows), end - begin, from(span.keys)};
}

inline uint32_t key_at(const NeighborSpan& span, size_t i) { return span.keys == nullptr ? 0 : span.keys[i]; }

struct SamtreeRoot {
  BlockRef node = 0;
  uint32_t degree = 0;
};

template <class Id>
struct Inner {
  uint16_t size;
  uint8_t height;  // 1: the children are leaves
  // Bound on the loss in the sums since they were added up from the children's own, in roundings of one addition per
  // child: one for each change, multiplied by the factor by which the total has fallen since.
  uint32_t error;

  static size_t bytes(EdgeColumns columns, uint32_t size) {
    return 8 + size * (columns.weighted * sizeof(double) + sizeof(Id) + 2 * sizeof(uint32_t)) +
           columns.timed * sizeof(BlockRef);
  }
  // Running sums over children 0 .. i; absent in a type without weights, where the counts serve instead.
  double* sums() { return reinterpret_cast<double*>(reinterpret_cast<unsigned char*>(this) + 8); }
  Id* keys(EdgeColumns columns) { return reinterpret_cast<Id*>(sums() + columns.weighted * size); }
  BlockRef* children(EdgeColumns columns) { return reinterpret_cast<BlockRef*>(keys(columns) + size); }
  uint32_t* counts(EdgeColumns columns) { return children(columns) + size; }
  // If edges have times: in a root, the order by time of everything below it; else 0.
  BlockRef* order(EdgeColumns columns) { return counts(columns) + size; }
  BlockRef order(EdgeColumns columns) const { return *const_cast<Inner*>(this)->order(columns); }
  const double* sums() const { return const_cast<Inner*>(this)->sums(); }
  const Id* keys(EdgeColumns columns) const { return const_cast<Inner*>(this)->keys(columns); }
  const BlockRef* children(EdgeColumns columns) const { return const_cast<Inner*>(this)->children(columns); }
  const uint32_t* counts(EdgeColumns columns) const { return const_cast<Inner*>(this)->counts(columns); }

  // The count of child i alone.
  uint32_t count(EdgeColumns columns, uint32_t i) const {
    return counts(columns)[i] - (i > 0 ? counts(columns)[i - 1] : 0);
  }
  // The child that contains an id, if any does.
  uint32_t child_of(EdgeColumns columns, Id id) const;
  // The child in which the running sum of weights first exceeds `*at`; `*at` becomes the remainder within that child.
  uint32_t child_at_weight(double* at) const;
};

template <class Id>
class Samtrees {
 public:
  // A change of one neighbour of one node.
  using Change = typename LeafWriter<Id>::Change;

  // What one thread needs to rebuild: its own blocks, and working memory.
  struct Lane : LeafWriter<Id>::Lane {
    typename TimeOrder<Id>::Lane order_by_time;

    size_t bytes() const {
      return LeafWriter<Id>::Lane::bytes() + bytes_of(order_by_time.entries) + bytes_of(order_by_time.changes);
    }
  };

  Samtrees(EdgeColumns columns, SamtreeOptions options)
      : columns_(columns), options_(options), leaves_(columns, options, &heap_), by_time_(&heap_, columns.weighted) {}
  Samtrees(const Samtrees&) = delete;
  Samtrees& operator=(const Samtrees&) = delete;

  const EdgeColumns& columns() const { return columns_; }
  const SamtreeOptions& options() const { return options_; }
  size_t size() const { return roots_.size(); }
  // New nodes have no neighbours. `prepare_size` allocates memory while readers go on; `settle_size` frees what was
  // replaced.
  void prepare_size(size_t size) { roots_.prepare(size); }
  void resize(size_t size) { roots_.resize(size); }
  void settle_size() noexcept { roots_.settle(); }

  // -- reading; a node at or above `size` has no neighbours

  SamtreeRoot root(size_t node) const { return node < roots_.size() ? roots_[node] : SamtreeRoot{}; }
  uint32_t degree(size_t node) const { return root(node).degree; }
  std::optional<EdgeValue> find(size_t node, Id id) const;

  // Calls `visit(BasicNeighborSpan<Id>)` for each leaf, in the order of the keys. A span is valid until `visit`
  // returns.
  template <class Visit>
  void scan(size_t node, Visit&& visit) const {
    scan(root(node), visit);
  }
  template <class Visit>
  void scan(SamtreeRoot from, Visit&& visit) const {
    if (from.node == 0) return;
    Id ids[SamtreeOptions::kMaxCapacity];
    scan_below(from.node, from.degree, ids, visit);
  }

  // Calls `visit(id, EdgeValue)` for each id from `low` to `high`, in any order.
  template <class Visit>
  void scan_range(size_t node, Id low, Id high, Visit&& visit) const {
    const SamtreeRoot from = root(node);
    if (from.node != 0) scan_range_below(from.node, from.degree, low, high, visit);
  }
  // The greatest id from `low` to `high`.
  std::optional<Id> last_in_range(size_t node, Id low, Id high) const;

  // The sum over all neighbours of a node; a negative weight counts as 0, and without weights each neighbour counts as
  // 1.
  double weight_sum(size_t node) const;

  // `leaf_of` returns the leaf of neighbour `*at` in the order of a scan; `leaf_at_weight` the leaf of the neighbour at
  // which the running sum of weights first exceeds `*at`. `*at` becomes the remainder within that leaf. Requires: `*at`
  // is less than the degree, or than the sum of weights except for rounding.
  LeafView<Id> leaf_of(SamtreeRoot root, uint32_t* at) const;
  LeafView<Id> leaf_at_weight(SamtreeRoot root, double* at) const;

  // Parts for draws by weight, for a node with many neighbours (weight_part.h). `part_of` covers all of them. `find`
  // returns the neighbour at which the running sum exceeds `rest` < part.sum, or false if rounding led to weights that
  // are all 0. `take_apart` divides a part along the path to that neighbour; single neighbours for which `skip(id)` is
  // true are left out. Requires: a root with neighbours; a part that is a node.
  WeightPart<Id> part_of(SamtreeRoot root) const {
    assert(root.node != 0);
    return {own_sum(root.node, root.degree), root.node, root.degree, 0};
  }
  bool find(WeightPart<Id> part, double rest, Id* id, size_t* leaves) const;
  template <class Skip>
  void take_apart(WeightPart<Id> part, double rest, const Skip& skip, std::vector<WeightPart<Id>>* to,
                  size_t* leaves) const;

  // The neighbours in the order of their times. If edges have no times, or a node has few neighbours, there is no such
  // order, and its root is 0.
  const TimeOrder<Id>& by_time() const { return by_time_; }
  typename TimeOrder<Id>::Tree order_of(SamtreeRoot root) const {
    if (!columns_.timed || root.node == 0 || header(root.node)->height == 0) return {};
    return {inner(root.node)->order(columns_), root.degree};
  }

  // Prefetching has two steps, because the second reads what the first fetches: a root, then the node below it.
  void prefetch_root(size_t node) const {
    if (node < roots_.size()) prefetch(&roots_[node]);
  }
  const void* address(size_t node) const {
    return node < roots_.size() && roots_[node].node != 0 ? heap_.at(roots_[node].node) : nullptr;
  }
  // The leaf that contains an id, if any does; null if the node has no neighbours.
  LeafView<Id> leaf_with(size_t node, Id id) const { return leaf_with(root(node), id); }
  LeafView<Id> leaf_with(SamtreeRoot root, Id id) const;

  // -- writing

  // Call it before `rebuild` runs on that many threads at once.
  void add_lanes(size_t lanes) { heap_.add_lanes(lanes); }

  // The tree of `from` after changes; no visible data changes. Requires: changes of distinct ids, sorted by id.
  SamtreeRoot rebuild(SamtreeRoot from, std::span<const Change> changes, Lane* lane);

  // The same with the work on leaves divided among threads: `split` lists which leaf gets which changes, `run` may be
  // called for different pieces at once, and `join` builds the upper levels.
  struct LeafWork;
  std::vector<LeafWork> split(SamtreeRoot from, std::span<const Change> changes) const;
  void run(LeafWork* work, Lane* lane);
  SamtreeRoot join(SamtreeRoot from, std::span<const Change> changes, std::span<const LeafWork> work, Lane* lane);

  void set_root(size_t node, SamtreeRoot root) { roots_[node] = root; }
  // Call it when no reader can see what was retired.
  void free_retired(Lane* lane) noexcept;
  // Called instead of `set_root`: frees the new blocks, and keeps those that were to be retired.
  void free_made(Lane* lane) noexcept;

  // One change at a time, without readers. Return true if the id is new (`upsert`), or existed (`remove`).
  bool upsert(size_t node, Id id, EdgeValue value);
  bool remove(size_t node, Id id);

  // -- compaction: returns memory when edges are removed. Like a change, it builds copies of what moves, and ends with
  // new roots. It spans many batches: `begin_compaction` marks the slabs that must be emptied, from which no new blocks
  // are allocated; then each root is relocated, in steps that spend a budget (one unit is the cost of reading one
  // root), and changes may happen between the steps; then the empty slabs are given back.

  // Call it after a batch; memory that the batch has freed is expected to be needed by the next one.
  void note_batch() noexcept;
  bool wants_compaction() const;
  bool begin_compaction();
  // Without a budget it moves everything; if the budget has reached 0, there may be more to move.
  SamtreeRoot relocate(SamtreeRoot root, Lane* lane, size_t* budget = nullptr);
  // Call it when all roots have been relocated and what they replaced is freed. False if the budget did not suffice.
  bool end_compaction(size_t* budget = nullptr) noexcept;

  size_t bytes() const { return roots_.capacity() * sizeof(SamtreeRoot) + heap_.resident_bytes(); }

  // -- the exact shape, so that restored trees behave like the saved ones: parents first, three words each: 1, number
  // of children and height for an inner node, followed by its keys; 0, size and 0 for a leaf; 2, 0, 0 for a node
  // without neighbours. The columns are in the order of a scan.
  struct Saved {
    std::vector<uint32_t> shape;
    std::vector<Id> keys, ids;
    std::vector<float> weights;
    std::vector<double> times;
    std::vector<uint32_t> rows;
    // Data that draws by weight read and that depends on earlier changes: `error` and the sums of each inner node and,
    // if edges also have times, the order by time of each root (time_order.h). Empty in states that were saved without
    // them, or without weights: then sums are added up again, and orders are built again.
    std::vector<double> sums;
    std::vector<uint64_t> orders;
    bool has_sums = true, has_orders = true;  // false for states that were saved without them
  };
  Saved save() const;
  // Appends the list of one node: a state may be put together from the lists of several objects with the same options.
  void save_list(size_t node, Saved* to) const;
  // Throws std::runtime_error if the columns do not fit together, or would violate an invariant; then nothing has
  // changed.
  void load(const Saved& from);

  // Throws std::logic_error that names the violated invariant.
  void check() const;

 private:
  static constexpr double kMaxError = 4096;
  // A degree has 32 bits, and an inner node has at least two children.
  static constexpr uint32_t kMaxHeight = 32;

  using Child = typename LeafWriter<Id>::Child;
  struct Reader;  // input that `load` has not read yet

  const Leaf<Id>* leaf(BlockRef ref) const { return static_cast<const Leaf<Id>*>(heap_.at(ref)); }
  const Inner<Id>* inner(BlockRef ref) const { return static_cast<const Inner<Id>*>(heap_.at(ref)); }
  const SamtreeNode* header(BlockRef ref) const { return static_cast<const SamtreeNode*>(heap_.at(ref)); }

  template <class Visit>
  void scan_below(BlockRef ref, uint32_t count, Id* ids, Visit& visit) const {
    if (header(ref)->height == 0) {
      const Leaf<Id>* from = leaf(ref);
      from->decode(columns_, count, ids);
      visit(BasicNeighborSpan<Id>{ids, columns_.weighted ? from->weights(columns_) : nullptr,
                                  columns_.timed ? from->times() : nullptr,
                                  columns_.featured ? from->rows(columns_) : nullptr, count});
      return;
    }
    const Inner<Id>* from = inner(ref);
    const BlockRef* children = from->children(columns_);
    for (uint32_t i = 0; i < from->size; ++i) scan_below(children[i], from->count(columns_, i), ids, visit);
  }

  template <class Visit>
  void scan_range_below(BlockRef ref, uint32_t count, Id low, Id high, Visit& visit) const {
    if (header(ref)->height == 0) {
      const Leaf<Id>* from = leaf(ref);
      Id ids[SamtreeOptions::kMaxCapacity];
      from->decode(columns_, count, ids);
      for (uint32_t i = 0; i < count; ++i) {
        if (ids[i] >= low && ids[i] <= high) visit(ids[i], from->value(columns_, i));
      }
      return;
    }
    const Inner<Id>* from = inner(ref);
    const uint32_t last = from->child_of(columns_, high);
    for (uint32_t i = from->child_of(columns_, low); i <= last; ++i) {
      scan_range_below(from->children(columns_)[i], from->count(columns_, i), low, high, visit);
    }
  }
  std::optional<Id> last_below(BlockRef ref, uint32_t count, Id low, Id high) const;

  void* make(size_t bytes, BlockRef* ref, Lane* lane);
  void update(const Child& from, std::span<const Change> changes, const LeafWork** work, Lane* lane,
              std::vector<Child>* out);
  void list_work(const Child& from, std::span<const Change> changes, std::vector<LeafWork>* work) const;
  std::vector<Child> children_of(BlockRef ref) const;
  double own_sum(BlockRef ref, uint32_t count) const;
  void fix(std::vector<Child>* children, uint32_t height, Lane* lane);
  void pack(Id key, const std::vector<Child>& children, uint32_t height, uint32_t error, Lane* lane,
            std::vector<Child>* out);
  SamtreeRoot grow(std::vector<Child> children, uint32_t height, Lane* lane);
  SamtreeRoot with_order(SamtreeRoot from, SamtreeRoot to, std::span<const Change> changes, Lane* lane);
  void list_order_changes(SamtreeRoot from, std::span<const Change> changes, Lane* lane) const;
  void list_by_time(SamtreeRoot root, Lane* lane) const;
  BlockRef build_order(SamtreeRoot root, Lane* lane);
  void check_order(SamtreeRoot root) const;
  bool apply(size_t node, const Change& change);
  BlockRef relocate_below(BlockRef ref, Lane* lane, size_t* budget);
  void retire_below(BlockRef ref, Lane* lane) const;
  void save_below(BlockRef ref, Id key, uint32_t count, Saved* to) const;
  Child load_below(Reader* from, Id key, const Id* high, int height, Lane* lane);
  void load_sums(std::span<const double> saved, BlockRef ref);
  void load_order(Reader* from, SamtreeRoot root, Lane* lane);
  Child load_leaf(Reader* from, Id key, const Id* high, uint32_t size, Lane* lane);
  void check_below(BlockRef ref, uint32_t count, Id low, const Id* high, bool is_root, double* sum) const;

  EdgeColumns columns_;
  SamtreeOptions options_;
  BlockHeap heap_;
  LeafWriter<Id> leaves_;
  TimeOrder<Id> by_time_;
  GrowingArray<SamtreeRoot> roots_;
  size_t freed_ = 0, churn_ = 0;  // bytes that this batch has freed, and a decaying maximum over recent batches
  size_t stuck_ = 0;              // bytes that the last compaction left free: too few blocks of a size to fill a slab
  Lane lane_;                     // for `upsert` and `remove`
};

template <class Id>
struct Samtrees<Id>::LeafWork {
  Child leaf;
  std::span<const Change> changes;
  std::vector<Child> made;
};

template <class Id>
template <class Skip>
void Samtrees<Id>::take_apart(WeightPart<Id> part, double rest, const Skip& skip, std::vector<WeightPart<Id>>* to,
                              size_t* leaves) const {
  BlockRef ref = part.node;
  uint32_t count = part.count;
  while (header(ref)->height > 0) {
    const Inner<Id>* from = inner(ref);
    const uint32_t taken = from->child_at_weight(&rest);
    for (uint32_t i = 0; i < from->size; ++i) {
      const uint32_t below = from->count(columns_, i);
      const BlockRef child = from->children(columns_)[i];
      if (i == taken) continue;
      // Its own sum: the difference of two running sums may have lost it next to a greater one.
      *leaves += from->height == 1;
      const double sum = own_sum(child, below);
      if (sum > 0) to->push_back({sum, child, below, Id{0}});
    }
    count = from->count(columns_, taken);
    ref = from->children(columns_)[taken];
  }
  const Leaf<Id>* last = leaf(ref);
  ++*leaves;
  for (uint32_t i = 0; i < count; ++i) {
    const float weight = last->weights(columns_)[i];
    if (!(weight > 0)) continue;
    const Id id = last->id(columns_, i);
    if (!skip(id)) to->push_back({weight, 0, 1, id});
  }
}

extern template class Samtrees<uint32_t>;
extern template class Samtrees<uint64_t>;

}  // namespace livegnn
