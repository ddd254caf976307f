// Draws from the many neighbours of one node in cases where rejection would take long: draws bounded by time if few
// edges are early enough, and draws by weight if a few weights outweigh all others.
//
//   bounded by time, uniform:  the candidates are a prefix of the order by time; each draw is a position in it
//   by weight:                 parts (weight_part.h) with a sum each, of the tree or of a prefix of the order; if a
//                              draw repeats an earlier one, its part is divided, and loses what has been drawn
//
// So a draw costs one walk down a tree, or a few, and never reads all neighbours. Given the earlier draws, the
// distribution is the same as with rejection: each draw takes one of the remaining neighbours, uniformly or in
// proportion to the weights.
//
// Thread safety: a HubDraws belongs to one thread; other threads may read the trees too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "sampling/choice.h"
#include "store/samtree/samtree.h"

namespace livegnn {

template <class Id>
class HubDraws {
 public:
  using Trees = Samtrees<Id>;

  // A request for one node. `drawn`: the ids that must not be drawn again; null: with replacement.
  struct Task {
    const Trees* trees;
    SamtreeRoot root;
    size_t count;
    NumberSet<Id>* drawn;
    RandomStream* random;
    size_t* leaves;  // counts the leaves that were read
  };

  // Each function appends its draws to `to`, fewer if there are not enough. `first`: only from this many entries at the
  // start of the order by time. Requires: a root with neighbours, which has such an order if `first` is given.
  void alike(const Task& task, uint32_t first, std::vector<Id>* to);
  void by_weight(const Task& task, uint32_t first, std::vector<Id>* to);
  void by_weight(const Task& task, std::vector<Id>* to);
  // The last of those entries, the latest first; among equal times the smaller id.
  void latest(const Task& task, uint32_t first, std::vector<Id>* to);

  size_t bytes() const {
    return parts_.capacity() * sizeof(WeightPart<Id>) + sums_.capacity() * sizeof(double) +
           entries_.capacity() * sizeof(typename TimeOrder<Id>::Entry);
  }

 private:
  template <class Tree>
  void draw_from_parts(const Task& task, const Tree& tree, std::vector<Id>* to);

  std::vector<WeightPart<Id>> parts_;
  std::vector<double> sums_;  // running sums over the parts
  std::vector<typename TimeOrder<Id>::Entry> entries_;
};

extern template class HubDraws<uint32_t>;
extern template class HubDraws<uint64_t>;

}  // namespace livegnn
