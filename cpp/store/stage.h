// Events in order against a graph as it is, and their net effect: a `Delta` (graph.h).
//
// Invariants: nothing of the graph is written. Reading a batch takes time linear in its events and in the edges of the
// nodes that it removes.
// Thread safety: one thread; the graph may be read meanwhile, and must not change.
#pragma once

#include <tsl/robin_map.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "hashing/mix_hash.h"
#include "store/graph.h"

namespace livegnn {

// After an EventError the stage is unusable but the graph untouched.
class Stage {
 public:
  // `refuse_parallel`: an edge that is there already may not be added again.
  explicit Stage(const Graph& graph, bool refuse_parallel = false);

  // `x` has `width` floats a row; null means no features, as do a null weight and time. In a type with keys, an edge
  // without one gets the key after the greatest between its ends, and of those the one with the greatest is removed.
  void add_edges(uint32_t edge_type, const int64_t* source, const int64_t* target, const float* weight,
                 const double* time, const float* x, size_t width, size_t count, const uint32_t* key = nullptr);
  void remove_edges(uint32_t edge_type, const int64_t* source, const int64_t* target, size_t count,
                    const uint32_t* key = nullptr);
  // `x` has `width` floats a row; null means no features (`add_nodes` only).
  void set_features(uint32_t node_type, const int64_t* ids, const float* x, size_t width, size_t count);
  void add_nodes(uint32_t node_type, const int64_t* ids, const float* x, size_t width, size_t count);
  void remove_nodes(uint32_t node_type, const int64_t* ids, size_t count);

  size_t num_events() const { return delta_.num_events; }
  // Drops what came to nothing. The stage may not be used after it.
  Delta finish();

 private:
  // Positions by key; a linear search while there are few, since most batches are small and a map must be filled.
  class Positions {
   public:
    uint32_t find(uint64_t key) const;
    void insert(uint64_t key, uint32_t position);
    void erase(uint64_t key);

   private:
    static constexpr size_t kFew = 16;
    std::vector<std::pair<uint64_t, uint32_t>> few_;
    tsl::robin_map<uint64_t, uint32_t, MixHash> map_;
  };
  struct NodeStage {
    Positions added;      // id -> position in added
    Positions removed;    // index -> position in removed
    Positions featured;   // index -> position in featured
    size_t reserved = 0;  // indices promised to added nodes
  };
  // The keys between two nodes.
  struct Pair {
    std::vector<uint32_t> present;  // of edges that are there and that this batch has named, ascending
    std::optional<uint32_t> last;   // the greatest of those that it has not
    std::optional<uint32_t> greatest() const {
      if (present.empty()) return last;
      return last ? std::max(*last, present.back()) : present.back();
    }
  };
  struct EdgeStage {
    Positions positions;  // (source, target), or (pair, key) -> position in delta.edges
    Positions pair_of;    // (source, target) -> position in pairs, in a type with keys
    std::vector<Pair> pairs;
    std::vector<uint32_t> slots;  // by position: of new features; kNoIndex: none. Absent in a type without features
    std::vector<float> features;  // by slot, at the table's stride
    // The changes at each node, a list for its being source and one for its being target, once there is need for them.
    std::array<tsl::robin_map<uint64_t, uint32_t, MixHash>, 2> first;
    std::array<std::vector<uint32_t>, 2> next;
    size_t drops = 0;  // nodes whose changes were asked for
  };

  uint32_t resolve(uint32_t node_type, int64_t id);
  void resolve_ends(const EdgeTypeSpec& spec, const int64_t* source, const int64_t* target, size_t count);
  void prefetch_ahead(const GraphStore& store, size_t i) const;
  uint32_t pair_of(uint32_t edge_type, uint32_t source, uint32_t target);
  uint32_t next_key(uint32_t edge_type, uint32_t pair) const;
  void note_key(uint32_t edge_type, uint32_t pair, const EdgeChange& change);
  EdgeChange* change_of(uint32_t edge_type, uint32_t source, uint32_t target, uint32_t key);
  void write_features(uint32_t node_type, uint32_t index, const float* x, size_t width);
  void write_edge_features(uint32_t edge_type, size_t position, const float* x);
  void drop_edges(uint32_t node_type, uint32_t index);
  void drop_unlisted(uint32_t edge_type, const std::vector<uint32_t>& targets);
  void drop_staged(uint32_t edge_type, uint32_t node_type, uint32_t index);
  void link(uint32_t edge_type, uint32_t position);
  void finish_edges(uint32_t edge_type);
  void finish_nodes(uint32_t node_type);

  const Graph& graph_;
  const bool refuse_parallel_;
  Delta delta_;
  std::vector<NodeStage> node_stages_;
  std::vector<EdgeStage> edge_stages_;
  std::vector<uint32_t> sources_, targets_;  // of the edges at hand
};

}  // namespace livegnn
