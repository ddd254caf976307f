#include "store/samtree/samtree.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstring>
#include <utility>

namespace livegnn {
namespace {

constexpr size_t kKeptEntries = 1 << 12;  // memory for lists up to this length is kept for the next one

template <class Id>
[[maybe_unused]] bool ascend(std::span<const typename Samtrees<Id>::Change> changes) {
  return std::adjacent_find(changes.begin(), changes.end(),
                            [](const auto& a, const auto& b) { return a.id >= b.id; }) == changes.end();
}

}  // namespace

template <class Id>
uint32_t Inner<Id>::child_of(EdgeColumns columns, Id id) const {
  const Id* from = keys(columns);
  return static_cast<uint32_t>(std::upper_bound(from + 1, from + size, id) - from) - 1;
}

template <class Id>
uint32_t Inner<Id>::child_at_weight(double* at) const {
  const auto i = static_cast<uint32_t>(std::upper_bound(sums(), sums() + size - 1, *at) - sums());
  if (i > 0) *at -= sums()[i - 1];
  return i;
}

// -- reading --------------------------------------------------------------------------------------------------------

template <class Id>
std::optional<EdgeValue> Samtrees<Id>::find(size_t node, Id id) const {
  const LeafView<Id> view = leaf_with(node, id);
  if (view.leaf == nullptr) return std::nullopt;
  const uint32_t i = view.leaf->find(columns_, view.size, id);
  if (i == IdCodec<Id>::kAbsent) return std::nullopt;
  return view.value(columns_, i);
}

template <class Id>
std::optional<Id> Samtrees<Id>::last_in_range(size_t node, Id low, Id high) const {
  const SamtreeRoot from = root(node);
  return from.node == 0 ? std::nullopt : last_below(from.node, from.degree, low, high);
}

template <class Id>
std::optional<Id> Samtrees<Id>::last_below(BlockRef ref, uint32_t count, Id low, Id high) const {
  std::optional<Id> last;
  if (header(ref)->height == 0) {
    Id ids[SamtreeOptions::kMaxCapacity];
    leaf(ref)->decode(columns_, count, ids);
    for (uint32_t i = 0; i < count; ++i) {
      if (ids[i] >= low && ids[i] <= high && (!last || ids[i] > *last)) last = ids[i];
    }
    return last;
  }
  const Inner<Id>* from = inner(ref);
  const uint32_t first = from->child_of(columns_, low);
  for (uint32_t i = from->child_of(columns_, high) + 1; i > first && !last; --i) {
    last = last_below(from->children(columns_)[i - 1], from->count(columns_, i - 1), low, high);
  }
  return last;
}

template <class Id>
double Samtrees<Id>::weight_sum(size_t node) const {
  const SamtreeRoot from = root(node);
  if (from.node == 0) return 0;
  if (!columns_.weighted) return from.degree;
  if (header(from.node)->height == 0) return leaf(from.node)->weight_sum(columns_, from.degree);
  const Inner<Id>* top = inner(from.node);
  return top->sums()[top->size - 1];
}

// The height is counted on the way down, not read, so that a leaf is not touched before the caller has prefetched it.
template <class Id>
LeafView<Id> Samtrees<Id>::leaf_of(SamtreeRoot root, uint32_t* at) const {
  assert(*at < root.degree);
  BlockRef ref = root.node;
  uint32_t size = root.degree;
  for (uint32_t height = header(ref)->height; height > 0; --height) {
    const Inner<Id>* from = inner(ref);
    const uint32_t* counts = from->counts(columns_);
    const auto i = static_cast<uint32_t>(std::upper_bound(counts, counts + from->size - 1, *at) - counts);
    if (i > 0) *at -= counts[i - 1];
    size = from->count(columns_, i);
    ref = from->children(columns_)[i];
  }
  return {leaf(ref), size};
}

template <class Id>
LeafView<Id> Samtrees<Id>::leaf_at_weight(SamtreeRoot root, double* at) const {
  assert(root.node != 0 && *at >= 0);
  BlockRef ref = root.node;
  uint32_t size = root.degree;
  for (uint32_t height = header(ref)->height; height > 0; --height) {
    const Inner<Id>* from = inner(ref);
    const uint32_t i = from->child_at_weight(at);
    size = from->count(columns_, i);
    ref = from->children(columns_)[i];
  }
  return {leaf(ref), size};
}

template <class Id>
bool Samtrees<Id>::find(WeightPart<Id> part, double rest, Id* id, size_t* leaves) const {
  const LeafView<Id> view = leaf_at_weight({part.node, part.count}, &rest);
  ++*leaves;
  const uint32_t i = view.at_weight(columns_, rest);
  if (i == view.size) return false;
  *id = view.id(columns_, i);
  return true;
}

template <class Id>
LeafView<Id> Samtrees<Id>::leaf_with(SamtreeRoot root, Id id) const {
  BlockRef ref = root.node;
  uint32_t size = root.degree;
  if (ref == 0) return {};
  for (uint32_t height = header(ref)->height; height > 0; --height) {
    const uint32_t i = inner(ref)->child_of(columns_, id);
    size = inner(ref)->count(columns_, i);
    ref = inner(ref)->children(columns_)[i];
  }
  return {leaf(ref), size};
}

// -- changing trees -------------------------------------------------------------------------------------------------

template <class Id>
void* Samtrees<Id>::make(size_t bytes, BlockRef* ref, Lane* lane) {
  *ref = lane->allocate(&heap_, bytes);
  return heap_.at(*ref);
}

template <class Id>
double Samtrees<Id>::own_sum(BlockRef ref, uint32_t count) const {
  if (header(ref)->height == 0) return leaves_.sum(*leaf(ref), count);
  const Inner<Id>* from = inner(ref);
  return columns_.weighted ? from->sums()[from->size - 1] : from->counts(columns_)[from->size - 1];
}

template <class Id>
std::vector<typename Samtrees<Id>::Child> Samtrees<Id>::children_of(BlockRef ref) const {
  const Inner<Id>* from = inner(ref);
  std::vector<Child> children(from->size);
  for (uint32_t i = 0; i < from->size; ++i) {
    const uint32_t count = from->count(columns_, i);
    const double sum = columns_.weighted ? from->sums()[i] - (i > 0 ? from->sums()[i - 1] : 0) : count;
    children[i] = {from->keys(columns_)[i], from->children(columns_)[i], count, sum};
  }
  return children;
}

template <class Id>
void Samtrees<Id>::pack(Id key, const std::vector<Child>& children, uint32_t height, uint32_t error, Lane* lane,
                        std::vector<Child>* out) {
  const auto n = static_cast<uint32_t>(children.size());
  const uint32_t pieces = (n + options_.capacity - 1) / options_.capacity;
  // An error that is small relative to the whole may be large relative to a piece.
  const bool anew = pieces > 1 && columns_.weighted;
  for (uint32_t p = 0; p < pieces; ++p) {
    const auto begin = static_cast<uint32_t>(uint64_t{n} * p / pieces);
    const auto end = static_cast<uint32_t>(uint64_t{n} * (p + 1) / pieces);
    Child made{p == 0 ? key : children[begin].key, 0, 0, 0};
    auto* to = static_cast<Inner<Id>*>(make(Inner<Id>::bytes(columns_, end - begin), &made.node, lane));
    to->size = static_cast<uint16_t>(end - begin);
    to->height = static_cast<uint8_t>(height);
    to->error = anew ? 0 : error;
    if (columns_.timed) *to->order(columns_) = 0;
    for (uint32_t i = begin; i < end; ++i) {
      made.count += children[i].count;
      made.sum += anew ? own_sum(children[i].node, children[i].count) : children[i].sum;
      to->keys(columns_)[i - begin] = i == begin ? made.key : children[i].key;
      to->children(columns_)[i - begin] = children[i].node;
      to->counts(columns_)[i - begin] = made.count;
      if (columns_.weighted) to->sums()[i - begin] = made.sum;
    }
    out->push_back(made);
  }
}

// Children that have become too small join the smaller of their adjacent siblings (appendix A); a result that is too
// large is divided evenly. `height` is that of the children.
template <class Id>
void Samtrees<Id>::fix(std::vector<Child>* children, uint32_t height, Lane* lane) {
  const uint32_t least = height == 0 ? options_.min_leaf() : options_.min_inner();
  for (size_t i = 0; i < children->size() && children->size() > 1;) {
    const Child& child = (*children)[i];
    if ((height == 0 ? child.count : header(child.node)->size) >= least) {
      ++i;
      continue;
    }
    const bool left = i > 0 && (i + 1 == children->size() || (*children)[i - 1].count <= (*children)[i + 1].count);
    const size_t first = left ? i - 1 : i;
    const Child a = (*children)[first], b = (*children)[first + 1];
    std::vector<Child> joined;
    if (height == 0) {
      leaves_.join(a, b, lane, &joined);
    } else {
      std::vector<Child> below = children_of(a.node), more = children_of(b.node);
      more[0].key = b.key;
      below.insert(below.end(), more.begin(), more.end());
      fix(&below, height - 1, lane);
      pack(a.key, below, height, std::max(inner(a.node)->error, inner(b.node)->error) + 1, lane, &joined);
    }
    lane->retired.push_back(a.node);
    lane->retired.push_back(b.node);
    const auto at = children->begin() + static_cast<std::ptrdiff_t>(first);
    children->insert(children->erase(at, at + 2), joined.begin(), joined.end());
    i = first;
  }
}

template <class Id>
void Samtrees<Id>::update(const Child& from, std::span<const Change> changes, const LeafWork** work, Lane* lane,
                          std::vector<Child>* out) {
  const BlockRef ref = from.node;
  if (header(ref)->height == 0) {
    if (work == nullptr) {
      leaves_.update(from, changes, lane, out);
    } else {
      out->insert(out->end(), (*work)->made.begin(), (*work)->made.end());
      ++*work;
    }
    return;
  }
  const uint32_t height = header(ref)->height;
  std::vector<Child> old = children_of(ref);
  old[0].key = from.key;
  std::vector<Child> children;
  children.reserve(old.size() + 1);
  size_t next = 0;
  for (size_t i = 0; i < old.size(); ++i) {
    const size_t begin = next;
    while (next < changes.size() && (i + 1 == old.size() || changes[next].id < old[i + 1].key)) ++next;
    if (next == begin) {
      children.push_back(old[i]);
    } else {
      update(old[i], changes.subspan(begin, next - begin), work, lane, &children);
    }
  }
  fix(&children, height - 1, lane);
  double error = inner(ref)->error + 1.0;
  if (columns_.weighted) {
    double sum = 0;
    for (const Child& child : children) sum += child.sum;
    const double before = own_sum(ref, from.count);
    if (sum < before) error *= before / sum;
    if (!(error < kMaxError)) {
      for (Child& child : children) child.sum = own_sum(child.node, child.count);
      error = 0;
    }
  }
  pack(from.key, children, height, static_cast<uint32_t>(std::ceil(error)), lane, out);
  lane->retired.push_back(ref);
}

template <class Id>
SamtreeRoot Samtrees<Id>::grow(std::vector<Child> children, uint32_t height, Lane* lane) {
  while (children.size() > 1) {
    std::vector<Child> above;
    pack(children[0].key, children, ++height, 0, lane, &above);
    children = std::move(above);
  }
  if (children.empty()) return {};
  // Replace a root with a single child by that child.
  BlockRef ref = children[0].node;
  bool known = false;
  while (header(ref)->height > 0 && header(ref)->size == 1) {
    lane->retired.push_back(ref);
    ref = inner(ref)->children(columns_)[0];
    known = true;
  }
  // The order by time is written into the root, so the root must not be a node that readers may know.
  if (known && columns_.timed && header(ref)->height > 0) {
    lane->retired.push_back(ref);
    BlockRef copied;
    const size_t bytes = Inner<Id>::bytes(columns_, header(ref)->size);
    void* to = make(bytes, &copied, lane);
    std::memcpy(to, inner(ref), bytes);
    ref = copied;
  }
  return {ref, children[0].count};
}

// The changes to the order by time.
template <class Id>
void Samtrees<Id>::list_order_changes(SamtreeRoot from, std::span<const Change> changes, Lane* lane) const {
  auto& list = lane->order_by_time.changes;
  list.clear();
  for (const Change& change : changes) {
    const LeafView<Id> view = leaf_with(from, change.id);
    const uint32_t i = view.leaf->find(columns_, view.size, change.id);
    if (i != IdCodec<Id>::kAbsent) {
      const EdgeValue old = view.value(columns_, i);
      const bool stays = change.has && old.time == change.value.time;
      if (stays && (!columns_.weighted || old.weight == change.value.weight)) continue;
      if (!stays) list.push_back({{old.time, change.id, old.weight}, false});
    }
    if (change.has) list.push_back({{change.value.time, change.id, change.value.weight}, true});
  }
  std::sort(list.begin(), list.end(), [](const auto& a, const auto& b) { return a.entry.before(b.entry); });
}

template <class Id>
void Samtrees<Id>::list_by_time(SamtreeRoot root, Lane* lane) const {
  auto& entries = lane->order_by_time.entries;
  entries.clear();
  entries.reserve(root.degree);
  Id ids[SamtreeOptions::kMaxCapacity];
  auto append = [&](const BasicNeighborSpan<Id>& span) {
    for (size_t i = 0; i < span.size; ++i)
      entries.push_back({span.times[i], span.ids[i], columns_.weighted ? span.weights[i] : 1.0f});
  };
  scan_below(root.node, root.degree, ids, append);
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) { return a.before(b); });
}

template <class Id>
BlockRef Samtrees<Id>::build_order(SamtreeRoot root, Lane* lane) {
  list_by_time(root, lane);
  auto& entries = lane->order_by_time.entries;
  const BlockRef made = by_time_.build(entries, lane);
  if (entries.size() > kKeptEntries) entries = {};
  return made;
}

// The order by time of a new root, from that of the old one.
template <class Id>
SamtreeRoot Samtrees<Id>::with_order(SamtreeRoot from, SamtreeRoot to, std::span<const Change> changes, Lane* lane) {
  if (!columns_.timed) return to;
  const auto old = order_of(from);
  if (to.node == 0 || header(to.node)->height == 0) {
    if (old.root != 0) by_time_.retire(old.root, lane);
    return to;
  }
  BlockRef order;
  if (old.root == 0) {
    order = build_order(to, lane);
  } else {
    list_order_changes(from, changes, lane);
    order = by_time_.rebuild(old, lane->order_by_time.changes, &lane->order_by_time, lane);
  }
  *static_cast<Inner<Id>*>(heap_.at(to.node))->order(columns_) = order;
  return to;
}

template <class Id>
SamtreeRoot Samtrees<Id>::rebuild(SamtreeRoot from, std::span<const Change> changes, Lane* lane) {
  assert(ascend<Id>(changes));
  if (changes.empty()) return from;
  std::vector<Child> children;
  if (from.node == 0) {
    leaves_.update({}, changes, lane, &children);
    return with_order(from, grow(std::move(children), 0, lane), changes, lane);
  }
  const uint32_t height = header(from.node)->height;
  update({Id{0}, from.node, from.degree, 0}, changes, nullptr, lane, &children);
  return with_order(from, grow(std::move(children), height, lane), changes, lane);
}

template <class Id>
void Samtrees<Id>::list_work(const Child& from, std::span<const Change> changes, std::vector<LeafWork>* work) const {
  if (header(from.node)->height == 0) {
    work->push_back({{from.key, from.node, from.count, own_sum(from.node, from.count)}, changes, {}});
    return;
  }
  std::vector<Child> children = children_of(from.node);
  children[0].key = from.key;
  size_t next = 0;
  for (size_t i = 0; i < children.size(); ++i) {
    const size_t begin = next;
    while (next < changes.size() && (i + 1 == children.size() || changes[next].id < children[i + 1].key)) ++next;
    if (next > begin) list_work(children[i], changes.subspan(begin, next - begin), work);
  }
}

template <class Id>
std::vector<typename Samtrees<Id>::LeafWork> Samtrees<Id>::split(SamtreeRoot from,
                                                                 std::span<const Change> changes) const {
  assert(ascend<Id>(changes));
  std::vector<LeafWork> work;
  if (from.node != 0 && !changes.empty()) list_work({Id{0}, from.node, from.degree, 0}, changes, &work);
  return work;
}

template <class Id>
void Samtrees<Id>::run(LeafWork* work, Lane* lane) {
  leaves_.update(work->leaf, work->changes, lane, &work->made);
}

template <class Id>
SamtreeRoot Samtrees<Id>::join(SamtreeRoot from, std::span<const Change> changes, std::span<const LeafWork> work,
                               Lane* lane) {
  std::vector<Child> children;
  const LeafWork* next = work.data();
  const uint32_t height = header(from.node)->height;
  update({Id{0}, from.node, from.degree, 0}, changes, &next, lane, &children);
  return with_order(from, grow(std::move(children), height, lane), changes, lane);
}

template <class Id>
void Samtrees<Id>::free_retired(Lane* lane) noexcept {
  const size_t live = heap_.live_bytes();
  constexpr size_t kAhead = 8;
  const std::vector<BlockRef>& retired = lane->retired;
  for (size_t i = 0; i < retired.size(); ++i) {
    if (i + kAhead < retired.size()) __builtin_prefetch(heap_.at(retired[i + kAhead]), 1);
    heap_.free(retired[i]);
  }
  freed_ += live - heap_.live_bytes();
  lane->retired.clear();
  lane->made.clear();
}

template <class Id>
void Samtrees<Id>::free_made(Lane* lane) noexcept {
  for (BlockRef ref : lane->made) {
    if (ref != 0) heap_.free(ref);
  }
  lane->retired.clear();
  lane->made.clear();
}

template <class Id>
bool Samtrees<Id>::apply(size_t node, const Change& change) {
  const SamtreeRoot before = roots_[node];
  try {
    roots_[node] = rebuild(before, {&change, 1}, &lane_);
  } catch (...) {
    free_made(&lane_);
    throw;
  }
  free_retired(&lane_);
  return roots_[node].degree != before.degree;
}

template <class Id>
bool Samtrees<Id>::upsert(size_t node, Id id, EdgeValue value) {
  return apply(node, {id, true, value});
}

template <class Id>
bool Samtrees<Id>::remove(size_t node, Id id) {
  return apply(node, {id, false, {}});
}

template struct Inner<uint32_t>;
template struct Inner<uint64_t>;
template class Samtrees<uint32_t>;
template class Samtrees<uint64_t>;

}  // namespace livegnn
