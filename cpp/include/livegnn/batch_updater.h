// Many changes to many samtrees at once, on a few threads and without latches (PlatoD2GL, section VI-B, after PALM).
//
//   changes ─► buckets of nodes ─► each bucket, by one thread: sort, group by node, rebuild each node's tree aside
//                                         └─ a node with very many changes waits ─► its leaves shared by all threads,
//                                                                                    then its upper levels
//   `prepare` does all that beside readers; `commit` puts the new roots in, and is short; `settle` frees what was
//   replaced.
//
// Invariants: between `prepare` and `commit` (or `abandon`) nobody else changes the trees. The result depends on the
// changes alone, not on the number of threads.
// Thread safety: `prepare` beside readers; `commit` alone; `settle` when every reader that began before `commit` is
// gone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "livegnn/samtree.h"

namespace livegnn {

class ThreadPool;

class BatchUpdater {
 public:
  using Trees = Samtrees<uint32_t>;
  struct Item {
    uint32_t node;
    Trees::Change change;
  };

  explicit BatchUpdater(Trees* trees) : trees_(trees) {}

  // No (node, id) may occur twice. If it throws, nothing has happened.
  void prepare(std::span<const Item> items, ThreadPool* pool);
  // Builds aside what compaction moves; false if there is nothing to move. Then `commit` and `settle`, as for a batch.
  bool prepare_compaction();

  // How many more neighbours there are after `commit` than before; less than 0 if there are fewer.
  int64_t growth() const { return growth_; }
  void commit();
  void settle();
  void abandon();

  size_t bytes() const;

 private:
  struct Key {
    uint64_t order;  // node and id
    uint32_t item;
  };
  struct Group {
    uint32_t node, begin, end;  // of `changes_`
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

  void sort_into_buckets(std::span<const Item> items);
  void run_bucket(size_t bucket, std::span<const Item> items, Trees::Lane* lane);
  void run_hot(const Group& group, ThreadPool* pool);
  void prefetch_ahead(const std::vector<Group>& groups, size_t i, bool whole, LeafView<uint32_t>* leaves) const;

  Trees* trees_;
  std::vector<Key> keys_;
  std::vector<Trees::Change> changes_;  // in the order of `keys_`
  std::vector<uint32_t> starts_;        // of the buckets in `keys_`
  std::vector<Bucket> buckets_;
  size_t used_buckets_ = 0;  // by the batch at hand
  std::vector<Trees::Lane> lanes_;
  int64_t growth_ = 0;
  bool compacting_ = false;
};

}  // namespace livegnn
