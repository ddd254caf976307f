#include "store/samtree/leaf_writer.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <numeric>
#include <utility>

namespace livegnn {

template <class Id>
LeafWriter<Id>::LeafWriter(EdgeColumns columns, SamtreeOptions options, BlockHeap* heap)
    : columns_(columns), options_(options), heap_(heap) {
  assert(options.capacity >= 4 && options.capacity <= SamtreeOptions::kMaxCapacity);
  assert(options.slack <= options.capacity / 4);
}

// Room for a sixteenth more entries, plus what fits into the rounded size of the block.
template <class Id>
uint32_t LeafWriter<Id>::room_for(uint32_t size, uint32_t bits) const {
  if (bits == 0) return size;  // a second id will not fit the format
  uint32_t room = std::min(options_.capacity, size + std::max(1u, size / 16));
  const size_t bytes = BlockHeap::rounded(Leaf<Id>::bytes(columns_, room, bits));
  while (room < options_.capacity && Leaf<Id>::bytes(columns_, room + 1, bits) <= bytes) ++room;
  return room;
}

template <class Id>
Leaf<Id>* LeafWriter<Id>::make_leaf(uint32_t size, IdFormat<Id> format, BlockRef* ref, Lane* lane) {
  const uint32_t room = room_for(size, format.bits);
  *ref = lane->allocate(heap_, Leaf<Id>::bytes(columns_, room, format.bits));
  auto* to = static_cast<Leaf<Id>*>(heap_->at(*ref));
  *to = {static_cast<uint16_t>(room), 0, static_cast<uint8_t>(format.bits), format.base};
  return to;
}

template <class Id>
typename LeafWriter<Id>::Child LeafWriter<Id>::encode(Id key, std::span<const uint32_t> order, Lane* lane) {
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
  return {key, ref, n, sum(*to, n)};
}

// α-Split (PlatoD2GL, section IV-C): quickselect that accepts any pivot near enough to the middle. Returns how many ids
// of `order` are in the lower part; these come first.
template <class Id>
uint32_t LeafWriter<Id>::part(std::span<uint32_t> order, uint32_t middle, uint32_t slack, const Lane& lane) const {
  const auto& ids = lane.entries.ids;
  uint32_t low = 0, high = static_cast<uint32_t>(order.size());  // the cut is within this range
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
void LeafWriter<Id>::encode_split(Id key, std::span<uint32_t> order, uint32_t pieces, Lane* lane,
                                  std::vector<Child>* out) {
  if (pieces == 1) {
    out->push_back(encode(key, order, lane));
    return;
  }
  const auto n = static_cast<uint32_t>(order.size());
  const uint32_t left = pieces / 2;
  const auto middle = static_cast<uint32_t>(uint64_t{n} * left / pieces);
  // Both parts must fit into their leaves, which limits the slack.
  const uint32_t room = pieces == 2 ? options_.capacity - std::max(middle, n - middle) : 0;
  const uint32_t cut = part(order, middle, std::min(options_.slack, room), *lane);
  encode_split(key, order.first(cut), left, lane, out);
  const auto upper = order.subspan(cut);
  Id smallest = lane->entries.ids[upper[0]];
  for (uint32_t i : upper) smallest = std::min(smallest, lane->entries.ids[i]);
  encode_split(smallest, upper, pieces - left, lane, out);
}

template <class Id>
void LeafWriter<Id>::write(Id key, Lane* lane, std::vector<Child>* out) {
  const auto n = static_cast<uint32_t>(lane->entries.ids.size());
  if (n == 0) return;
  lane->order.resize(n);
  std::iota(lane->order.begin(), lane->order.end(), 0);
  encode_split(key, lane->order, (n + options_.capacity - 1) / options_.capacity, lane, out);
}

template <class Id>
void LeafWriter<Id>::join(const Child& a, const Child& b, Lane* lane, std::vector<Child>* out) {
  lane->entries.clear();
  decode(a, lane);
  decode(b, lane);
  write(a.key, lane, out);
}

template <class Id>
void LeafWriter<Id>::decode(const Child& child, Lane* lane) const {
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

// Copies the first `size` entries into a leaf that has room for `new_size`.
template <class Id>
Leaf<Id>* LeafWriter<Id>::copy_leaf(const Leaf<Id>* from, uint32_t size, uint32_t new_size, BlockRef* ref, Lane* lane) {
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

// The most frequent change of a leaf in a batch: a new entry that fits, or a new value. Decodes nothing. False if the
// change is of another kind.
template <class Id>
bool LeafWriter<Id>::update_by_one(Child* child, const Change& change, Lane* lane) {
  const Leaf<Id>* from = leaf(child->node);
  const uint32_t n = child->count;
  const uint32_t found = from->find(columns_, n, change.id);
  const bool fresh = found == IdCodec<Id>::kAbsent;
  if (fresh && !change.has) return true;
  if (!change.has || (fresh && (n == options_.capacity || !from->format().fits(change.id)))) return false;

  Leaf<Id>* to;
  if (fresh && n < from->room) {
    to = const_cast<Leaf<Id>*>(from);  // after the entries that readers know of
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
  child->sum = sum(*to, child->count);
  return true;
}

template <class Id>
void LeafWriter<Id>::update(Child child, std::span<const Change> changes, Lane* lane, std::vector<Child>* out) {
  constexpr size_t kFew = 8;
  if (child.node != 0 && changes.size() <= kFew) {
    size_t done = 0;
    while (done < changes.size() && update_by_one(&child, changes[done], lane)) ++done;
    changes = changes.subspan(done);
    if (changes.empty()) {
      out->push_back(child);
      return;
    }
  }
  auto& entries = lane->entries;
  entries.clear();
  if (child.node != 0) {
    decode(child, lane);
    lane->retired.push_back(child.node);
  }
  change_entries(changes, lane);
  write(child.key, lane, out);
}

template <class Id>
void LeafWriter<Id>::change_entries(std::span<const Change> changes, Lane* lane) const {
  auto& entries = lane->entries;
  lane->added.clear();
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
}

template class LeafWriter<uint32_t>;
template class LeafWriter<uint64_t>;

}  // namespace livegnn
