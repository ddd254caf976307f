// Draws some of n candidates that are stored in an array: those that a scan has collected, or all nodes of a type.
//
// Drawing by weight without replacement is successive sampling: each draw takes one of the remaining candidates, with
// probability proportional to its weight. A draw that repeats an earlier one is rejected and made again. If that would
// take longer than reading all candidates, the rest are the ones with the smallest exponential keys (Efraimidis and
// Spirakis, Weighted random sampling with a reservoir, 2006). Given the earlier draws, both methods have the same
// distribution, so switching does not change it.
//
// Thread safety: a Choice belongs to one thread.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "hashing/mix_hash.h"
#include "hashing/random.h"
#include "memory/recent_needs.h"

namespace livegnn {

// The numbers seen since `clear`; each is less than the greatest of its type.
template <class Number>
class NumberSet {
 public:
  // `expected`: the approximate number of insertions.
  void clear(size_t expected);
  // Returns false if it is already in the set. Requires: it is not the greatest of its type.
  bool insert(Number number) {
    assert(number != kEmpty);
    if (2 * (size_ + 1) > slots_.size()) grow();
    Number* slot = find(number);
    if (*slot == number) return false;
    *slot = number;
    ++size_;
    return true;
  }
  size_t bytes() const { return slots_.capacity() * sizeof(Number); }
  bool contains(Number number) const { return size_ > 0 && *const_cast<NumberSet*>(this)->find(number) == number; }

 private:
  static constexpr auto kEmpty = static_cast<Number>(-1);

  Number* find(Number number) {
    const size_t mask = slots_.size() - 1;
    size_t at = MixHash{}(number)&mask;
    while (slots_[at] != kEmpty && slots_[at] != number) at = (at + 1) & mask;
    return &slots_[at];
  }
  void grow();

  std::vector<Number> slots_;  // a power of two, at most half full
  size_t size_ = 0;
};

extern template class NumberSet<uint32_t>;
extern template class NumberSet<uint64_t>;

// After this number of rejected draws without replacement, all candidates are read instead.
inline size_t tolerated_rejections(size_t candidates, size_t count) { return count + candidates / 32; }

// If this many are drawn without replacement, all candidates are read from the start.
inline bool draws_a_large_share(size_t candidates, size_t count) { return candidates / 3 < count; }

// Each function appends positions below the number of candidates. Without replacement, a count beyond what can be drawn
// takes all of it.
class Choice {
 public:
  void uniform(size_t candidates, size_t count, bool replace, RandomStream* random, std::vector<uint32_t>* to);
  // A weight that is not positive is never drawn.
  template <class Weight>
  void by_weight(std::span<const Weight> weights, size_t count, bool replace, RandomStream* random,
                 std::vector<uint32_t>* to);
  // The greatest times, the greatest first; among equal times the smaller id. Requires: as many ids as times.
  template <class Id>
  void latest(std::span<const double> times, std::span<const Id> ids, size_t count, std::vector<uint32_t>* to);

  size_t bytes() const { return drawn_.bytes() + bytes_of(order_) + bytes_of(sums_) + bytes_of(keys_); }

 private:
  NumberSet<uint32_t> drawn_;
  std::vector<uint32_t> order_;
  std::vector<double> sums_;
  std::vector<std::pair<double, uint32_t>> keys_;
};

// Of whole lists, those of node i from `offsets[i]` up to `offsets[i + 1]`: the positions of `count` neighbours of
// each, or of as many as can be drawn, in their order. `weights`: by these, if there are any; `times`: or the latest. A
// draw is a function of the list, its node and the seed alone, so that whoever reads a list draws the same neighbours.
std::vector<int64_t> draw_of_lists(std::span<const int64_t> offsets, std::span<const int64_t> nodes,
                                   std::span<const int64_t> neighbors, std::span<const float> weights,
                                   std::span<const double> times, size_t count, uint64_t seed);

extern template void Choice::by_weight(std::span<const float>, size_t, bool, RandomStream*, std::vector<uint32_t>*);
extern template void Choice::by_weight(std::span<const double>, size_t, bool, RandomStream*, std::vector<uint32_t>*);
extern template void Choice::latest(std::span<const double>, std::span<const uint32_t>, size_t, std::vector<uint32_t>*);
extern template void Choice::latest(std::span<const double>, std::span<const uint64_t>, size_t, std::vector<uint32_t>*);

}  // namespace livegnn
