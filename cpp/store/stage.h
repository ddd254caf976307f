// Reads events in order against the current graph, and collects their net effect: a `Delta` (graph.h).
//
// Invariants: it writes nothing to the graph. Reading a batch takes time linear in its events and in the edges of the
// nodes that it removes.
// Thread safety: one thread; the graph may be read at the same time, and must not change.
#pragma once

#include <tsl/robin_map.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "hashing/mix_hash.h"
#include "store/graph.h"
#include "store/positions.h"
#include "store/staged_owners.h"

namespace livegnn {

// After an EventError the stage is unusable, but the graph is unchanged.
class Stage {
 public:
  // `refuse_parallel`: adding an existing edge again is an error. `trusted`: the events were accepted before, so
  // weights that add up round as they did then.
  explicit Stage(const Graph& graph, bool refuse_parallel = false, bool trusted = false);

  // `x` has `width` floats per row; null means no features. A null weight means 1, a null time 0. In a type with keys,
  // an added edge without a key gets the greatest key between its ends plus one, and a removal without a key removes
  // the edge with the greatest key.
  void add_edges(uint32_t edge_type, const int64_t* source, const int64_t* target, const float* weight,
                 const double* time, const float* x, size_t width, size_t count, const uint32_t* key = nullptr);
  void remove_edges(uint32_t edge_type, const int64_t* source, const int64_t* target, size_t count,
                    const uint32_t* key = nullptr);
  // `x` has `width` floats per row; null means no features (`add_nodes` only).
  // A null time means 0. In a type whose features have times, features that are older than those of the node are not
  // taken; of equal times, the later event's are.
  void set_features(uint32_t node_type, const int64_t* ids, const float* x, size_t width, size_t count,
                    const double* time = nullptr);
  void add_nodes(uint32_t node_type, const int64_t* ids, const float* x, size_t width, size_t count,
                 const double* time = nullptr);
  // Adds those of the nodes that are not there, each with the features `row`, null for none. They are no events.
  void add_unknown(uint32_t node_type, const int64_t* ids, const float* row, size_t width, size_t count);
  void remove_nodes(uint32_t node_type, const int64_t* ids, size_t count);

  size_t num_events() const { return delta_.num_events; }
  // Removes changes without a net effect. The stage must not be used after it.
  Delta finish();

 private:
  struct NodeStage {
    Positions added;      // id -> position in added
    Positions removed;    // index -> position in removed
    Positions featured;   // index -> position in featured
    size_t reserved = 0;  // indices reserved for added nodes
  };
  // The keys of the edges between two nodes.
  struct Pair {
    std::vector<uint32_t> present;  // of existing edges that this batch has touched, sorted
    std::optional<uint32_t> last;   // the greatest key that the batch has not touched
    std::optional<uint32_t> greatest() const {
      if (present.empty()) return last;
      return last ? std::max(*last, present.back()) : present.back();
    }
  };
  struct EdgeStage {
    Positions positions;  // (source, target), or (pair, key) -> position in delta.edges
    Positions pair_of;    // (source, target) -> position in pairs, in a type with keys
    std::vector<Pair> pairs;
    std::vector<uint32_t> slots;  // by position: slot of new features, kNoIndex if none; empty without features
    std::vector<float> features;  // by slot, at the table's stride
    // The changes at each node, in one list as a source and one as a target; built when they are first needed.
    std::array<tsl::robin_map<uint64_t, uint32_t, MixHash>, 2> first;
    std::array<std::vector<uint32_t>, 2> next;
    size_t drops = 0;  // number of nodes whose changes were looked up
  };

  // The index of a node as the events so far leave it, kNoIndex if there is none.
  uint32_t find(uint32_t node_type, int64_t id) const;
  uint32_t resolve(uint32_t node_type, int64_t id) const;
  uint32_t add_node(uint32_t node_type, int64_t id);
  void resolve_ends(const EdgeTypeSpec& spec, const int64_t* source, const int64_t* target, size_t count);
  void prefetch_ahead(const GraphStore& store, size_t i) const;
  // Requires: a part of a graph. Whether it keeps an edge of the current call.
  bool keeps(const EdgeTypeSpec& spec, size_t i) const {
    return owners_.keeps(spec.source_type, sources_[i], spec.target_type, targets_[i]);
  }
  uint32_t pair_of(uint32_t edge_type, uint32_t source, uint32_t target);
  uint32_t next_key(uint32_t edge_type, uint32_t pair) const;
  void note_key(uint32_t edge_type, uint32_t pair, const EdgeChange& change);
  EdgeChange* change_of(uint32_t edge_type, uint32_t source, uint32_t target, uint32_t key);
  void check_features(uint32_t node_type, const int64_t* ids, const float* x, size_t width, size_t count,
                      const double* time);
  void write_features(uint32_t node_type, uint32_t index, const float* x, size_t width, double time);
  void write_edge_features(uint32_t edge_type, size_t position, const float* x);
  void drop_edges(uint32_t node_type, uint32_t index);
  void drop_unlisted(uint32_t edge_type, const std::vector<uint32_t>& targets);
  void drop_staged(uint32_t edge_type, uint32_t node_type, uint32_t index);
  void link(uint32_t edge_type, uint32_t position);
  void finish_edges(uint32_t edge_type);
  void finish_nodes(uint32_t node_type);

  const Graph& graph_;
  const bool refuse_parallel_, trusted_;
  Delta delta_;
  std::vector<NodeStage> node_stages_;
  std::vector<EdgeStage> edge_stages_;
  StagedOwners owners_;
  std::vector<uint32_t> sources_, targets_;  // ends of the edges of the current call
};

}  // namespace livegnn
