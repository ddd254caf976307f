// The rows of values that an engine keeps between batches, and the nodes that have them.
//
// They are constant for the parts that prepare a batch. They change when they are initialized or loaded, when a batch
// is committed, and when a lazy engine settles.
//
// Layout: values that are read together are stored side by side in the rows of one table, their slab. Each maximum is
// stored with the number of messages that equal it, as a further value, whose rows hold uint32 bits instead of floats:
// after a ReLU whole neighbourhoods tie at 0, and a hub may have more in-edges than the 2^24 up to which a float counts
// exactly. No operation calculates with such rows; they are copied and compared as bytes.
//
// Thread safety: one writer; `commit` runs while it holds the graph's lock exclusively, and readers share that lock.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "inference/evaluation/rows.h"
#include "inference/rows/changes.h"
#include "inference/rows/kept_nodes.h"
#include "memory/held_rows.h"
#include "program/program.h"
#include "store/graph.h"

namespace livegnn {

class ThreadPool;

struct RowState {
  // If `keep_degree` is not 0, aggregates are kept only for nodes with that many in-edges; then each must have its own
  // slab, and all other values must be derived. Rows are stored in files in `directory`, so that they may outgrow
  // memory; an empty name means memory. Throws std::system_error.
  RowState(const Graph& graph, Program program, const std::string& directory, size_t keep_degree);
  RowState(const RowState&) = delete;
  RowState& operator=(const RowState&) = delete;

  const Graph& graph;
  Program program;
  const size_t keep_degree;
  const uint64_t serial;  // unique among all states, past and present
  std::vector<Table> slabs;
  std::vector<uint32_t> columns;              // by value: its first column in its slab
  std::vector<int32_t> partial;               // by value: the propagation whose kept nodes alone have rows; -1 if none
  std::vector<bool> has_direction;            // by direction: a reverse direction exists only if a step uses it
  std::vector<KeptNodes> kept_nodes;          // by direction
  std::vector<std::optional<HeldRows>> held;  // by slab, of a part of a graph; none if rows are too narrow to save much
  std::vector<float> zeros;                   // as many as the widest row needs

  // Whether the value has a row for every node.
  bool is_stored(uint32_t value) const { return program.values[value].derived < 0 && partial[value] < 0; }
  // The rows of a value. Only the owner of the value may write to them: the graph's features do not belong to the
  // engine, but those of other parts' nodes, which it receives. A value whose rows are not all kept has none here; use
  // `stored_rows`.
  Rows rows(uint32_t value) const;
  // Whether the rows of an index are computed here: of a part of a graph, those of its own nodes.
  bool is_foreign(uint32_t node_type, uint32_t node) const {
    return graph.part != nullptr && !graph.part->owns(node_type, node);
  }
  bool computes(uint32_t node_type, uint32_t node) const {
    return graph.nodes[node_type].ids.in_use(node) && !is_foreign(node_type, node);
  }
  // The row of a stored value; zeros for a node that was added since.
  const float* stored_row(uint32_t value, uint32_t node) const {
    const Rows all = rows(value);
    return node < all.count ? all.row(node) : zeros.data();
  }
  Rows kept_rows(uint32_t value) const;  // by slot, if the value is partial
  uint32_t slot_of(uint32_t value, uint32_t node) const;
  // The node that has a slot of an aggregate; kNoIndex if there is none.
  uint32_t node_at(const PropagateStep& step, size_t slot) const;
  // The slots of all kept rows of a value, by node.
  std::vector<uint32_t> slots(uint32_t value) const;
  // The kept nodes of a direction, by node: rows and errors of partial values are saved in this order.
  std::vector<uint32_t> kept_nodes_of(size_t direction) const;

  // How many rows of a value are kept.
  size_t count(uint32_t value) const;
  // How many rows of an aggregate will be kept after a batch.
  size_t count_after(const PropagateStep& step, const Delta& delta, const BatchChanges& batch) const;

  // Makes room for the batch that is about to be committed. If it throws, call `release` next; nothing has changed.
  void reserve(const Delta& delta, const BatchChanges& batch);
  void commit(const Delta& delta, const BatchChanges& batch, ThreadPool* pool) noexcept;
  void release() noexcept;

  // Lists by direction for a graph that gets edge types: `prepare_growth` makes room, `commit_growth` follows that of
  // the graph.
  void prepare_growth(const GraphGrowth& growth);
  void commit_growth() noexcept;

  // Resets all rows to empty ones, as many as the graph has nodes; in a part, as many nodes as hold rows.
  void clear();
  bool is_laid_out_as(const RowState& other) const;
  // Takes all rows of an equally laid out state, without copying them, and leaves those that this one kept.
  void take(RowState* from) noexcept;

  // Returns false and does nothing unless there is a row for every index of the graph.
  bool load_rows(uint32_t value, const float* from, size_t count, size_t width);
  // Call it before rows are loaded. Returns false and does nothing unless the nodes are sorted
  // and those that keep aggregates by their degrees.
  bool load_kept_nodes(size_t direction, std::span<const uint32_t> nodes);

 private:
  // Whether an edge leads from the node, along which messages are sent.
  bool sends(uint32_t node_type, uint32_t node) const;
  // Makes the rows of a part's slab anew, of the nodes that it owns and of those whose rows it reads.
  void hold(uint32_t slab, uint32_t node_type);
  void reserve_held(const Delta& delta, const BatchChanges& batch);
  void find_loosened(const BatchChanges& batch);
  // Features of other parts' nodes. The graph has committed the batch.
  void commit_received(uint32_t value, const Changes& changes) noexcept;

  std::vector<bool> shared_;  // by slab: of a part that reads rows of others' nodes in it
  // By node type, of other parts: nodes that lost an edge to an own one in the last batch, and in the one that is
  // prepared. If they have none left, the next batch takes back their slots.
  std::vector<std::vector<uint32_t>> loosened_, loosened_next_;
};

}  // namespace livegnn
