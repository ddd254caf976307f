// A graph of several node and edge types as it is now, and what a batch of events would change in it.
//
// A batch goes through three phases. `Stage` reads the events in order against the graph and collects their net effect
// in a `Delta`; nothing is written, so a bad event leaves the graph as it was. `Graph::prepare` builds aside the lists
// that the delta changes, while readers go on. `Graph::commit` then makes all of it visible, and is short. Before it,
// views derive their own changes from the old graph and the delta. `Graph::settle` frees what nobody can see any more.
//
// Invariants of a Delta: an edge occurs once (an undirected one as it was first named), and only if it differs from
// what the graph has; no edge touches a removed node except as removed; a node is in `featured` once, and not if it is
// removed; a node that a batch removes and adds again is in both lists, under two indices; one that it adds and removes
// is in none.
//
// Thread safety: staging, preparing and reading may go on at once; committing is exclusive (`Graph::lock`). One batch
// at a time is between `prepare` and `settle`.
#pragma once

#include <tsl/robin_map.h>

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "livegnn/fair_lock.h"
#include "livegnn/graph_store.h"
#include "livegnn/id_map.h"
#include "livegnn/mix_hash.h"
#include "livegnn/table.h"

namespace livegnn {

struct EdgeTypeSpec {
  uint32_t source_type, target_type;  // indices of node types
  EdgeOptions options;
};

struct EdgeChange {
  uint32_t source, target;
  bool had, has;
  float old_weight, new_weight;  // 1 in a type without weights
  double new_time;
};

struct NodeDelta {
  std::vector<uint32_t> added;     // in the order in which the id map will give out their indices
  std::vector<int64_t> added_ids;  // kNoId: added and removed again, the index only passes through
  std::vector<uint32_t> removed;
  std::vector<int64_t> removed_ids;
  std::vector<uint32_t> featured;  // new features; added nodes are among them if they came with any
  std::vector<float> features;     // rows of `featured`, at the table's stride
  size_t capacity = 0;             // of the id map once this is committed
};

struct Delta {
  std::vector<NodeDelta> nodes;                // by node type
  std::vector<std::vector<EdgeChange>> edges;  // by edge type
  size_t num_events = 0;
};

enum class BadEvent { kUnknownNode, kNotFinite, kWidth, kNegativeId, kTooManyNodes };

// What was wrong with an event, for the bindings to word. `position` counts within the column it came in.
class EventError : public std::runtime_error {
 public:
  EventError(BadEvent kind, const std::string& what, int64_t id = kNoId, uint32_t node_type = 0)
      : std::runtime_error(what), kind(kind), id(id), node_type(node_type) {}
  BadEvent kind;
  int64_t id;
  uint32_t node_type;
};

class Graph {
 public:
  struct NodeType {
    IdMap ids;
    Table features;
  };
  struct EdgeType {
    EdgeTypeSpec spec;
    std::unique_ptr<GraphStore> store;
  };

  Graph(const std::vector<size_t>& feature_widths, const std::vector<EdgeTypeSpec>& edge_types, size_t threads = 1);
  ~Graph();

  std::vector<NodeType> nodes;
  std::vector<EdgeType> edges;
  mutable FairLock lock;  // readers of views share it; a commit takes it alone

  // If it throws, nothing has happened.
  void prepare(const Delta& delta);
  // Instead of `commit`.
  void abandon();
  // The caller holds `lock` alone.
  void commit(const Delta& delta);
  // When whoever held `lock` before `commit` has let go of it: after it, at once. Takes `lock` for a moment if memory
  // has to be moved together.
  void settle();

 private:
  std::unique_ptr<ThreadPool> pool_;
  std::vector<EdgeUpdate> updates_;
};

// Reads events in order and keeps their net effect. After an EventError the stage is unusable but the graph untouched.
class Stage {
 public:
  explicit Stage(const Graph& graph);

  void add_edges(uint32_t edge_type, const int64_t* source, const int64_t* target, const float* weight,
                 const double* time, size_t count);
  void remove_edges(uint32_t edge_type, const int64_t* source, const int64_t* target, size_t count);
  // `x` has `width` floats a row; null means no features (add_nodes only).
  void set_features(uint32_t node_type, const int64_t* ids, const float* x, size_t width, size_t count);
  void add_nodes(uint32_t node_type, const int64_t* ids, const float* x, size_t width, size_t count);
  void remove_nodes(uint32_t node_type, const int64_t* ids, size_t count);

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
    Positions added;      // id -> index
    Positions removed;    // index -> position in removed
    Positions featured;   // index -> position in featured
    size_t reserved = 0;  // indices promised to added nodes
  };
  struct EdgeStage {
    Positions positions;  // (source, target) -> position in delta.edges
  };

  uint32_t resolve(uint32_t node_type, int64_t id);
  void resolve_ends(const EdgeTypeSpec& spec, const int64_t* source, const int64_t* target, size_t count);
  void prefetch_ahead(const GraphStore& store, size_t i) const;
  EdgeChange* change_of(uint32_t edge_type, uint32_t source, uint32_t target);
  void write_features(uint32_t node_type, uint32_t index, const float* x, size_t width);
  void check_rows(uint32_t node_type, const float* x, size_t width, size_t count) const;
  void drop_edges(uint32_t node_type, uint32_t index);

  const Graph& graph_;
  Delta delta_;
  std::vector<NodeStage> node_stages_;
  std::vector<EdgeStage> edge_stages_;
  std::vector<uint32_t> sources_, targets_;  // of the edges at hand
};

}  // namespace livegnn
