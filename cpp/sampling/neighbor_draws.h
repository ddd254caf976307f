// Draws neighbours for many nodes at once (PlatoD2GL, section V-C: by sums in inner nodes, by FSTable in leaves).
//
// On a graph larger than the caches a draw is a chain of misses: root, node, sums, weights, id. So a group of nodes
// goes through the links of the chain together; each link is prefetched for all draws of the group before any of them
// reads it:
//
//   roots ─► blocks ─► how many draws, or a scan ─► leaves ─► runs ─► entries ─► ids ─► taken, or drawn again
//
// A draw that repeats an earlier one where there is no replacement, or falls on an edge that is later than it may be,
// is rejected and drawn again in the next round. Where that takes too long (`tolerated_rejections`), or a large share
// of a node's neighbours is asked for, all of them are looked at instead (choice.h); of a node that has many, the order
// by time and the sums of weights are walked down instead (hub_draws.h), so that no draw costs a look at all of them.
// The distribution is the same either way. Parallel edges are drawn each by itself, in the same way: what is the other
// end's index elsewhere is index and key there (graph_store.h).
//
// Invariant: what is drawn for a node is a function of the trees, the strategy, and the node's stream of random numbers
// (random.h): seed, purpose, and the node's place. Not of the group it is in.
// Thread safety: a NeighborDraws belongs to one thread; the trees may be read by many.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "store/samtree.h"

namespace livegnn {

enum class SampleBy : uint8_t {
  kUniform,  // each neighbour alike
  kWeight,   // proportional to weights; never one that is not above 0
  kLatest,   // those with the greatest times; of equal ones those with the smaller ids
};

struct NeighborStrategy {
  static constexpr int32_t kAll = -1;

  SampleBy by = SampleBy::kUniform;
  bool replace = false;  // kLatest knows none
  int32_t count = kAll;  // for each node; without replacement fewer where there are not so many
};

// Neighbours of a run of nodes, node after node. Columns that were not asked for are empty.
template <class Id>
struct BasicNeighborColumns {
  std::vector<uint32_t> counts;  // for each node
  std::vector<Id> ids;
  std::vector<float> weights;
  std::vector<double> times;
  std::vector<uint32_t> rows;

  void clear() { counts.clear(), ids.clear(), weights.clear(), times.clear(), rows.clear(); }
  size_t bytes() const {
    return bytes_of(counts) + bytes_of(ids) + bytes_of(weights) + bytes_of(times) + bytes_of(rows);
  }
};
using NeighborColumns = BasicNeighborColumns<uint32_t>;

class NeighborDraws {
 public:
  struct Task {
    const Samtrees<uint32_t>* trees;  // null where edges have keys
    NeighborStrategy strategy;
    EdgeColumns wanted;  // no more than the trees have
    uint64_t seed = 0, purpose = 0;
    const Samtrees<uint64_t>* keyed = nullptr;  // lists of ends and keys (graph_store.h)
  };

  NeighborDraws();
  NeighborDraws(const NeighborDraws&) = delete;
  NeighborDraws& operator=(const NeighborDraws&) = delete;
  ~NeighborDraws();

  // `until`: only edges whose time is at most this; nothing, one for all, or one for each node. `first_place`: of the
  // first node; the others follow. Replaces what is in `to`. Requires: trees that have the columns that are wanted, and
  // those by which is drawn.
  void draw(const Task& task, std::span<const uint32_t> nodes, std::span<const double> until, uint64_t first_place,
            NeighborColumns* to);

  size_t bytes() const;
  // By all calls: what draws cost, whatever the machine.
  size_t leaves_looked_at() const;

 private:
  template <class Id>
  struct Scratch;
  template <class Id>
  static void draw_from(const Samtrees<Id>& trees, const Task& task, std::span<const uint32_t> nodes,
                        std::span<const double> until, uint64_t first_place, std::unique_ptr<Scratch<Id>>* scratch,
                        NeighborColumns* to);

  // Each is made when it is first needed.
  std::unique_ptr<Scratch<uint32_t>> scratch_;
  std::unique_ptr<Scratch<uint64_t>> keyed_scratch_;
};

}  // namespace livegnn
