// Applies many changes to many samtrees at once, on several threads and without latches (PlatoD2GL, section VI-B, after
// PALM).
//
//   changes ─► buckets of nodes ─► each bucket, by one thread: sort, group by node, build each node's new tree
//                                         └─ a node with very many changes waits ─► its leaves shared by all threads,
//                                                                                    then its upper levels
// `prepare` does all this while readers go on; `commit` installs the new roots, and is short; `settle` frees what was
// replaced.
//
// Invariants: between `prepare` and `commit` (or `abandon`) nothing else changes the trees. The result depends on the
// changes alone, not on the number of threads.
// Thread safety: `prepare` may run concurrently with readers; `commit` needs exclusive access; `settle` may run once
// every reader that began before `commit` has finished.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include "memory/recent_needs.h"
#include "store/samtree/samtree.h"

namespace livegnn {

class ThreadPool;

template <class Id>
class BasicBatchUpdater {
 public:
  using Trees = Samtrees<Id>;
  struct Item {
    uint32_t node;
    typename Trees::Change change;
  };

  explicit BasicBatchUpdater(Trees* trees) : trees_(trees) {}

  // Requires: no (node, id) twice; the previous batch or compaction step is settled or abandoned. If it throws, nothing
  // has changed.
  void prepare(std::span<const Item> items, ThreadPool* pool);
  // Builds what the next step of a compaction moves: about as much as the last batch changed, so that compaction delays
  // no batch for long. Returns false if no compaction is wanted. Call `commit` (unless nothing `is_moved`) and `settle`
  // next, as for a batch. If it throws std::bad_alloc, nothing has changed.
  bool prepare_compaction();
  bool is_moved() const { return compacting_ && !buckets_[0].results.empty(); }

  // The root that a node will have after `commit`; call it between `prepare` and `commit`, also concurrently with
  // readers.
  SamtreeRoot root_after(uint32_t node) const;

  // How many more neighbours there are after `commit` than before; negative if there are fewer.
  int64_t growth() const { return growth_; }
  // Does nothing if nothing is prepared.
  void commit() noexcept;
  // Returns how many bytes of working memory it has given back (recent_needs.h).
  size_t settle() noexcept;
  void abandon() noexcept;

  size_t bytes() const;

 private:
  __extension__ using Wide = unsigned __int128;
  struct Key {
    std::conditional_t<sizeof(Id) == sizeof(uint32_t), uint64_t, Wide> order;  // node and id
    uint32_t item;
  };
  struct Group {
    uint32_t node, begin, end;  // range in `changes_`
  };
  struct Result {
    uint32_t node;
    SamtreeRoot root;
  };
  struct Bucket {
    std::vector<Group> groups, hot;
    std::vector<Result> results;
    int64_t growth = 0;
  };

  size_t bucket_of(uint32_t node) const { return static_cast<size_t>(node * buckets_of_batch_ / nodes_of_batch_); }
  void sort_into_buckets(std::span<const Item> items);
  void run_bucket(size_t bucket, std::span<const Item> items, typename Trees::Lane* lane);
  void run_hot(const Group& group, ThreadPool* pool);
  void prefetch_ahead(const std::vector<Group>& groups, size_t i, bool whole, LeafView<Id>* leaves) const;

  Trees* trees_;
  std::vector<Key> keys_;
  std::vector<typename Trees::Change> changes_;  // in the order of `keys_`
  std::vector<uint32_t> starts_;                 // of the buckets in `keys_`
  std::vector<Bucket> buckets_;
  std::vector<Result> hot_results_;  // of the nodes that wait, sorted
  size_t used_buckets_ = 0;          // by the current batch
  uint64_t buckets_of_batch_ = 1, nodes_of_batch_ = 1;
  size_t need_ = 0;  // of the current batch, in changes
  RecentNeeds needs_{size_t{1} << 12};
  std::vector<typename Trees::Lane> lanes_;
  int64_t growth_ = 0;
  size_t batch_items_ = 0;   // of the last batch
  bool in_batch_ = false;    // between `prepare` and `settle`
  bool compacting_ = false;  // between `prepare_compaction` and `settle`
  // While a compaction goes on, nodes below `moved_` are done, and those below `next_moved_` after the current step.
  enum : uint8_t { kNone, kMoving, kReclaiming } compaction_ = kNone;
  size_t moved_ = 0, next_moved_ = 0, budget_ = 0;
};

extern template class BasicBatchUpdater<uint32_t>;
extern template class BasicBatchUpdater<uint64_t>;
using BatchUpdater = BasicBatchUpdater<uint32_t>;

}  // namespace livegnn
