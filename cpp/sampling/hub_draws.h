// Draws from the many neighbours of one node that rejection would take long for: bounded by time, where few are early
// enough, and by weight, where a few outweigh all others.
//
//   bounded by time, alike:  the first so many of the order by time are what may be drawn; each draw is a place there
//   by weight:               parts (weight_part.h) with a sum each, of the tree or of the order's beginning; a part in
//                            which a draw repeats an earlier one is taken apart, and loses what has been drawn
//
// So a draw costs a walk down a tree, or a few; never a look at all neighbours. The distribution is that of rejection,
// given what was drawn before: each draw takes one of those that are left, alike or in proportion to the weights.
//
// Thread safety: a HubDraws belongs to one thread; the trees may be read by many.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "sampling/choice.h"
#include "store/samtree.h"

namespace livegnn {

template <class Id>
class HubDraws {
 public:
  using Trees = Samtrees<Id>;

  // What is asked for of one node. `drawn`: the ids that are not to be drawn again; null: with replacement.
  struct Task {
    const Trees* trees;
    SamtreeRoot root;
    size_t count;
    NumberSet<Id>* drawn;
    RandomStream* random;
    size_t* leaves;  // counts those that were looked at
  };

  // Each appends what it draws to `to`; fewer where there are not so many. `first`: only from so many at the beginning
  // of the order by time. Requires: a root with neighbours, which has such an order where `first` is given.
  void alike(const Task& task, uint32_t first, std::vector<Id>* to);
  void by_weight(const Task& task, uint32_t first, std::vector<Id>* to);
  void by_weight(const Task& task, std::vector<Id>* to);
  // The last of those, the latest first; of equal times the smaller id.
  void latest(const Task& task, uint32_t first, std::vector<Id>* to);

  size_t bytes() const {
    return parts_.capacity() * sizeof(WeightPart<Id>) + sums_.capacity() * sizeof(double) +
           entries_.capacity() * sizeof(typename TimeOrder<Id>::Entry);
  }

 private:
  template <class Tree>
  void draw_from_parts(const Task& task, const Tree& tree, std::vector<Id>* to);

  std::vector<WeightPart<Id>> parts_;
  std::vector<double> sums_;  // of the parts so far
  std::vector<typename TimeOrder<Id>::Entry> entries_;
};

extern template class HubDraws<uint32_t>;
extern template class HubDraws<uint64_t>;

}  // namespace livegnn
