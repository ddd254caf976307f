#include "livegnn/batch_updater.h"

#include <algorithm>

#include "parallel.h"

namespace livegnn {
namespace {

constexpr size_t kBucketItems = 512;    // on average; enough for prefetches to run ahead in
constexpr size_t kKeptItems = 1 << 18;  // of the largest batch whose memory is kept for the next
constexpr uint32_t kHot = 1024;         // changes to one node from which its leaves are shared out
constexpr double kItemCost = 400;       // nanoseconds
constexpr size_t kLeavesAtOnce = 8;
constexpr size_t kRootAhead = 24, kNodeAhead = 16, kLeafAhead = 10, kBodyAhead = 5, kRing = 16;

}  // namespace

void BatchUpdater::sort_into_buckets(std::span<const Item> items) {
  uint64_t num_nodes = 1;
  for (const Item& item : items) num_nodes = std::max(num_nodes, uint64_t{item.node} + 1);
  const size_t num_buckets = items.size() / kBucketItems + 1;
  auto bucket_of = [&](const Item& item) { return static_cast<size_t>(item.node * num_buckets / num_nodes); };
  auto key_of = [&](size_t i) {
    return Key{(uint64_t{items[i].node} << 32) | items[i].change.id, static_cast<uint32_t>(i)};
  };

  keys_.resize(items.size());
  changes_.resize(items.size());
  starts_.assign(num_buckets + 1, 0);
  used_buckets_ = num_buckets;
  if (buckets_.size() < num_buckets) buckets_.resize(num_buckets);
  for (const Item& item : items) ++starts_[bucket_of(item) + 1];
  for (size_t b = 0; b < num_buckets; ++b) starts_[b + 1] += starts_[b];
  std::vector<uint32_t> next(starts_.begin(), starts_.end() - 1);
  for (size_t i = 0; i < items.size(); ++i) keys_[next[bucket_of(items[i])]++] = key_of(i);
}

// A node's root, the node below it, the leaf that will change, and all of that leaf are four misses in a row: each is
// asked for while earlier nodes are worked on.
void BatchUpdater::prefetch_ahead(const std::vector<Group>& groups, size_t i, bool whole,
                                  LeafView<uint32_t>* leaves) const {
  if (i + kRootAhead < groups.size()) trees_->prefetch_root(groups[i + kRootAhead].node);
  if (i + kNodeAhead < groups.size()) __builtin_prefetch(trees_->address(groups[i + kNodeAhead].node));
  if (i + kLeafAhead < groups.size()) {
    const Group& group = groups[i + kLeafAhead];
    LeafView<uint32_t>& view = leaves[(i + kLeafAhead) % kRing];
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
      fetch(leaf, Leaf<uint32_t>::bytes(columns, leaf->room, leaf->bits));
      return;
    }
    // The ids are searched, and the columns of what is appended written.
    fetch(leaf->ids(columns), IdCodec<uint32_t>::bytes(leaf->bits, leaf->room));
    if (!columns.weighted) return;
    fetch(leaf->weights(columns) + size / FSTable::kRun * FSTable::kRun, 2 * 64);
    __builtin_prefetch(leaf->sums(columns));
  }
}

void BatchUpdater::run_bucket(size_t bucket, std::span<const Item> items, Trees::Lane* lane) {
  const uint32_t begin = starts_[bucket], end = starts_[bucket + 1];
  std::sort(keys_.begin() + begin, keys_.begin() + end, [](const Key& a, const Key& b) { return a.order < b.order; });
  Bucket& to = buckets_[bucket];
  for (uint32_t i = begin; i < end; ++i) {
    const Item& item = items[keys_[i].item];
    changes_[i] = item.change;
    if (to.groups.empty() || to.groups.back().node != item.node) to.groups.push_back({item.node, i, i});
    to.groups.back().end = i + 1;
  }
  LeafView<uint32_t> leaves[kRing];
  bool whole = false;  // whether the last change made a copy of a leaf: then the next one will, too
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

void BatchUpdater::run_hot(const Group& group, ThreadPool* pool) {
  const SamtreeRoot root = trees_->root(group.node);
  const std::span changes(changes_.data() + group.begin, group.end - group.begin);
  auto work = trees_->split(root, changes);
  pool->run((work.size() + kLeavesAtOnce - 1) / kLeavesAtOnce, kItemCost * static_cast<double>(changes.size()),
            [&](size_t block, size_t lane) {
              const size_t end = std::min(work.size(), (block + 1) * kLeavesAtOnce);
              for (size_t i = block * kLeavesAtOnce; i < end; ++i) trees_->run(&work[i], &lanes_[lane]);
            });
  const SamtreeRoot joined = trees_->join(root, changes, work, &lanes_[0]);
  buckets_[0].results.push_back({group.node, joined});
  buckets_[0].growth += int64_t{joined.degree} - root.degree;
}

void BatchUpdater::prepare(std::span<const Item> items, ThreadPool* pool) {
  if (lanes_.size() < pool->threads()) {
    trees_->add_lanes(pool->threads());
    while (lanes_.size() < pool->threads()) {
      const size_t index = lanes_.size();
      lanes_.emplace_back().index = index;
    }
  }
  try {
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

bool BatchUpdater::prepare_compaction() {
  if (lanes_.empty()) lanes_.emplace_back();
  if (buckets_.empty()) buckets_.emplace_back();
  used_buckets_ = 1;
  if (!trees_->wants_compaction() || !trees_->begin_compaction()) return false;
  compacting_ = true;
  try {
    for (size_t node = 0; node < trees_->size(); ++node) {
      const SamtreeRoot old = trees_->root(node);
      const SamtreeRoot root = trees_->relocate(old, &lanes_[0]);
      if (root.node != old.node) buckets_[0].results.push_back({static_cast<uint32_t>(node), root});
    }
  } catch (...) {
    abandon();
    throw;
  }
  return true;
}

void BatchUpdater::commit() {
  constexpr size_t kAhead = 16;
  for (const Bucket& bucket : std::span(buckets_).first(used_buckets_)) {
    for (size_t i = 0; i < bucket.results.size(); ++i) {
      if (i + kAhead < bucket.results.size()) trees_->prefetch_root(bucket.results[i + kAhead].node);
      trees_->set_root(bucket.results[i].node, bucket.results[i].root);
    }
  }
}

void BatchUpdater::settle() {
  for (auto& lane : lanes_) trees_->free_retired(&lane);
  if (compacting_) {
    trees_->end_compaction();
  } else {
    trees_->note_batch();
  }
  compacting_ = false;
  growth_ = 0;
  for (Bucket& bucket : std::span(buckets_).first(used_buckets_)) {
    bucket.groups.clear(), bucket.hot.clear(), bucket.results.clear();
    bucket.growth = 0;
  }
  used_buckets_ = 0;
  // A graph that was loaded in one batch would keep more for it than its edges take.
  if (keys_.capacity() > kKeptItems) {
    keys_ = {};
    changes_ = {};
    starts_ = {};
    buckets_ = {};
    for (auto& lane : lanes_) {
      const size_t index = lane.index;
      lane = {};
      lane.index = index;
    }
  }
}

void BatchUpdater::abandon() {
  for (auto& lane : lanes_) trees_->free_made(&lane);
  settle();
}

size_t BatchUpdater::bytes() const {
  size_t bytes = keys_.capacity() * sizeof(Key) + changes_.capacity() * sizeof(Trees::Change) +
                 starts_.capacity() * sizeof(uint32_t) + buckets_.capacity() * sizeof(Bucket);
  for (const Bucket& bucket : buckets_) {
    bytes +=
        (bucket.groups.capacity() + bucket.hot.capacity()) * sizeof(Group) + bucket.results.capacity() * sizeof(Result);
  }
  for (const auto& lane : lanes_) bytes += (lane.made.capacity() + lane.retired.capacity()) * sizeof(BlockRef);
  return bytes;
}

}  // namespace livegnn
