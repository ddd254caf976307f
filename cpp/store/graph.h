// A graph of several node and edge types as it is now, and what a batch of events would change in it.
//
// A batch goes through three phases. `Stage` (stage.h) reads the events in order against the graph and collects their
// net effect in a `Delta`; nothing is written, so a bad event leaves the graph as it was. `Graph::prepare` builds aside
// the lists that the delta changes, while readers go on. `Graph::commit` then makes all of it visible, and is short.
// Before it, views derive their own changes from the old graph and the delta. `Graph::settle` frees what nobody can see
// any more.
//
// Invariants of a Delta: an edge occurs once (an undirected one as it was first named), and only if it differs from
// what the graph has; no edge touches a removed node except as removed; a node is in `featured` once, and not if it is
// removed; a node that a batch removes and adds again is in both lists, under two indices; one that it adds and removes
// is in none. Features of an edge are in it only if they differ, bit by bit, from what the edge has.
//
// Thread safety: staging, preparing and reading may go on at once; committing is exclusive (`Graph::lock`). One batch
// at a time is between `prepare` and `settle`.
#pragma once

#include <atomic>
#include <compare>
#include <cstdint>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "ids/id_map.h"
#include "ids/text_ids.h"
#include "memory/recent_needs.h"
#include "memory/table.h"
#include "store/earliest_times.h"
#include "store/edge_features.h"
#include "store/graph_store.h"
#include "threads/fair_lock.h"
#include "threads/waiting.h"

namespace livegnn {

struct EdgeTypeSpec {
  uint32_t source_type, target_type;  // indices of node types
  EdgeOptions options;
  size_t width = 0;      // of the edges' features
  bool expires = false;  // whether `Graph::expired` will be asked
};

struct EdgeChange {
  uint32_t source, target;
  bool had, has;
  float old_weight, new_weight;  // 1 in a type without weights
  double new_time;
  uint32_t row;      // of the edge's features; kNoRow in a type without
  uint32_t key = 0;  // among the edges between the same two nodes, in a type that keeps them
};

struct EdgeName {
  uint32_t source, target, key;
  auto operator<=>(const EdgeName&) const = default;
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
  std::vector<EdgeFeaturesDelta> edge_features;
  size_t num_events = 0;
  double latest_time = -std::numeric_limits<double>::infinity();  // of all edge events that have one
};

enum class BadEvent { kUnknownNode, kNotFinite, kWidth, kNegativeId, kTooManyNodes, kTooManyEdges, kParallel };

// What was wrong with an event, for the bindings to word. `position` counts within the column it came in.
class EventError : public std::runtime_error {
 public:
  EventError(BadEvent kind, const std::string& what, int64_t id = kNoId, uint32_t type = 0, int64_t target = kNoId)
      : std::runtime_error(what), kind(kind), id(id), type(type), target(target) {}
  BadEvent kind;
  int64_t id;      // of a node; of an edge's source where there is a `target`
  uint32_t type;   // of the node, or of the edge
  int64_t target;  // of an edge
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
    EdgeFeatures features;
    EarliestTimes earliest;  // where edges expire
  };

  // With `features_directory` features lie in files there (scratch_file.h), else in memory.
  Graph(const std::vector<size_t>& feature_widths, const std::vector<EdgeTypeSpec>& edge_types, size_t threads = 1,
        const std::string& features_directory = "");
  ~Graph();

  std::vector<NodeType> nodes;
  std::vector<EdgeType> edges;
  // Readers of views share it; a commit takes it alone. Nobody waits for it who holds the interpreter's lock.
  mutable Checked<FairLock> lock;
  std::shared_ptr<TextIds> texts;  // what the numbers inside stand for, where ids are texts; else null
  // The latest time that an edge event had, whatever became of the edge; -inf before the first.
  double latest_time = -std::numeric_limits<double>::infinity();

  // All that takes time, memory or space on a disk. If it throws, nothing has happened.
  void prepare(const Delta& delta);
  // Instead of `commit`.
  void abandon() noexcept;
  // The caller holds `lock` alone. The work is proportional to the delta and needs no memory: whatever grows with the
  // graph has grown aside in `prepare`.
  void commit(const Delta& delta) noexcept;
  // When whoever held `lock` before `commit` has let go of it: after it, at once. Takes `lock` for a moment if memory
  // has to be moved together, a step for each batch. What this batch was prepared in is given back where it is much
  // more than others need.
  void settle() noexcept;

  // What samplers (sampling.h) hold for their next samples.
  mutable std::atomic<size_t> sampling_bytes{0};
  // What changes of edges are listed in for the store, as it was after the last batch.
  size_t updates_bytes() const { return updates_bytes_; }

  // The edges of a type whose time is before `horizon`, by source (an undirected edge: by its smaller end), those of
  // one source in the order of a scan. It looks at the blocks of nodes (earliest_times.h) that have had such an edge
  // since they were last looked at, and at all of them the first time after `forget` of the type's bounds. For the one
  // writer, between batches.
  std::vector<EdgeName> expired(uint32_t edge_type, double horizon);

  // After the nodes of both ends: the edges of a type, as their store saved them. Throws std::runtime_error where they
  // do not fit together, or an end is no node; then the graph is of no use.
  template <class Saved>
  void load_edges(uint32_t edge_type, const Saved& out, const Saved& in, size_t num_edges) {
    EdgeType& type = edges[edge_type];
    const size_t sources = nodes[type.spec.source_type].ids.capacity();
    type.store->resize(sources, nodes[type.spec.target_type].ids.capacity());
    type.store->load(out, in, num_edges);
    check_lists(type);
    if (!type.spec.expires) return;
    type.earliest.resize(sources);
    type.earliest.forget();
  }
  // After the edges were loaded: the rows that they name, without padding, and which rows are free. Throws
  // std::runtime_error where the two do not fit together.
  void load_edge_features(uint32_t edge_type, const float* values, size_t rows, std::vector<uint32_t> free);

 private:
  void settle_tables() noexcept;
  void check_lists(const EdgeType& type) const;
  static void note_times(EdgeType* type, const std::vector<EdgeChange>& changes, size_t capacity);

  std::unique_ptr<ThreadPool> pool_;
  std::vector<EdgeUpdate> updates_;
  size_t need_ = 0;  // of the batch at hand, in updates
  RecentNeeds needs_{size_t{1} << 12};
  std::atomic<size_t> updates_bytes_{0};
};

}  // namespace livegnn
