// Saves and restores the exact shape of orders by time, and checks their invariants.
#include <algorithm>
#include <bit>
#include <cmath>
#include <stdexcept>
#include <string>
#include <vector>

#include "store/samtree/time_order.h"

namespace livegnn {

template <class Id>
void TimeOrder<Id>::save_below(BlockRef ref, uint32_t count, std::vector<uint64_t>* to) const {
  const uint64_t height = header(ref)->height;
  if (height == 0) {
    to->push_back(count);
    return;
  }
  const Inner from = inner(ref);
  to->push_back((height << 32) | from.size);
  for (uint32_t i = 1; i < from.size; ++i)
    to->insert(to->end(), {std::bit_cast<uint64_t>(from.times[i]), uint64_t{from.ids[i]}});
  for (uint32_t i = 0; i < from.size; ++i) save_below(from.children[i], from.counts[i], to);
}

template <class Id>
void TimeOrder<Id>::save(Tree from, std::vector<uint64_t>* to) const {
  if (from.root != 0) save_below(from.root, from.count, to);
}

template <class Id>
struct TimeOrder<Id>::Reader {
  std::span<const Entry> entries;
  std::span<const uint64_t> words;

  uint64_t word() {
    if (words.empty()) throw std::runtime_error("an order by time that ends before its shape does");
    const uint64_t first = words[0];
    words = words.subspan(1);
    return first;
  }
};

// A null key means that nothing comes before the node, a null `high` that nothing comes after it.
template <class Id>
typename TimeOrder<Id>::Child TimeOrder<Id>::load_below(Reader* from, const Entry* key, const Entry* high,
                                                        uint32_t height, BlockLane* lane) {
  const uint64_t word = from->word();
  const auto size = static_cast<uint32_t>(word);
  if (word >> 32 != height || size == 0 || size > (height == 0 ? kLeaf : kInner))
    throw std::runtime_error("an order by time with a node of " + std::to_string(size) + " at a height of " +
                             std::to_string(word >> 32));
  const auto outside = [&](const Entry& entry, const Entry* low) {
    return (low != nullptr && entry.before(*low)) || (high != nullptr && !entry.before(*high));
  };
  const Entry first = key == nullptr ? Entry{} : *key;
  if (height == 0) {
    if (from->entries.size() < size) throw std::runtime_error("an order by time of more than there is");
    const auto own = from->entries.first(size);
    from->entries = from->entries.subspan(size);
    if (outside(own.front(), key) || outside(own.back(), key))
      throw std::runtime_error("an order by time with an entry outside its keys");
    return make_leaf(first, own, lane);
  }
  std::vector<Entry> keys{first};
  for (uint32_t i = 1; i < size; ++i) {
    const auto time = std::bit_cast<double>(from->word());
    const uint64_t id = from->word();
    keys.push_back({time, static_cast<Id>(id), 0});
    const Entry* before = i > 1 ? &keys[i - 1] : key;
    if (std::isnan(time) || id != keys[i].id || outside(keys[i], key) ||
        (before != nullptr && !before->before(keys[i])))
      throw std::runtime_error("an order by time with keys out of order");
  }
  std::vector<Child> children, made;
  for (uint32_t i = 0; i < size; ++i) {
    const Entry* end = i + 1 < size ? &keys[i + 1] : high;
    children.push_back(load_below(from, i == 0 ? key : &keys[i], end, height - 1, lane));
  }
  pack(children, height, lane, &made);
  return made[0];
}

template <class Id>
BlockRef TimeOrder<Id>::load(std::span<const Entry> entries, std::span<const uint64_t>* words, BlockLane* lane) {
  Reader from{entries, *words};
  const uint64_t top = words->empty() ? 0 : words->front();
  if (top >> 32 > kMaxHeight || (top >> 32 > 0 && static_cast<uint32_t>(top) < 2))
    throw std::runtime_error("an order by time with a root that is none");
  const BlockRef root = load_below(&from, nullptr, nullptr, static_cast<uint32_t>(top >> 32), lane).node;
  if (!from.entries.empty()) throw std::runtime_error("an order by time of less than there is");
  *words = from.words;
  return root;
}

namespace {

[[noreturn]] void broken_order(const std::string& what) { throw std::logic_error("order by time: " + what); }

}  // namespace

template <class Id>
void TimeOrder<Id>::check_below(BlockRef ref, uint32_t count, const Entry* low, const Entry* high, double* sum) const {
  *sum = 0;
  if (count == 0) broken_order("an empty node");
  if (header(ref)->height == 0) {
    const Leaf from = leaf(ref);
    if (count > from.room || count > kLeaf) broken_order("a leaf over its capacity");
    for (uint32_t i = 0; i < count; ++i) {
      const Entry one = entry(from, i);
      if (i > 0 && !entry(from, i - 1).before(one)) broken_order("entries out of order");
      if ((low != nullptr && one.before(*low)) || (high != nullptr && !one.before(*high)))
        broken_order("an entry outside its keys");
      *sum += std::max(0.0f, one.weight);
    }
    return;
  }
  const Inner from = inner(ref);
  if (from.size > kInner) broken_order("an inner node over its capacity");
  uint32_t counted = 0;
  for (uint32_t i = 0; i < from.size; ++i) {
    const Entry begin{from.times[i], from.ids[i], 0};
    const Entry end = i + 1 < from.size ? Entry{from.times[i + 1], from.ids[i + 1], 0} : Entry{};
    if (header(from.children[i])->height + 1u != from.height) broken_order("leaves on two levels");
    double below = 0;
    check_below(from.children[i], from.counts[i], i == 0 ? low : &begin, i + 1 < from.size ? &end : high, &below);
    if (weighted_ && below != from.sums[i]) broken_order("a sum that is not its child's");
    counted += from.counts[i];
    *sum += below;
  }
  if (counted != count) broken_order("counts that are not the node's own");
}

template <class Id>
void TimeOrder<Id>::check(Tree from) const {
  if ((from.root == 0) != (from.count == 0)) broken_order("a root without entries, or entries without a root");
  double sum = 0;
  if (from.root != 0) check_below(from.root, from.count, nullptr, nullptr, &sum);
}

// Instantiates only these members: all others are instantiated where they are defined.
template void TimeOrder<uint32_t>::save_below(BlockRef, uint32_t, std::vector<uint64_t>*) const;
template void TimeOrder<uint32_t>::save(Tree, std::vector<uint64_t>*) const;
template TimeOrder<uint32_t>::Child TimeOrder<uint32_t>::load_below(Reader*, const Entry*, const Entry*, uint32_t,
                                                                    BlockLane*);
template BlockRef TimeOrder<uint32_t>::load(std::span<const Entry>, std::span<const uint64_t>*, BlockLane*);
template void TimeOrder<uint32_t>::check_below(BlockRef, uint32_t, const Entry*, const Entry*, double*) const;
template void TimeOrder<uint32_t>::check(Tree) const;
template void TimeOrder<uint64_t>::save_below(BlockRef, uint32_t, std::vector<uint64_t>*) const;
template void TimeOrder<uint64_t>::save(Tree, std::vector<uint64_t>*) const;
template TimeOrder<uint64_t>::Child TimeOrder<uint64_t>::load_below(Reader*, const Entry*, const Entry*, uint32_t,
                                                                    BlockLane*);
template BlockRef TimeOrder<uint64_t>::load(std::span<const Entry>, std::span<const uint64_t>*, BlockLane*);
template void TimeOrder<uint64_t>::check_below(BlockRef, uint32_t, const Entry*, const Entry*, double*) const;
template void TimeOrder<uint64_t>::check(Tree) const;

}  // namespace livegnn
