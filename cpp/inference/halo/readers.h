// Which other parts read the rows of a node that this part owns: those that own a node to which it sends.
//
//   edges that the part keeps ─► how many of a node's messages go to each other part ─► the parts that read it
//
// Counted once from the edges that the graph has, and then from those that batches change, so that a batch takes time
// in proportion to these. Also counts the edges of the whole graph that belong to this part, so that each belongs to
// one: to the owner of the receiving node, an undirected edge to that of the smaller index.
//
// Invariant: between batches, a count is never 0.
// Thread safety: one thread.
#pragma once

#include <tsl/robin_map.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "hashing/mix_hash.h"
#include "store/graph.h"
#include "store/owners_after.h"

namespace livegnn {

class Readers {
 public:
  static constexpr size_t kMostParts = 64;

  struct Begun {
    uint32_t node;
    uint64_t parts;  // bit by part
  };

  // `has_direction`: by edge type, and again for reversed edges, whether messages go along them. Requires: a part of a
  // graph.
  Readers(const Graph& graph, std::vector<bool> has_direction);

  // Takes in what a batch changes. If it throws, call `abandon`.
  void prepare(const Delta& delta, const OwnersAfter& owners);
  // The parts that read a node before or after the batch.
  uint64_t of(uint32_t node_type, uint32_t node) const;
  // The nodes that parts begin to read with the batch.
  std::span<const Begun> begun(uint32_t node_type) const { return begun_[node_type]; }
  // Edges that belong to this part before the batch, and those that the batch changes.
  size_t edges(uint32_t edge_type) const { return edges_[edge_type] + changed_edges_[edge_type]; }

  void commit() noexcept;
  void abandon() noexcept;

 private:
  using Counts = tsl::robin_map<uint64_t, uint32_t, MixHash>;
  struct Change {
    uint32_t node_type, node, part, count;  // count: after the batch
  };
  struct Step {
    uint64_t key;
    int difference;
  };

  static uint64_t key_of(uint32_t node, uint32_t part) { return uint64_t{node} << 16 | part; }
  void count_all();
  void collect(uint32_t edge_type, const Delta& delta, const OwnersAfter& owners);
  // Calls `visit(node type, node, part)` for each own end of an edge whose messages go to another part.
  template <class Visit>
  void for_each_reader(uint32_t edge_type, uint32_t source, uint32_t target, uint32_t from, uint32_t to,
                       const Visit& visit) const;
  // Whether an edge belongs to this part, by the owners of its ends.
  bool is_counted(uint32_t edge_type, uint32_t source, uint32_t target, uint32_t from, uint32_t to) const;
  void count(uint32_t node_type);

  const Graph* graph_;
  std::vector<bool> has_direction_;
  std::vector<Counts> counts_;                // by node type; by node and part
  std::vector<std::vector<uint64_t>> masks_;  // by node type and node: the parts that read it
  std::vector<size_t> edges_;                 // by edge type
  // Of the batch that is prepared.
  std::vector<std::vector<Step>> steps_;
  std::vector<Change> changes_;
  std::vector<std::vector<Begun>> begun_;
  std::vector<tsl::robin_map<uint32_t, uint64_t, MixHash>> new_readers_;
  std::vector<size_t> changed_edges_, edges_after_;
};

}  // namespace livegnn
