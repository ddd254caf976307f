// Draws neighbours for many nodes at once (PlatoD2GL, section V-C: with sums in inner nodes and FSTable in leaves).
//
// On a graph larger than the caches a draw is a chain of cache misses: root, node, sums, weights, id. So a group of
// nodes goes through the links of the chain together; each link is prefetched for all draws of the group before any of
// them reads it:
//
//   roots ─► blocks ─► number of draws, or a scan ─► leaves ─► runs ─► entries ─► ids ─► accepted, or drawn again
//
// A draw is rejected and drawn again in the next round if it repeats an earlier one without replacement, or if its edge
// is later than the bound. If that takes too long (`tolerated_rejections`), or a large share of a node's neighbours is
// wanted, all of them are read instead (choice.h). For a node with many neighbours, the order by time and the sums of
// weights are searched instead (hub_draws.h), so that no draw reads all of them. The distribution is the same in all
// cases. Parallel edges are drawn separately, in the same way: the other end's index and the edge's key identify an
// entry there, instead of the index alone (graph_store.h).
//
// Invariant: the draws for a node are a function of the trees, the strategy, and the node's stream of random numbers
// (random.h): seed, purpose, and the node's place. They do not depend on the group that the node is in.
// Thread safety: a NeighborDraws belongs to one thread; other threads may read the trees too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "store/samtree/samtree.h"

namespace livegnn {

enum class SampleBy : uint8_t {
  kUniform,  // each neighbour with the same probability
  kWeight,   // proportional to weights; a weight that is not positive is never drawn
  kLatest,   // those with the greatest times; among equal times the smaller ids
};

struct NeighborStrategy {
  static constexpr int32_t kAll = -1;

  SampleBy by = SampleBy::kUniform;
  bool replace = false;  // ignored by kLatest
  int32_t count = kAll;  // for each node; without replacement fewer if a node has fewer
};

// Neighbours of a run of nodes, node after node. Columns that were not requested are empty.
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

// The places of a run of nodes: one behind the other, or a list that outlives it.
class Places {
 public:
  Places(uint64_t first) : first_(first) {}
  explicit Places(const uint32_t* each) : each_(each) {}
  uint64_t operator[](size_t i) const { return each_ == nullptr ? first_ + i : each_[i]; }
  // Those of the nodes from number `begin` on.
  Places from(size_t begin) const { return each_ == nullptr ? Places(first_ + begin) : Places(each_ + begin); }

 private:
  uint64_t first_ = 0;
  const uint32_t* each_ = nullptr;
};

class NeighborDraws {
 public:
  struct Task {
    const Samtrees<uint32_t>* trees;  // null if edges have keys
    NeighborStrategy strategy;
    EdgeColumns wanted;  // at most the columns of the trees
    uint64_t seed = 0, purpose = 0;
    const Samtrees<uint64_t>* keyed = nullptr;  // lists of ends and keys (graph_store.h)
  };

  NeighborDraws();
  NeighborDraws(const NeighborDraws&) = delete;
  NeighborDraws& operator=(const NeighborDraws&) = delete;
  ~NeighborDraws();

  // `until`: only edges whose time is at most this; empty, one bound for all, or one for each node. Replaces the
  // contents of `to`. Requires: trees with the requested columns and those that the strategy needs.
  void draw(const Task& task, std::span<const uint32_t> nodes, std::span<const double> until, Places places,
            NeighborColumns* to);

  size_t bytes() const;
  // The number of leaves read in all calls: a machine-independent cost of draws.
  size_t leaves_looked_at() const;

 private:
  template <class Id>
  struct Scratch;
  template <class Id>
  static void draw_from(const Samtrees<Id>& trees, const Task& task, std::span<const uint32_t> nodes,
                        std::span<const double> until, Places places, std::unique_ptr<Scratch<Id>>* scratch,
                        NeighborColumns* to);

  // Each is made when it is first needed.
  std::unique_ptr<Scratch<uint32_t>> scratch_;
  std::unique_ptr<Scratch<uint64_t>> keyed_scratch_;
};

}  // namespace livegnn
