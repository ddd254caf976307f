#include "store/samtree/time_order.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace livegnn {

// -- blocks ---------------------------------------------------------------------------------------------------------

template <class Id>
typename TimeOrder<Id>::Leaf TimeOrder<Id>::leaf(BlockRef ref) const {
  auto* at = static_cast<double*>(heap_->at(ref));
  const uint32_t room = header(ref)->size;
  auto* ids = reinterpret_cast<Id*>(at + 1 + room);
  return {room, at + 1, ids, weighted_ ? reinterpret_cast<float*>(ids + room) : nullptr};
}

template <class Id>
typename TimeOrder<Id>::Inner TimeOrder<Id>::inner(BlockRef ref) const {
  auto* at = static_cast<double*>(heap_->at(ref)) + 1;
  const uint32_t size = header(ref)->size;
  double* times = at + (weighted_ ? size : 0);
  auto* ids = reinterpret_cast<Id*>(times + size);
  auto* counts = reinterpret_cast<uint32_t*>(ids + size);
  return {size, header(ref)->height, weighted_ ? at : nullptr, times, ids, counts, counts + size};
}

template <class Id>
void* TimeOrder<Id>::make(size_t bytes, BlockRef* ref, BlockLane* lane) {
  *ref = lane->allocate(heap_, bytes);
  return heap_->at(*ref);
}

template <class Id>
void TimeOrder<Id>::write(const Leaf& to, uint32_t i, const Entry& entry) const {
  to.times[i] = entry.time;
  to.ids[i] = entry.id;
  if (weighted_) to.weights[i] = entry.weight;
}

// Room for a sixteenth more entries, plus what fits into the rounded size of the block.
template <class Id>
typename TimeOrder<Id>::Child TimeOrder<Id>::make_leaf(const Entry& key, std::span<const Entry> entries,
                                                       BlockLane* lane) {
  const auto n = static_cast<uint32_t>(entries.size());
  uint32_t room = std::min(kLeaf, n + std::max(1u, n / 16));
  const size_t bytes = BlockHeap::rounded(leaf_bytes(room));
  while (room < kLeaf && leaf_bytes(room + 1) <= bytes) ++room;
  Child made{key, 0, n, 0, true};
  *static_cast<Header*>(make(leaf_bytes(room), &made.node, lane)) = {static_cast<uint16_t>(room), 0};
  const Leaf to = leaf(made.node);
  for (uint32_t i = 0; i < n; ++i) {
    write(to, i, entries[i]);
    made.sum += std::max(0.0f, entries[i].weight);
  }
  return made;
}

template <class Id>
void TimeOrder<Id>::make_leaves(const Entry& key, std::span<const Entry> entries, BlockLane* lane,
                                std::vector<Child>* out) {
  const size_t n = entries.size(), pieces = (n + kLeaf - 1) / kLeaf;
  for (size_t p = 0; p < pieces; ++p) {
    const size_t begin = n * p / pieces, end = n * (p + 1) / pieces;
    out->push_back(make_leaf(p == 0 ? key : entries[begin], entries.subspan(begin, end - begin), lane));
  }
}

template <class Id>
void TimeOrder<Id>::read(BlockRef ref, uint32_t count, std::vector<Entry>* to) const {
  const Leaf from = leaf(ref);
  for (uint32_t i = 0; i < count; ++i) to->push_back(entry(from, i));
}

template <class Id>
std::vector<typename TimeOrder<Id>::Child> TimeOrder<Id>::children_of(const Entry& key, BlockRef ref) const {
  const Inner from = inner(ref);
  std::vector<Child> children(from.size);
  for (uint32_t i = 0; i < from.size; ++i) {
    const Entry first = i == 0 ? key : Entry{from.times[i], from.ids[i], 0};
    children[i] = {first, from.children[i], from.counts[i], weighted_ ? from.sums[i] : 0, false};
  }
  return children;
}

template <class Id>
void TimeOrder<Id>::pack(const std::vector<Child>& children, uint32_t height, BlockLane* lane,
                         std::vector<Child>* out) {
  const size_t n = children.size(), pieces = (n + kInner - 1) / kInner;
  for (size_t p = 0; p < pieces; ++p) {
    const size_t begin = n * p / pieces, end = n * (p + 1) / pieces;
    Child made{children[begin].first, 0, 0, 0, true};
    *static_cast<Header*>(make(inner_bytes(static_cast<uint32_t>(end - begin)), &made.node, lane)) = {
        static_cast<uint16_t>(end - begin), static_cast<uint8_t>(height)};
    const Inner to = inner(made.node);
    for (size_t i = begin; i < end; ++i) {
      const Child& child = children[i];
      made.count += child.count;
      made.sum += child.sum;
      if (weighted_) to.sums[i - begin] = child.sum;
      to.times[i - begin] = child.first.time;
      to.ids[i - begin] = child.first.id;
      to.counts[i - begin] = child.count;
      to.children[i - begin] = child.node;
    }
    out->push_back(made);
  }
}

// -- changes --------------------------------------------------------------------------------------------------------

// Appends entries after all others, the usual case for edges of a stream: nothing moves, and full leaves stay full.
template <class Id>
void TimeOrder<Id>::append(Child child, std::span<const Change> changes, Lane* work, BlockLane* lane,
                           std::vector<Child>* out) {
  const auto more = static_cast<uint32_t>(std::min<size_t>(changes.size(), kLeaf - child.count));
  auto& entries = work->entries;
  entries.clear();
  if (child.count + more <= leaf(child.node).room) {
    const Leaf to = leaf(child.node);  // after the entries that readers know of
    for (uint32_t i = 0; i < more; ++i) {
      write(to, child.count + i, changes[i].entry);
      child.sum += std::max(0.0f, changes[i].entry.weight);
    }
    child.count += more;
    child.fresh = child.fresh || more > 0;
    out->push_back(child);
  } else {
    read(child.node, child.count, &entries);
    for (const Change& change : changes.first(more)) entries.push_back(change.entry);
    lane->retired.push_back(child.node);
    out->push_back(make_leaf(child.first, entries, lane));
  }
  if (more == changes.size()) return;
  entries.clear();
  for (const Change& change : changes.subspan(more)) entries.push_back(change.entry);
  make_leaves(entries[0], entries, lane, out);
}

template <class Id>
void TimeOrder<Id>::update_leaf(const Child& child, std::span<const Change> changes, Lane* work, BlockLane* lane,
                                std::vector<Child>* out) {
  const Leaf from = leaf(child.node);
  if (changes[0].has && entry(from, child.count - 1).before(changes[0].entry)) {
    // All changes add entries, because removed ones are in the leaf.
    append(child, changes, work, lane, out);
    return;
  }
  auto& entries = work->entries;
  entries.clear();
  uint32_t at = 0;
  for (const Change& change : changes) {
    while (at < child.count && entry(from, at).before(change.entry)) entries.push_back(entry(from, at++));
    // This is the entry that the change replaces or removes.
    if (at < child.count && !change.entry.before(entry(from, at))) ++at;
    if (change.has) entries.push_back(change.entry);
  }
  while (at < child.count) entries.push_back(entry(from, at++));
  lane->retired.push_back(child.node);
  make_leaves(child.first, entries, lane, out);
}

// Joins adjacent nodes that are together no more than half full. `height` is that of the nodes.
template <class Id>
void TimeOrder<Id>::join_small(std::vector<Child>* children, uint32_t height, Lane* work, BlockLane* lane) {
  const uint32_t most = height == 0 ? kLeaf / 2 : kInner / 2;
  size_t kept = 0;
  for (size_t i = 1; i < children->size(); ++i) {
    Child& a = (*children)[kept];
    const Child& b = (*children)[i];
    bool joins = a.fresh || b.fresh;
    if (joins) {
      const uint32_t together = height == 0 ? a.count + b.count : uint32_t{header(a.node)->size} + header(b.node)->size;
      joins = together <= most;
    }
    if (!joins) {
      (*children)[++kept] = b;
      continue;
    }
    lane->retired.push_back(a.node);
    lane->retired.push_back(b.node);
    if (height == 0) {
      work->entries.clear();
      read(a.node, a.count, &work->entries);
      read(b.node, b.count, &work->entries);
      a = make_leaf(a.first, work->entries, lane);
    } else {
      std::vector<Child> below = children_of(a.first, a.node), more = children_of(b.first, b.node), joined;
      below.insert(below.end(), more.begin(), more.end());
      pack(below, height, lane, &joined);
      a = joined[0];
    }
  }
  if (!children->empty()) children->resize(kept + 1);
}

template <class Id>
void TimeOrder<Id>::update(const Child& from, std::span<const Change> changes, Lane* work, BlockLane* lane,
                           std::vector<Child>* out) {
  const uint32_t height = header(from.node)->height;
  if (height == 0) {
    update_leaf(from, changes, work, lane, out);
    return;
  }
  const std::vector<Child> old = children_of(from.first, from.node);
  std::vector<Child> children;
  children.reserve(old.size() + 1);
  size_t next = 0;
  for (size_t i = 0; i < old.size(); ++i) {
    const size_t begin = next;
    while (next < changes.size() && (i + 1 == old.size() || changes[next].entry.before(old[i + 1].first))) ++next;
    if (next == begin) {
      children.push_back(old[i]);
    } else {
      update(old[i], changes.subspan(begin, next - begin), work, lane, &children);
    }
  }
  join_small(&children, height - 1, work, lane);
  pack(children, height, lane, out);
  lane->retired.push_back(from.node);
}

template <class Id>
BlockRef TimeOrder<Id>::grow(std::vector<Child> children, uint32_t height, BlockLane* lane) {
  while (children.size() > 1) {
    std::vector<Child> above;
    pack(children, ++height, lane, &above);
    children = std::move(above);
  }
  if (children.empty()) return 0;
  BlockRef ref = children[0].node;
  while (header(ref)->height > 0 && header(ref)->size == 1) {
    lane->retired.push_back(ref);
    ref = inner(ref).children[0];
  }
  return ref;
}

template <class Id>
BlockRef TimeOrder<Id>::build(std::span<const Entry> entries, BlockLane* lane) {
  assert(std::is_sorted(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.before(b); }));
  std::vector<Child> children;
  if (!entries.empty()) make_leaves(entries[0], entries, lane, &children);
  return grow(std::move(children), 0, lane);
}

template <class Id>
double TimeOrder<Id>::sum_of(Tree from) const {
  double sum = 0;
  if (!weighted_) return sum;
  if (header(from.root)->height > 0) {
    const Inner top = inner(from.root);
    for (uint32_t i = 0; i < top.size; ++i) sum += top.sums[i];
  } else {
    const Leaf only = leaf(from.root);
    for (uint32_t i = 0; i < from.count; ++i) sum += std::max(0.0f, only.weights[i]);
  }
  return sum;
}

template <class Id>
BlockRef TimeOrder<Id>::rebuild(Tree from, std::span<const Change> changes, Lane* work, BlockLane* lane) {
  assert(from.root != 0 && std::is_sorted(changes.begin(), changes.end(),
                                          [](const Change& a, const Change& b) { return a.entry.before(b.entry); }));
  if (changes.empty()) return from.root;
  std::vector<Child> children;
  update({{}, from.root, from.count, sum_of(from), false}, changes, work, lane, &children);
  return grow(std::move(children), header(from.root)->height, lane);
}

template <class Id>
void TimeOrder<Id>::retire(BlockRef ref, BlockLane* lane) const {
  if (header(ref)->height > 0) {
    const Inner from = inner(ref);
    for (uint32_t i = 0; i < from.size; ++i) retire(from.children[i], lane);
  }
  lane->retired.push_back(ref);
}

template <class Id>
BlockRef TimeOrder<Id>::relocate(BlockRef ref, BlockLane* lane, size_t* budget) {
  auto copy = [&] { return lane->copy(heap_, ref, budget); };
  BlockRef made = heap_->in_sparse(ref) ? copy() : 0;
  if (header(ref)->height > 0) {
    const Inner from = inner(ref);
    for (uint32_t i = 0; i < from.size && (budget == nullptr || *budget > 0); ++i) {
      const BlockRef child = from.children[i];
      // The children of the lowest inner nodes are leaves, which need not be read.
      if (from.height == 1 && !heap_->in_sparse(child)) continue;
      const BlockRef moved = relocate(child, lane, budget);
      if (moved == child) continue;
      if (made == 0) made = copy();
      inner(made).children[i] = moved;
    }
  }
  return made == 0 ? ref : made;
}

// -- reading --------------------------------------------------------------------------------------------------------

template <class Id>
uint32_t TimeOrder<Id>::rank(Tree from, double until, size_t* leaves) const {
  assert(from.root != 0);
  BlockRef ref = from.root;
  uint32_t count = from.count, before = 0;
  while (header(ref)->height > 0) {
    const Inner node = inner(ref);
    const auto i =
        static_cast<uint32_t>(std::upper_bound(node.times + 1, node.times + node.size, until) - node.times) - 1;
    for (uint32_t j = 0; j < i; ++j) before += node.counts[j];
    count = node.counts[i];
    ref = node.children[i];
  }
  ++*leaves;
  const double* times = leaf(ref).times;
  return before + static_cast<uint32_t>(std::upper_bound(times, times + count, until) - times);
}

template <class Id>
typename TimeOrder<Id>::Entry TimeOrder<Id>::at(Tree from, uint32_t at, size_t* leaves) const {
  assert(at < from.count);
  BlockRef ref = from.root;
  while (header(ref)->height > 0) {
    const Inner node = inner(ref);
    uint32_t i = 0;
    for (; node.counts[i] <= at; ++i) at -= node.counts[i];
    ref = node.children[i];
  }
  ++*leaves;
  return entry(leaf(ref), at);
}

template <class Id>
void TimeOrder<Id>::list_below(BlockRef ref, uint32_t count, uint32_t begin, uint32_t end, std::vector<Entry>* to,
                               size_t* leaves) const {
  end = std::min(end, count);
  if (begin >= end) return;
  if (header(ref)->height == 0) {
    ++*leaves;
    const Leaf from = leaf(ref);
    for (uint32_t i = begin; i < end; ++i) to->push_back(entry(from, i));
    return;
  }
  const Inner from = inner(ref);
  for (uint32_t i = 0; i < from.size && end > 0; ++i) {
    const uint32_t below = from.counts[i];
    if (begin < below) list_below(from.children[i], below, begin, end, to, leaves);
    begin -= std::min(begin, below);
    end -= std::min(end, below);
  }
}

template <class Id>
void TimeOrder<Id>::list(Tree from, uint32_t begin, uint32_t end, std::vector<Entry>* to, size_t* leaves) const {
  list_below(from.root, from.count, begin, end, to, leaves);
}

// The child in which the running sum exceeds `rest`; `rest` becomes the remainder within that child. Rounding may carry
// it past the end; then it is the last child whose weights are not all 0.
template <class Id>
uint32_t TimeOrder<Id>::child_at(const Inner& from, double* rest) const {
  uint32_t last = 0;
  double left = *rest;
  for (uint32_t i = 0; i < from.size; ++i) {
    const double sum = weighted_ ? from.sums[i] : from.counts[i];
    if (!(sum > 0)) continue;
    last = i;
    *rest = left;
    if (left < sum) break;
    left -= sum;
  }
  return last;
}

template <class Id>
bool TimeOrder<Id>::find(WeightPart<Id> part, double rest, Id* id, size_t* leaves) const {
  BlockRef ref = part.node;
  uint32_t count = part.count;
  while (header(ref)->height > 0) {
    const Inner from = inner(ref);
    const uint32_t i = child_at(from, &rest);
    count = from.counts[i];
    ref = from.children[i];
  }
  ++*leaves;
  const Leaf from = leaf(ref);
  bool found = false;
  for (uint32_t i = 0; i < count; ++i) {
    const Entry one = entry(from, i);
    if (!(one.weight > 0)) continue;
    *id = one.id;
    found = true;
    if (rest < one.weight) break;
    rest -= one.weight;
  }
  return found;
}

template class TimeOrder<uint32_t>;
template class TimeOrder<uint64_t>;

}  // namespace livegnn
