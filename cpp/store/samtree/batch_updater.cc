#include "store/samtree/batch_updater.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "threads/parallel.h"

namespace livegnn {
namespace {

constexpr size_t kBucketItems = 512;  // on average; enough for prefetching ahead
constexpr uint32_t kHot = 1024;       // number of changes to one node from which its leaves are shared among threads
constexpr double kItemCost = 400;     // nanoseconds
constexpr size_t kLeavesAtOnce = 8;
// Budget of a compaction after a batch, in units of reading a root (some nanoseconds): a tenth of the cost of the batch
// itself, and at least tens of microseconds.
constexpr size_t kCompactionStep = 1024, kCompactionPerItem = 8;
constexpr size_t kRootAhead = 24, kNodeAhead = 16, kLeafAhead = 10, kBodyAhead = 5, kRing = 16;

}  // namespace

template <class Id>
void BasicBatchUpdater<Id>::sort_into_buckets(std::span<const Item> items) {
  uint64_t num_nodes = 1;
  for (const Item& item : items) num_nodes = std::max(num_nodes, uint64_t{item.node} + 1);
  const size_t num_buckets = items.size() / kBucketItems + 1;
  buckets_of_batch_ = num_buckets;
  nodes_of_batch_ = num_nodes;
  auto key_of = [&](size_t i) {
    const decltype(Key::order) node = items[i].node;
    return Key{(node << (8 * sizeof(Id))) | items[i].change.id, static_cast<uint32_t>(i)};
  };

  need_ = items.size();
  keys_.resize(items.size());
  changes_.resize(items.size());
  starts_.assign(num_buckets + 1, 0);
  if (buckets_.size() < num_buckets) buckets_.resize(num_buckets);
  used_buckets_ = num_buckets;
  for (const Item& item : items) ++starts_[bucket_of(item.node) + 1];
  for (size_t b = 0; b < num_buckets; ++b) starts_[b + 1] += starts_[b];
  std::vector<uint32_t> next(starts_.begin(), starts_.end() - 1);
  for (size_t i = 0; i < items.size(); ++i) keys_[next[bucket_of(items[i].node)]++] = key_of(i);
}

// A node's root, the node below it, the leaf that will change, and the whole of that leaf are four misses in a row:
// each is prefetched while earlier nodes are processed.
template <class Id>
void BasicBatchUpdater<Id>::prefetch_ahead(const std::vector<Group>& groups, size_t i, bool whole,
                                           LeafView<Id>* leaves) const {
  if (i + kRootAhead < groups.size()) trees_->prefetch_root(groups[i + kRootAhead].node);
  if (i + kNodeAhead < groups.size()) __builtin_prefetch(trees_->address(groups[i + kNodeAhead].node));
  if (i + kLeafAhead < groups.size()) {
    const Group& group = groups[i + kLeafAhead];
    LeafView<Id>& view = leaves[(i + kLeafAhead) % kRing];
    view = trees_->leaf_with(group.node, changes_[group.begin].id);
    __builtin_prefetch(view.leaf);
  }
  if (i + kBodyAhead < groups.size() && i >= kLeafAhead - kBodyAhead) {
    const auto [leaf, size] = leaves[(i + kBodyAhead) % kRing];
    if (leaf == nullptr) return;
    const EdgeColumns columns = trees_->columns();
    auto fetch = [](const void* begin, size_t bytes) {
      for (size_t offset = 0; offset < bytes; offset += 64)
        __builtin_prefetch(static_cast<const char*>(begin) + offset);
    };
    if (whole) {
      fetch(leaf, Leaf<Id>::bytes(columns, leaf->room, leaf->bits));
      return;
    }
    // The ids are searched, and the columns of an appended entry are written.
    fetch(leaf->ids(columns), IdCodec<Id>::bytes(leaf->bits, leaf->room));
    if (!columns.weighted) return;
    fetch(leaf->weights(columns) + size / FSTable::kRun * FSTable::kRun, 2 * 64);
    __builtin_prefetch(leaf->sums(columns));
  }
}

template <class Id>
void BasicBatchUpdater<Id>::run_bucket(size_t bucket, std::span<const Item> items, typename Trees::Lane* lane) {
  const uint32_t begin = starts_[bucket], end = starts_[bucket + 1];
  std::sort(keys_.begin() + begin, keys_.begin() + end, [](const Key& a, const Key& b) { return a.order < b.order; });
  Bucket& to = buckets_[bucket];
  for (uint32_t i = begin; i < end; ++i) {
    const Item& item = items[keys_[i].item];
    changes_[i] = item.change;
    if (to.groups.empty() || to.groups.back().node != item.node) to.groups.push_back({item.node, i, i});
    to.groups.back().end = i + 1;
  }
  LeafView<Id> leaves[kRing];
  bool whole = false;  // whether the last change copied a leaf: then the next one probably will, too
  for (size_t i = 0; i < to.groups.size(); ++i) {
    prefetch_ahead(to.groups, i, whole, leaves);
    const Group& group = to.groups[i];
    const SamtreeRoot root = trees_->root(group.node);
    if (group.end - group.begin >= kHot && root.degree > trees_->options().capacity) {
      to.hot.push_back(group);
      continue;
    }
    const std::span changes(changes_.data() + group.begin, group.end - group.begin);
    to.results.push_back({group.node, trees_->rebuild(root, changes, lane)});
    const int64_t growth = int64_t{to.results.back().root.degree} - root.degree;
    to.growth += growth;
    whole = growth <= 0;
  }
}

template <class Id>
void BasicBatchUpdater<Id>::run_hot(const Group& group, ThreadPool* pool) {
  const SamtreeRoot root = trees_->root(group.node);
  const std::span changes(changes_.data() + group.begin, group.end - group.begin);
  auto work = trees_->split(root, changes);
  pool->run((work.size() + kLeavesAtOnce - 1) / kLeavesAtOnce, kItemCost * static_cast<double>(changes.size()),
            [&](size_t block, size_t lane) {
              const size_t end = std::min(work.size(), (block + 1) * kLeavesAtOnce);
              for (size_t i = block * kLeavesAtOnce; i < end; ++i) trees_->run(&work[i], &lanes_[lane]);
            });
  const SamtreeRoot joined = trees_->join(root, changes, work, &lanes_[0]);
  hot_results_.push_back({group.node, joined});
  buckets_[0].growth += int64_t{joined.degree} - root.degree;
}

template <class Id>
void BasicBatchUpdater<Id>::prepare(std::span<const Item> items, ThreadPool* pool) {
  assert(!in_batch_ && !compacting_);
  in_batch_ = true;
  batch_items_ = items.size();
  try {
    if (lanes_.size() < pool->threads()) {
      trees_->add_lanes(pool->threads());
      while (lanes_.size() < pool->threads()) {
        const size_t index = lanes_.size();
        lanes_.emplace_back().index = index;
      }
    }
    sort_into_buckets(items);
    pool->run(used_buckets_, kItemCost * static_cast<double>(items.size()),
              [&](size_t bucket, size_t lane) { run_bucket(bucket, items, &lanes_[lane]); });
    for (size_t b = 0; b < used_buckets_; ++b) {
      for (const Group& group : buckets_[b].hot) run_hot(group, pool);
    }
    for (const Bucket& bucket : std::span(buckets_).first(used_buckets_)) growth_ += bucket.growth;
  } catch (...) {
    abandon();
    throw;
  }
}

template <class Id>
bool BasicBatchUpdater<Id>::prepare_compaction() {
  assert(!in_batch_ && !compacting_);
  if (compaction_ == kNone) {
    if (!trees_->wants_compaction() || !trees_->begin_compaction()) return false;
    compaction_ = kMoving;
    moved_ = next_moved_ = 0;
  }
  if (lanes_.empty()) lanes_.emplace_back();
  if (buckets_.empty()) buckets_.emplace_back();
  used_buckets_ = 1;
  compacting_ = true;
  budget_ = kCompactionStep + kCompactionPerItem * batch_items_;
  try {
    while (next_moved_ < trees_->size() && compaction_ == kMoving) {
      if (budget_ > 0) --budget_;
      const SamtreeRoot old = trees_->root(next_moved_);
      const SamtreeRoot root = trees_->relocate(old, &lanes_[0], &budget_);
      if (root.node != old.node) buckets_[0].results.push_back({static_cast<uint32_t>(next_moved_), root});
      if (budget_ == 0) break;  // there may be more to move below this root
      ++next_moved_;
    }
  } catch (...) {
    abandon();
    throw;
  }
  return true;
}

template <class Id>
SamtreeRoot BasicBatchUpdater<Id>::root_after(uint32_t node) const {
  if (!in_batch_ || node >= nodes_of_batch_) return trees_->root(node);
  for (const std::vector<Result>* results : {&buckets_[bucket_of(node)].results, &hot_results_}) {
    const auto found = std::lower_bound(results->begin(), results->end(), node,
                                        [](const Result& result, uint32_t node) { return result.node < node; });
    if (found != results->end() && found->node == node) return found->root;
  }
  return trees_->root(node);
}

template <class Id>
void BasicBatchUpdater<Id>::commit() noexcept {
  constexpr size_t kAhead = 16;
  for (const Bucket& bucket : std::span(buckets_).first(used_buckets_)) {
    for (size_t i = 0; i < bucket.results.size(); ++i) {
      if (i + kAhead < bucket.results.size()) trees_->prefetch_root(bucket.results[i + kAhead].node);
      trees_->set_root(bucket.results[i].node, bucket.results[i].root);
    }
  }
  for (const Result& result : hot_results_) trees_->set_root(result.node, result.root);
}

template <class Id>
size_t BasicBatchUpdater<Id>::settle() noexcept {
  for (auto& lane : lanes_) trees_->free_retired(&lane);
  if (compacting_) {
    need_ = buckets_[0].results.size();
    moved_ = next_moved_;
    if (moved_ >= trees_->size()) compaction_ = kReclaiming;
    if (compaction_ == kReclaiming && trees_->end_compaction(&budget_)) compaction_ = kNone;
  }
  if (in_batch_) trees_->note_batch();
  compacting_ = in_batch_ = false;
  growth_ = 0;
  for (Bucket& bucket : std::span(buckets_).first(used_buckets_)) {
    bucket.groups.clear(), bucket.hot.clear(), bucket.results.clear();
    bucket.growth = 0;
  }
  hot_results_.clear();
  used_buckets_ = 0;
  if (!needs_.outgrown(std::exchange(need_, 0))) return 0;
  const size_t held = bytes();
  give_back(&keys_);
  give_back(&changes_);
  give_back(&starts_);
  give_back(&buckets_);
  give_back(&hot_results_);
  for (auto& lane : lanes_) {
    const size_t index = lane.index;
    lane = {};
    lane.index = index;
  }
  return held;
}

template <class Id>
void BasicBatchUpdater<Id>::abandon() noexcept {
  if (!in_batch_ && !compacting_) return;
  for (auto& lane : lanes_) trees_->free_made(&lane);
  next_moved_ = moved_;
  budget_ = 0;
  settle();
}

template <class Id>
size_t BasicBatchUpdater<Id>::bytes() const {
  size_t bytes = keys_.capacity() * sizeof(Key) + changes_.capacity() * sizeof(typename Trees::Change) +
                 starts_.capacity() * sizeof(uint32_t) + buckets_.capacity() * sizeof(Bucket) +
                 hot_results_.capacity() * sizeof(Result);
  for (const Bucket& bucket : buckets_) {
    bytes +=
        (bucket.groups.capacity() + bucket.hot.capacity()) * sizeof(Group) + bucket.results.capacity() * sizeof(Result);
  }
  for (const auto& lane : lanes_) bytes += lane.bytes();
  return bytes;
}

template class BasicBatchUpdater<uint32_t>;
template class BasicBatchUpdater<uint64_t>;

}  // namespace livegnn
