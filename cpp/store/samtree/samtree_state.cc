// Saves and restores the exact shape of samtrees, and checks their invariants.
#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>
#include <utility>

#include "hashing/mix_hash.h"
#include "store/samtree/samtree.h"

namespace livegnn {
namespace {

// Names the column as a state of a graph does.
[[noreturn]] void refuse(const char* column, const std::string& why) {
  throw std::runtime_error(std::string(column) + ": " + why);
}

}  // namespace

template <class Id>
void Samtrees<Id>::save_below(BlockRef ref, Id key, uint32_t count, Saved* to) const {
  const uint32_t height = header(ref)->height, size = height > 0 ? header(ref)->size : count;
  to->shape.insert(to->shape.end(), {height > 0 ? 1u : 0u, size, height});
  if (height == 0) {
    const Leaf<Id>* from = leaf(ref);
    to->ids.resize(to->ids.size() + size);
    from->decode(columns_, size, to->ids.data() + to->ids.size() - size);
    if (columns_.weighted)
      to->weights.insert(to->weights.end(), from->weights(columns_), from->weights(columns_) + size);
    if (columns_.timed) to->times.insert(to->times.end(), from->times(), from->times() + size);
    if (columns_.featured) to->rows.insert(to->rows.end(), from->rows(columns_), from->rows(columns_) + size);
    return;
  }
  const Inner<Id>* from = inner(ref);
  // Key 0 of the node itself may be out of date, because it is never read.
  auto key_of = [&](uint32_t i) { return i == 0 ? key : from->keys(columns_)[i]; };
  for (uint32_t i = 0; i < size; ++i) to->keys.push_back(key_of(i));
  if (columns_.weighted) {
    to->sums.push_back(from->error);
    to->sums.insert(to->sums.end(), from->sums(), from->sums() + size);
  }
  for (uint32_t i = 0; i < size; ++i) save_below(from->children(columns_)[i], key_of(i), from->count(columns_, i), to);
}

template <class Id>
typename Samtrees<Id>::Saved Samtrees<Id>::save() const {
  Saved to;
  for (size_t node = 0; node < roots_.size(); ++node) save_list(node, &to);
  return to;
}

template <class Id>
void Samtrees<Id>::save_list(size_t node, Saved* to) const {
  const SamtreeRoot& root = roots_[node];
  if (root.node == 0) {
    to->shape.insert(to->shape.end(), {2, 0, 0});
    return;
  }
  save_below(root.node, Id{0}, root.degree, to);
  if (columns_.weighted) by_time_.save(order_of(root), &to->orders);
}

template <class Id>
struct Samtrees<Id>::Reader {
  std::span<const uint32_t> shape;
  std::span<const Id> keys, ids;
  std::span<const float> weights;
  std::span<const double> times;
  std::span<const uint32_t> rows;
  std::span<const double> sums;
  std::span<const uint64_t> orders;
  bool has_sums, has_orders;

  template <class T>
  static std::span<const T> take(const char* column, std::span<const T>* from, size_t count) {
    if (from->size() < count) {
      refuse(column, "ends before its shape does, expected " + std::to_string(count) + " more, got " +
                         std::to_string(from->size()));
    }
    auto head = from->first(count);
    *from = from->subspan(count);
    return head;
  }
  void check_done() const {
    const std::pair<const char*, size_t> left[] = {
        {"shape", shape.size()}, {"keys", keys.size()}, {"ids", ids.size()},   {"weight", weights.size()},
        {"time", times.size()},  {"row", rows.size()},  {"sums", sums.size()}, {"orders", orders.size()}};
    for (const auto& [column, size] : left) {
      if (size > 0) refuse(column, "expected nothing after the last list, got " + std::to_string(size) + " left over");
    }
  }

  // Whether at most kMaxCapacity ids are distinct. A slot with another leaf number is free.
  bool distinct(std::span<const Id> some) {
    ++leaf;
    for (Id id : some) {
      size_t at = MixHash{}(id) % slots.size();
      for (; slots[at].leaf == leaf; at = (at + 1) % slots.size()) {
        if (slots[at].id == id) return false;
      }
      slots[at] = {id, leaf};
    }
    return true;
  }
  struct Slot {
    Id id;
    uint32_t leaf;
  };
  std::vector<Slot> slots = std::vector<Slot>(2 * SamtreeOptions::kMaxCapacity);
  uint32_t leaf = 0;
};

template <class Id>
typename Samtrees<Id>::Child Samtrees<Id>::load_leaf(Reader* from, Id key, const Id* high, uint32_t size, Lane* lane) {
  const auto ids = Reader::take("ids", &from->ids, size);
  const auto weights = Reader::take("weight", &from->weights, columns_.weighted ? size : 0);
  if (!from->distinct(ids)) refuse("ids", "expected each once in a list, got one twice");
  for (Id id : ids) {
    if (id < key || (high != nullptr && id >= *high)) {
      refuse("ids", "expected from " + std::to_string(key) +
                        (high != nullptr ? " to below " + std::to_string(*high) : std::string(" on")) + ", got " +
                        std::to_string(id) + " outside its leaf's keys");
    }
  }
  const auto times = Reader::take("time", &from->times, columns_.timed ? size : 0);
  for (double time : times) {
    if (!std::isfinite(time)) refuse("time", "expected finite times, got " + std::to_string(time));
  }
  for (float weight : weights) {
    if (!(std::abs(weight) <= kMaxWeight))
      refuse("weight", "expected at most 2^96, got " + std::to_string(weight) + ", which is not finite, or above 2^96");
  }
  auto& entries = lane->entries;
  auto assign = [](auto& to, auto column) { to.assign(column.begin(), column.end()); };
  assign(entries.ids, ids);
  assign(entries.weights, weights);
  assign(entries.times, times);
  assign(entries.rows, Reader::take("row", &from->rows, columns_.featured ? size : 0));
  std::vector<Child> made;
  leaves_.write(key, lane, &made);
  return made[0];
}

// Loads the sums of a new inner node, which holds those computed from its children.
template <class Id>
void Samtrees<Id>::load_sums(std::span<const double> saved, BlockRef ref) {
  auto* to = static_cast<Inner<Id>*>(heap_.at(ref));
  const double error = saved[0];
  const auto sums = saved.subspan(1);
  bool fits = error >= 0 && error <= kMaxError && error == std::floor(error) && std::isfinite(sums.back());
  for (uint32_t i = 0; i < to->size && fits; ++i) {
    fits = std::abs(sums[i] - to->sums()[i]) <= std::ldexp(sums.back(), -30) && sums[i] >= (i > 0 ? sums[i - 1] : 0);
  }
  if (!fits) refuse("sums", "expected the sums of the weights, got sums that are not");
  to->error = static_cast<uint32_t>(error);
  std::copy(sums.begin(), sums.end(), to->sums());
}

template <class Id>
void Samtrees<Id>::load_order(Reader* from, SamtreeRoot root, Lane* lane) {
  if (!columns_.timed || header(root.node)->height == 0) return;
  BlockRef* order = static_cast<Inner<Id>*>(heap_.at(root.node))->order(columns_);
  if (!columns_.weighted || !from->has_orders) {
    *order = build_order(root, lane);
    return;
  }
  list_by_time(root, lane);
  try {
    *order = by_time_.load(lane->order_by_time.entries, &from->orders, lane);
  } catch (const std::runtime_error& error) {
    refuse("orders", "expected an order of " + std::to_string(root.degree) + " edges, got " + error.what());
  }
}

// A negative `height` means a root, which may have any height.
template <class Id>
typename Samtrees<Id>::Child Samtrees<Id>::load_below(Reader* from, Id key, const Id* high, int height, Lane* lane) {
  const auto head = Reader::take("shape", &from->shape, 3);
  const uint32_t size = head[1];
  if (head[0] > 1 || size == 0 || size > options_.capacity || head[2] > kMaxHeight ||
      (head[0] == 0) != (head[2] == 0)) {
    refuse("shape", "expected a leaf (0) or an inner node (1) of 1 to " + std::to_string(options_.capacity) +
                        " at a height of at most " + std::to_string(kMaxHeight) + ", got " + std::to_string(head[0]) +
                        " of " + std::to_string(size) + " at " + std::to_string(head[2]));
  }
  if (height >= 0 && head[2] != static_cast<uint32_t>(height))
    refuse("shape", "expected a node at a height of " + std::to_string(height) + ", got one at " +
                        std::to_string(head[2]) + ": leaves on two levels");
  if (height < 0 && head[0] == 1 && size == 1) {
    refuse("shape", "expected at least 2 children of a root that is an inner node, got 1");
  }
  const uint32_t least = head[0] == 0 ? options_.min_leaf() : options_.min_inner();
  if (height >= 0 && size < least) {
    refuse("shape",
           "expected at least " + std::to_string(least) + " in a node below a root, got " + std::to_string(size));
  }
  if (head[0] == 0) return load_leaf(from, key, high, size, lane);
  const auto keys = Reader::take("keys", &from->keys, size);
  if (keys[0] != key) {
    refuse("keys", "expected " + std::to_string(key) + " first, got " + std::to_string(keys[0]) + ": out of order");
  }
  for (uint32_t i = 1; i < size; ++i) {
    if (keys[i] <= keys[i - 1] || (high != nullptr && keys[i] >= *high)) {
      refuse("keys", "expected growing numbers, got " + std::to_string(keys[i]) + " after " +
                         std::to_string(keys[i - 1]) + ": out of order");
    }
  }
  const auto sums = Reader::take("sums", &from->sums, columns_.weighted && from->has_sums ? 1 + size : 0);
  std::vector<Child> children, made;
  for (uint32_t i = 0; i < size; ++i) {
    const Id* end = i + 1 < size ? &keys[i + 1] : high;
    children.push_back(load_below(from, keys[i], end, static_cast<int>(head[2]) - 1, lane));
  }
  pack(key, children, head[2], 0, lane, &made);
  if (!sums.empty()) load_sums(sums, made[0].node);
  return made[0];
}

template <class Id>
void Samtrees<Id>::load(const Saved& saved) {
  Reader from{.shape = saved.shape,
              .keys = saved.keys,
              .ids = saved.ids,
              .weights = saved.weights,
              .times = saved.times,
              .rows = saved.rows,
              .sums = saved.sums,
              .orders = saved.orders,
              .has_sums = saved.has_sums,
              .has_orders = saved.has_orders};
  std::vector<SamtreeRoot> roots(roots_.size());
  try {
    for (SamtreeRoot& root : roots) {
      if (!from.shape.empty() && from.shape[0] == 2) {
        const auto none = Reader::take("shape", &from.shape, 3);
        if (none[1] != 0 || none[2] != 0) {
          refuse("shape", "expected an empty list to have no size, got " + std::to_string(none[1]) +
                              " at a height of " + std::to_string(none[2]));
        }
        continue;
      }
      const Child top = load_below(&from, Id{0}, nullptr, -1, &lane_);
      root = {top.node, top.count};
      load_order(&from, root, &lane_);
    }
    from.check_done();
  } catch (...) {
    free_made(&lane_);
    throw;
  }
  for (SamtreeRoot& old : roots_) {
    if (old.node != 0) retire_below(old.node, &lane_);
  }
  free_retired(&lane_);
  lane_ = Lane();
  roots_ = std::move(roots);
}

template <class Id>
void Samtrees<Id>::retire_below(BlockRef ref, Lane* lane) const {
  if (header(ref)->height > 0) {
    for (uint32_t i = 0; i < inner(ref)->size; ++i) retire_below(inner(ref)->children(columns_)[i], lane);
    if (columns_.timed && inner(ref)->order(columns_) != 0) by_time_.retire(inner(ref)->order(columns_), lane);
  }
  lane->retired.push_back(ref);
}

namespace {

[[noreturn]] void broken(const std::string& what) { throw std::logic_error("samtree: " + what); }

}  // namespace

template <class Id>
void Samtrees<Id>::check_below(BlockRef ref, uint32_t count, Id low, const Id* high, bool is_root, double* sum) const {
  const uint32_t height = header(ref)->height;
  if (height == 0) {
    const Leaf<Id>* from = leaf(ref);
    if (count == 0) broken("an empty leaf");
    if (count > options_.capacity || count > from->room) broken("a leaf over its capacity");
    if (!is_root && count < options_.min_leaf()) broken("a leaf under its fill");
    std::vector<Id> ids(count);
    from->decode(columns_, count, ids.data());
    for (uint32_t i = 0; i < count; ++i) {
      if (!from->format().fits(ids[i])) broken("an id outside its format");
      if (from->id(columns_, i) != ids[i] || from->find(columns_, count, ids[i]) != i) broken("an id not found again");
    }
    std::sort(ids.begin(), ids.end());
    if (std::adjacent_find(ids.begin(), ids.end()) != ids.end()) broken("an id that occurs twice");
    if (ids.front() < low || (high != nullptr && ids.back() >= *high)) broken("an id outside its leaf's keys");
    if (columns_.weighted) {
      std::vector<float> sums(FSTable::size(count));
      FSTable::build(from->weights(columns_), count, sums.data());
      if (!std::equal(sums.begin(), sums.end(), from->sums(columns_))) broken("an FSTable that is not its weights'");
    }
    *sum = own_sum(ref, count);
    return;
  }
  const Inner<Id>* from = inner(ref);
  const uint32_t size = from->size;
  if (size < (is_root ? 2 : options_.min_inner())) broken("an inner node under its fill");
  if (size > options_.capacity) broken("an inner node over its capacity");
  if (from->counts(columns_)[size - 1] != count) broken("counts that are not the node's own");
  if (columns_.timed && (from->order(columns_) != 0) != is_root) broken("an order by time that is not a root's");
  *sum = 0;
  const double tolerance = columns_.weighted ? std::ldexp(from->sums()[size - 1], -30) : 0;
  for (uint32_t i = 0; i < size; ++i) {
    const Id* keys = from->keys(columns_);
    const Id begin = i == 0 ? low : keys[i];
    const Id* end = i + 1 == size ? high : &keys[i + 1];
    if (end != nullptr && begin >= *end) broken("keys out of order");
    const BlockRef child = from->children(columns_)[i];
    if (header(child)->height + 1u != height) broken("leaves on two levels");
    double below = 0;
    check_below(child, from->count(columns_, i), begin, end, false, &below);
    *sum += below;
    if (columns_.weighted && !(std::abs(from->sums()[i] - *sum) <= tolerance))
      broken("a sum that is not its children's");
  }
}

template <class Id>
void Samtrees<Id>::check_order(SamtreeRoot root) const {
  const auto order = order_of(root);
  if (order.root == 0) return;
  by_time_.check(order);
  std::vector<typename TimeOrder<Id>::Entry> entries;
  size_t leaves = 0;
  by_time_.list(order, 0, order.count, &entries, &leaves);
  for (const auto& entry : entries) {
    const LeafView<Id> view = leaf_with(root, entry.id);
    const uint32_t i = view.leaf->find(columns_, view.size, entry.id);
    if (i == IdCodec<Id>::kAbsent) broken("an order by time that holds what is not there");
    const EdgeValue value = view.value(columns_, i);
    if (value.time != entry.time || value.weight != entry.weight) broken("an order by time of other values");
  }
}

template <class Id>
void Samtrees<Id>::check() const {
  for (const SamtreeRoot& root : roots_) {
    double sum = 0;
    if (root.node != 0) check_below(root.node, root.degree, Id{0}, nullptr, true, &sum);
    check_order(root);
    if ((root.node == 0) != (root.degree == 0)) broken("a degree that is not the number of ids");
  }
}

// Instantiates only these members: all others are instantiated where they are defined.
template void Samtrees<uint32_t>::save_below(BlockRef, uint32_t, uint32_t, Saved*) const;
template Samtrees<uint32_t>::Saved Samtrees<uint32_t>::save() const;
template void Samtrees<uint32_t>::save_list(size_t, Saved*) const;
template Samtrees<uint32_t>::Child Samtrees<uint32_t>::load_leaf(Reader*, uint32_t, const uint32_t*, uint32_t, Lane*);
template void Samtrees<uint32_t>::load_sums(std::span<const double>, BlockRef);
template void Samtrees<uint32_t>::load_order(Reader*, SamtreeRoot, Lane*);
template Samtrees<uint32_t>::Child Samtrees<uint32_t>::load_below(Reader*, uint32_t, const uint32_t*, int, Lane*);
template void Samtrees<uint32_t>::load(const Saved&);
template void Samtrees<uint32_t>::retire_below(BlockRef, Lane*) const;
template void Samtrees<uint32_t>::check_below(BlockRef, uint32_t, uint32_t, const uint32_t*, bool, double*) const;
template void Samtrees<uint32_t>::check_order(SamtreeRoot) const;
template void Samtrees<uint32_t>::check() const;
template void Samtrees<uint64_t>::save_below(BlockRef, uint64_t, uint32_t, Saved*) const;
template Samtrees<uint64_t>::Saved Samtrees<uint64_t>::save() const;
template void Samtrees<uint64_t>::save_list(size_t, Saved*) const;
template Samtrees<uint64_t>::Child Samtrees<uint64_t>::load_leaf(Reader*, uint64_t, const uint64_t*, uint32_t, Lane*);
template void Samtrees<uint64_t>::load_sums(std::span<const double>, BlockRef);
template void Samtrees<uint64_t>::load_order(Reader*, SamtreeRoot, Lane*);
template Samtrees<uint64_t>::Child Samtrees<uint64_t>::load_below(Reader*, uint64_t, const uint64_t*, int, Lane*);
template void Samtrees<uint64_t>::load(const Saved&);
template void Samtrees<uint64_t>::retire_below(BlockRef, Lane*) const;
template void Samtrees<uint64_t>::check_below(BlockRef, uint32_t, uint64_t, const uint64_t*, bool, double*) const;
template void Samtrees<uint64_t>::check_order(SamtreeRoot) const;
template void Samtrees<uint64_t>::check() const;

}  // namespace livegnn
