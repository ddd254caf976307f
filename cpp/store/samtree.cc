#include "store/samtree.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <utility>

namespace livegnn {
namespace {

constexpr size_t kKeptEntries = 1 << 12;  // of the longest list whose memory is kept for the next

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

// On the way down the height is counted, not read: a leaf is not touched before whoever wants it has asked for it.
template <class Id>
LeafView<Id> Samtrees<Id>::leaf_of(SamtreeRoot root, uint32_t* at) const {
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

// -- making nodes ---------------------------------------------------------------------------------------------------

template <class Id>
void* Samtrees<Id>::make(size_t bytes, BlockRef* ref, Lane* lane) {
  *ref = lane->allocate(&heap_, bytes);
  return heap_.at(*ref);
}

// A sixteenth more than there is, and what the block's size leaves over.
template <class Id>
uint32_t Samtrees<Id>::room_for(uint32_t size, uint32_t bits) const {
  if (bits == 0) return size;  // a second id will not fit the format
  uint32_t room = std::min(options_.capacity, size + std::max(1u, size / 16));
  const size_t bytes = BlockHeap::rounded(Leaf<Id>::bytes(columns_, room, bits));
  while (room < options_.capacity && Leaf<Id>::bytes(columns_, room + 1, bits) <= bytes) ++room;
  return room;
}

template <class Id>
Leaf<Id>* Samtrees<Id>::make_leaf(uint32_t size, IdFormat<Id> format, BlockRef* ref, Lane* lane) {
  const uint32_t room = room_for(size, format.bits);
  auto* to = static_cast<Leaf<Id>*>(make(Leaf<Id>::bytes(columns_, room, format.bits), ref, lane));
  *to = {static_cast<uint16_t>(room), 0, static_cast<uint8_t>(format.bits), format.base};
  return to;
}

template <class Id>
typename Samtrees<Id>::Child Samtrees<Id>::child_of_leaf(Id key, BlockRef ref, uint32_t size) const {
  return {key, ref, size, own_sum(ref, size)};
}

template <class Id>
typename Samtrees<Id>::Child Samtrees<Id>::encode(Id key, std::span<const uint32_t> order, Lane* lane) {
  const auto& from = lane->entries;
  const auto n = static_cast<uint32_t>(order.size());
  Id ids[SamtreeOptions::kMaxCapacity];
  for (uint32_t i = 0; i < n; ++i) ids[i] = from.ids[order[i]];
  const IdFormat<Id> format = IdCodec<Id>::choose(ids, n, options_.compress);
  BlockRef ref;
  Leaf<Id>* to = make_leaf(n, format, &ref, lane);
  if (columns_.timed) {
    for (uint32_t i = 0; i < n; ++i) to->times()[i] = from.times[order[i]];
  }
  if (columns_.weighted) {
    float* weights = to->weights(columns_);
    for (uint32_t i = 0; i < n; ++i) weights[i] = from.weights[order[i]];
    FSTable::build(weights, n, to->sums(columns_));
  }
  if (columns_.featured) {
    for (uint32_t i = 0; i < n; ++i) to->rows(columns_)[i] = from.rows[order[i]];
  }
  IdCodec<Id>::encode(format, ids, n, to->ids(columns_), to->room);
  return child_of_leaf(key, ref, n);
}

// α-Split (PlatoD2GL, section IV-C): quickselect that is content with any pivot that falls near enough to the middle.
// Returns how many of `order` have smaller ids than all others; these come first.
template <class Id>
uint32_t Samtrees<Id>::part(std::span<uint32_t> order, uint32_t middle, uint32_t slack, const Lane& lane) const {
  const auto& ids = lane.entries.ids;
  uint32_t low = 0, high = static_cast<uint32_t>(order.size());  // the cut lies within
  while (true) {
    const Id a = ids[order[low]], b = ids[order[(low + high) / 2]], c = ids[order[high - 1]];
    const Id pivot = std::max(std::min(a, b), std::min(std::max(a, b), c));
    uint32_t less = low;
    for (uint32_t i = low; i < high; ++i) {
      if (ids[order[i]] < pivot) std::swap(order[i], order[less++]);
    }
    if (less + slack >= middle && less <= middle + slack) return less;
    if (less > middle) {
      high = less;
      continue;
    }
    // The pivot is the smallest of the upper part: step over it, or the range would not shrink.
    for (uint32_t i = less; i < high; ++i) {
      if (ids[order[i]] == pivot) {
        std::swap(order[i], order[less]);
        break;
      }
    }
    low = less + 1;
    if (low + slack >= middle) return low;
  }
}

template <class Id>
void Samtrees<Id>::encode_split(Id key, std::span<uint32_t> order, uint32_t pieces, Lane* lane,
                                std::vector<Child>* out) {
  if (pieces == 1) {
    out->push_back(encode(key, order, lane));
    return;
  }
  const auto n = static_cast<uint32_t>(order.size());
  const uint32_t left = pieces / 2;
  const auto middle = static_cast<uint32_t>(uint64_t{n} * left / pieces);
  // Both sides must find room in their leaves, so the slack ends there.
  const uint32_t room = pieces == 2 ? options_.capacity - std::max(middle, n - middle) : 0;
  const uint32_t cut = part(order, middle, std::min(options_.slack, room), *lane);
  encode_split(key, order.first(cut), left, lane, out);
  const auto upper = order.subspan(cut);
  Id smallest = lane->entries.ids[upper[0]];
  for (uint32_t i : upper) smallest = std::min(smallest, lane->entries.ids[i]);
  encode_split(smallest, upper, pieces - left, lane, out);
}

template <class Id>
void Samtrees<Id>::encode_all(Id key, Lane* lane, std::vector<Child>* out) {
  const auto n = static_cast<uint32_t>(lane->entries.ids.size());
  if (n == 0) return;
  lane->order.resize(n);
  std::iota(lane->order.begin(), lane->order.end(), 0);
  encode_split(key, lane->order, (n + options_.capacity - 1) / options_.capacity, lane, out);
}

template <class Id>
void Samtrees<Id>::decode(const Child& child, Lane* lane) const {
  const Leaf<Id>* from = leaf(child.node);
  auto& to = lane->entries;
  const size_t before = to.ids.size();
  to.ids.resize(before + child.count);
  from->decode(columns_, child.count, to.ids.data() + before);
  auto append = [&](auto& column, const auto* values) { column.insert(column.end(), values, values + child.count); };
  if (columns_.timed) append(to.times, from->times());
  if (columns_.weighted) append(to.weights, from->weights(columns_));
  if (columns_.featured) append(to.rows, from->rows(columns_));
}

// -- changing leaves ------------------------------------------------------------------------------------------------

// The first `size` entries into a leaf that has room for `new_size`.
template <class Id>
Leaf<Id>* Samtrees<Id>::copy_leaf(const Leaf<Id>* from, uint32_t size, uint32_t new_size, BlockRef* ref, Lane* lane) {
  Leaf<Id>* to = make_leaf(new_size, from->format(), ref, lane);
  if (columns_.timed) std::memcpy(to->times(), from->times(), size * sizeof(double));
  if (columns_.weighted) {
    std::memcpy(to->weights(columns_), from->weights(columns_), size * sizeof(float));
    std::memcpy(to->sums(columns_), from->sums(columns_), FSTable::size(size) * sizeof(float));
  }
  if (columns_.featured) std::memcpy(to->rows(columns_), from->rows(columns_), size * sizeof(uint32_t));
  IdCodec<Id>::copy(from->format(), from->ids(columns_), from->room, size, to->ids(columns_), to->room);
  return to;
}

// What most leaves meet in a batch: a new entry that fits, or a new value. Nothing is decoded. False: it is not so.
template <class Id>
bool Samtrees<Id>::update_leaf_by_one(Child* child, const Change& change, Lane* lane) {
  const Leaf<Id>* from = leaf(child->node);
  const uint32_t n = child->count;
  const uint32_t found = from->find(columns_, n, change.id);
  const bool fresh = found == IdCodec<Id>::kAbsent;
  if (fresh && !change.has) return true;
  if (!change.has || (fresh && (n == options_.capacity || !from->format().fits(change.id)))) return false;

  Leaf<Id>* to;
  if (fresh && n < from->room) {
    to = const_cast<Leaf<Id>*>(from);  // beyond what anybody reads
  } else {
    lane->retired.push_back(child->node);
    to = copy_leaf(from, n, fresh ? n + 1 : n, &child->node, lane);
  }
  const uint32_t at = fresh ? n : found;
  if (columns_.timed) to->times()[at] = change.value.time;
  if (columns_.featured) to->rows(columns_)[at] = change.value.row;
  if (columns_.weighted) to->weights(columns_)[at] = change.value.weight;
  if (fresh) {
    IdCodec<Id>::append(to->format(), to->ids(columns_), to->room, at, change.id);
    if (columns_.weighted) FSTable::append(to->weights(columns_), n + 1, to->sums(columns_));
    child->count = n + 1;
  } else if (columns_.weighted) {
    FSTable::update(to->weights(columns_), n, to->sums(columns_), at);
  }
  child->sum = own_sum(child->node, child->count);
  return true;
}

template <class Id>
void Samtrees<Id>::update_leaf(Child child, std::span<const Change> changes, Lane* lane, std::vector<Child>* out) {
  constexpr size_t kFew = 8;
  if (child.node != 0 && changes.size() <= kFew) {
    size_t done = 0;
    while (done < changes.size() && update_leaf_by_one(&child, changes[done], lane)) ++done;
    changes = changes.subspan(done);
    if (changes.empty()) {
      out->push_back(child);
      return;
    }
  }
  auto& entries = lane->entries;
  entries.clear();
  lane->added.clear();
  if (child.node != 0) {
    decode(child, lane);
    lane->retired.push_back(child.node);
  }
  for (const Change& change : changes) {
    const auto found = std::find(entries.ids.begin(), entries.ids.end(), change.id);
    const auto i = static_cast<size_t>(found - entries.ids.begin());
    if (found == entries.ids.end()) {
      if (change.has) lane->added.push_back(&change);
    } else if (change.has) {
      if (columns_.timed) entries.times[i] = change.value.time;
      if (columns_.weighted) entries.weights[i] = change.value.weight;
      if (columns_.featured) entries.rows[i] = change.value.row;
    } else {
      auto remove = [i](auto& column) {
        column[i] = column.back();
        column.pop_back();
      };
      remove(entries.ids);
      if (columns_.timed) remove(entries.times);
      if (columns_.weighted) remove(entries.weights);
      if (columns_.featured) remove(entries.rows);
    }
  }
  for (const Change* change : lane->added) {
    entries.ids.push_back(change->id);
    if (columns_.timed) entries.times.push_back(change->value.time);
    if (columns_.weighted) entries.weights.push_back(change->value.weight);
    if (columns_.featured) entries.rows.push_back(change->value.row);
  }
  encode_all(child.key, lane, out);
}

// -- changing trees -------------------------------------------------------------------------------------------------

// A leaf's as a float: then sums of them in doubles, and the differences of these, are exact where weights are alike.
template <class Id>
double Samtrees<Id>::own_sum(BlockRef ref, uint32_t count) const {
  if (header(ref)->height == 0) return static_cast<float>(leaf(ref)->weight_sum(columns_, count));
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
  // What was little beside the whole may be much beside a piece.
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

// Children that have become too small join the smaller of their nearest siblings (appendix A); what is then too large
// is parted evenly. `height` is theirs.
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
      lane->entries.clear();
      decode(a, lane);
      decode(b, lane);
      encode_all(a.key, lane, &joined);
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
      update_leaf(from, changes, lane, out);
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
  // A root with a single child is no root.
  BlockRef ref = children[0].node;
  bool known = false;
  while (header(ref)->height > 0 && header(ref)->size == 1) {
    lane->retired.push_back(ref);
    ref = inner(ref)->children(columns_)[0];
    known = true;
  }
  // The order by time is written into a root, so that must not be a node that readers may know.
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

// What the changes mean for the order by time.
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
  if (changes.empty()) return from;
  std::vector<Child> children;
  if (from.node == 0) {
    update_leaf({}, changes, lane, &children);
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
  std::vector<LeafWork> work;
  if (from.node != 0 && !changes.empty()) list_work({Id{0}, from.node, from.degree, 0}, changes, &work);
  return work;
}

template <class Id>
void Samtrees<Id>::run(LeafWork* work, Lane* lane) {
  update_leaf(work->leaf, work->changes, lane, &work->made);
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

// -- compaction -----------------------------------------------------------------------------------------------------

template <class Id>
void Samtrees<Id>::note_batch() noexcept {
  churn_ = std::max(freed_, churn_ - churn_ / 8);
  freed_ = 0;
}

template <class Id>
bool Samtrees<Id>::wants_compaction() const {
  constexpr size_t kWorthwhile = size_t{1} << 20;
  return heap_.free_bytes() > stuck_ + churn_ + heap_.live_bytes() / 32 + kWorthwhile;
}

template <class Id>
bool Samtrees<Id>::begin_compaction() {
  if (heap_.mark_sparse()) return true;
  stuck_ = heap_.free_bytes();
  return false;
}

template <class Id>
bool Samtrees<Id>::end_compaction(size_t* budget) noexcept {
  constexpr size_t kSlabCost = 256;
  size_t slabs = budget == nullptr ? SIZE_MAX : (*budget + kSlabCost - 1) / kSlabCost;
  if (!heap_.reclaim(&slabs)) return false;
  stuck_ = heap_.free_bytes();
  return true;
}

template <class Id>
BlockRef Samtrees<Id>::relocate_below(BlockRef ref, Lane* lane, size_t* budget) {
  if (header(ref)->height == 0) return heap_.in_sparse(ref) ? lane->copy(&heap_, ref, budget) : ref;
  const Inner<Id>* from = inner(ref);
  BlockRef made = heap_.in_sparse(ref) ? lane->copy(&heap_, ref, budget) : 0;
  for (uint32_t i = 0; i < from->size && (budget == nullptr || *budget > 0); ++i) {
    const BlockRef child = from->children(columns_)[i];
    // The children of the lowest inner nodes are leaves, which need not be looked into.
    if (from->height == 1 && !heap_.in_sparse(child)) continue;
    const BlockRef moved = relocate_below(child, lane, budget);
    if (moved == child) continue;
    if (made == 0) made = lane->copy(&heap_, ref, budget);
    static_cast<Inner<Id>*>(heap_.at(made))->children(columns_)[i] = moved;
  }
  if (columns_.timed && from->order(columns_) != 0 && (budget == nullptr || *budget > 0)) {
    const BlockRef moved = by_time_.relocate(from->order(columns_), lane, budget);
    if (moved != from->order(columns_)) {
      if (made == 0) made = lane->copy(&heap_, ref, budget);
      *static_cast<Inner<Id>*>(heap_.at(made))->order(columns_) = moved;
    }
  }
  return made == 0 ? ref : made;
}

template <class Id>
SamtreeRoot Samtrees<Id>::relocate(SamtreeRoot root, Lane* lane, size_t* budget) {
  if (root.node == 0) return root;
  // A root with so few neighbours is a leaf.
  const bool few = root.degree < options_.min_leaf();
  if (few && !heap_.in_sparse(root.node)) return root;
  return {relocate_below(root.node, lane, budget), root.degree};
}

template struct Inner<uint32_t>;
template struct Inner<uint64_t>;
template class Samtrees<uint32_t>;
template class Samtrees<uint64_t>;

}  // namespace livegnn
