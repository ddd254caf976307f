// A graph with several node and edge types, and the changes that a batch of events makes to it.
//
// A batch goes through three phases. `Stage` (stage.h) reads the events in order against the graph and collects their
// net effect in a `Delta`; it writes nothing, so an invalid event leaves the graph unchanged. `Graph::prepare` builds
// the changed lists while readers go on. Then `Graph::commit` makes them visible, which is short; before it, views
// derive their own changes from the old graph and the delta. Finally, `Graph::settle` frees what is no longer visible.
//
// Invariants of a Delta: an edge occurs once (an undirected one with its ends as in its first event), and only if it
// differs from what the graph has; no edge touches a removed node except as removed; a node is in `featured` once, and
// not if it is removed; a node that a batch removes and adds again is in both lists, under two indices; one that it
// adds and removes is in neither. Features of an edge are in it only if they differ bitwise from what the edge has.
//
// Thread safety: staging, preparing and reading may run concurrently; committing is exclusive (`Graph::lock`). Only one
// batch at a time may be between `prepare` and `settle`.
#pragma once

#include <atomic>
#include <compare>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
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
#include "store/feature_times.h"
#include "store/graph_part.h"
#include "store/graph_store.h"
#include "store/node_features.h"
#include "threads/fair_lock.h"
#include "threads/waiting.h"

namespace livegnn {

struct EdgeTypeSpec {
  uint32_t source_type, target_type;  // indices of node types
  EdgeOptions options;
  size_t width = 0;      // of the edges' features
  bool expires = false;  // whether `Graph::expired` will be called
};

struct EdgeChange {
  uint32_t source, target;
  bool had, has;
  float old_weight, new_weight;  // 1 in a type without weights
  double new_time;
  uint32_t row;      // of the edge's features; kNoRow in a type without features
  uint32_t key = 0;  // distinguishes parallel edges, in a type that keeps them
};

struct EdgeName {
  uint32_t source, target, key;
  auto operator<=>(const EdgeName&) const = default;
};

struct NodeDelta {
  std::vector<uint32_t> added;     // in the order in which the id map will assign their indices
  std::vector<int64_t> added_ids;  // kNoId: added and removed again; the index is only reserved
  std::vector<uint16_t> owners;    // of the added ones, in a part of a graph; kNoOwner where the index is only reserved
  std::vector<uint16_t> placed;    // the same in the part that places them, those whose index is only reserved too
  std::vector<uint32_t> removed;
  std::vector<int64_t> removed_ids;
  std::vector<uint32_t> featured;  // new features, including those of added nodes that have any
  std::vector<float> features;     // rows of `featured`, at the table's stride
  std::vector<double> times;       // of `featured`, in a type whose features have times
  size_t capacity = 0;             // of the id map after the commit
};

struct Delta {
  std::vector<NodeDelta> nodes;                // by node type
  std::vector<std::vector<EdgeChange>> edges;  // by edge type
  std::vector<EdgeFeaturesDelta> edge_features;
  size_t num_events = 0;
  double latest_time = -std::numeric_limits<double>::infinity();  // of all events that have one
  size_t late_features = 0;  // events whose features were older than those of the node
};

// What a graph gets beside what it has: columns at the end of the features of nodes, and types after its types.
struct GraphGrowth {
  std::vector<std::vector<float>> columns;  // by old node type: the value of each new column in the rows of its nodes
  std::vector<size_t> widths;               // by new node type
  std::vector<EdgeTypeSpec> edge_types;     // the new ones
};

enum class BadEvent {
  kUnknownNode,
  kNotFinite,
  kWidth,
  kNegativeId,
  kTooManyNodes,
  kTooManyEdges,
  kParallel,
  kInexact
};

// An invalid event; the bindings write the message. `position` counts within the column it came in.
class EventError : public std::runtime_error {
 public:
  EventError(BadEvent kind, const std::string& what, int64_t id = kNoId, uint32_t type = 0, int64_t target = kNoId)
      : std::runtime_error(what), kind(kind), id(id), type(type), target(target) {}
  BadEvent kind;
  int64_t id;      // of a node; of an edge's source if there is a `target`; kNoId if it concerns a whole column
  uint32_t type;   // of the node, or of the edge
  int64_t target;  // of an edge
};

class Graph {
 public:
  struct NodeType {
    IdMap ids;
    NodeFeatures features;
    FeatureTimes times;
  };
  struct EdgeType {
    EdgeTypeSpec spec;
    std::unique_ptr<GraphStore> store;
    EdgeFeatures features;
    EarliestTimes earliest;  // if edges expire
  };

  // With `features_directory`, features are stored in files there (scratch_file.h), else in memory. `timed_features`:
  // the node types whose features have times.
  Graph(const std::vector<size_t>& feature_widths, const std::vector<EdgeTypeSpec>& edge_types, size_t threads = 1,
        const std::string& features_directory = "", std::span<const uint32_t> timed_features = {});
  ~Graph();

  std::vector<NodeType> nodes;
  std::vector<EdgeType> edges;
  // Readers of views share it; a commit holds it exclusively. No thread waits for it while holding the interpreter's
  // lock.
  mutable Checked<FairLock> lock;
  std::shared_ptr<TextIds> texts;   // the texts that internal numbers stand for if ids are texts; else null
  std::unique_ptr<GraphPart> part;  // null of an undivided graph; `divide` sets it
  // The latest time of any event, even if the event had no effect; -inf before the first.
  double latest_time = -std::numeric_limits<double>::infinity();

  // Makes it a part of a graph, before it has nodes. One that owns no node keeps the features of all.
  void divide(std::unique_ptr<GraphPart> as);
  // Whether it holds the features of some nodes alone.
  bool shares_features() const { return part != nullptr && part->self() != GraphPart::kNone; }

  // Does everything that takes time, memory or disk space. If it throws, nothing has changed.
  void prepare(const Delta& delta);
  // Called instead of `commit`.
  void abandon() noexcept;
  // The caller must hold `lock` exclusively. The work is proportional to the delta and needs no memory: `prepare` has
  // already allocated everything that grows with the graph.
  void commit(const Delta& delta) noexcept;
  // Call it after `commit`, once all readers that held `lock` before the commit have released it; directly after the
  // commit is late enough. It takes `lock` briefly if memory has to be compacted, one step for each batch. It gives
  // back working memory of this batch that is much larger than other batches need.
  void settle() noexcept;

  // The same three phases for a growth of an undivided graph (graph_growth.cc). Indices of types and nodes stay as they
  // are, and no row in use changes in its old columns.
  void prepare_growth(const GraphGrowth& growth);
  void abandon_growth() noexcept;
  void commit_growth() noexcept;
  void settle_growth() noexcept;
  // Keeps rows of the first `width` columns beside the features, for readers of these alone. Takes `lock` briefly.
  void keep_narrower(uint32_t node_type, size_t width);

  // Bytes that samplers (sampling.h) keep for their next samples.
  mutable std::atomic<size_t> sampling_bytes{0};
  // Bytes of the list of edge changes that is passed to the store, as of the last batch.
  size_t updates_bytes() const { return updates_bytes_; }

  // The edges of a type whose time is before `horizon`, sorted by source (an undirected edge: by its smaller end),
  // those of one source in the order of a scan. It reads only the blocks of nodes (earliest_times.h) that have had such
  // an edge since they were last read, and all blocks the first time after the type's bounds were forgotten. Only the
  // one writer may call it, between batches. Of a part: the edges of the nodes that it owns.
  std::vector<EdgeName> expired(uint32_t edge_type, double horizon);

  // Loads the nodes of a type: their ids and free indices, and the rows of their features, without padding: of all
  // indices; of a part that holds some alone, of none. Throws std::runtime_error, which names what does not fit; then
  // the graph is unusable.
  void load_nodes(uint32_t node_type, std::vector<int64_t> ids, std::vector<uint32_t> free, const float* values,
                  size_t rows, size_t width);
  // Loads the features of these nodes, ascending, which a part holds from then on. Throws as `load_nodes`, which comes
  // first.
  void load_held_features(uint32_t node_type, std::span<const uint32_t> held, const float* values, size_t rows,
                          size_t width);
  // Loads the times of the features of all indices; call it after the nodes and `latest_time` are loaded. Throws as
  // `load_nodes`.
  void load_feature_times(uint32_t node_type, std::vector<double> times);
  // Loads the edges of a type as their store saved them; call it after the nodes of both ends and `latest_time` are
  // loaded. Throws std::runtime_error if they do not fit together, or an end is not a node; then the graph is unusable.
  template <class Saved>
  void load_edges(uint32_t edge_type, const Saved& out, const Saved& in, size_t num_edges) {
    EdgeType& type = edges[edge_type];
    const size_t sources = nodes[type.spec.source_type].ids.capacity();
    type.store->resize(sources, nodes[type.spec.target_type].ids.capacity());
    type.store->load(out, in, num_edges);
    check_lists(type);
    if (part != nullptr) count_loaded(edge_type);
    if (!type.spec.expires) return;
    type.earliest.resize(sources);
    type.earliest.forget();
  }
  // Loads the rows of edge features, without padding, and the list of free rows; call it after the edges are loaded.
  // Throws std::runtime_error if rows and edges do not fit together.
  void load_edge_features(uint32_t edge_type, const float* values, size_t rows, size_t width,
                          std::vector<uint32_t> free);

 private:
  struct Grown;

  void settle_tables() noexcept;
  void check_lists(const EdgeType& type) const;
  void count_loaded(uint32_t edge_type);
  static void note_times(EdgeType* type, const std::vector<EdgeChange>& changes, size_t capacity);

  std::string features_directory_;
  std::unique_ptr<Grown> grown_;  // between `prepare_growth` and `settle_growth`
  std::unique_ptr<ThreadPool> pool_;
  std::vector<EdgeUpdate> updates_;
  size_t need_ = 0;  // of the current batch, in updates
  RecentNeeds needs_{size_t{1} << 12};
  std::atomic<size_t> updates_bytes_{0};
};

}  // namespace livegnn
