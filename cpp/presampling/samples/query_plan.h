// A k-hop sampling query as one-hop queries (Helios, section 5.1), checked against the types of a graph.
//
//   seeds ─► query 0 (hop 0) ─► query 2 (hop 1) ─► ..      the neighbours that a query samples
//        └─► query 1 (hop 0) ─┘                            are the key nodes of its children
//
// Invariants: queries are in topological order, so there is no cycle; all parents of a query have the same hop, which
// is one less than its own; the neighbours of each parent have the type of its key nodes. Thread safety: a plan never
// changes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "presampling/tables/cell_heap.h"

namespace livegnn {

// What a plan asks of an edge type.
struct PlannedEdgeType {
  uint32_t source_type, target_type;
  bool undirected = false, weighted = false, timed = false;
};

inline constexpr int32_t kSeeds = -1;

// A one-hop query as a caller writes it.
struct OneHopRequest {
  uint32_t edge_type;
  bool incoming;  // neighbours are the sources of in-edges; else the targets of out-edges
  int64_t count;  // the fan-out
  SampleBy by = SampleBy::kUniform;
  std::vector<int32_t> parents{kSeeds};  // earlier one-hop queries whose neighbours are the key nodes, or kSeeds
  bool weighted = false, timed = false;  // samples carry the weights, or times, of their edges
};

struct OneHopQuery {
  uint32_t edge_type;
  bool incoming, undirected;  // of an undirected type, `incoming` is false
  uint32_t count;
  SampleBy by;
  bool weighted, timed;
  bool towards_key;                  // whether a sample has its edges from the neighbour to the key node
  uint32_t hop;                      // from 0
  std::vector<uint32_t> parents;     // none: the key nodes are the seeds
  std::vector<uint32_t> children;    // later queries whose key nodes are the neighbours of this one
  uint32_t key_type, neighbor_type;  // types of nodes

  bool of_seeds() const { return parents.empty(); }
};

class QueryPlan {
 public:
  static constexpr size_t kMaxQueries = 1024;

  // Throws std::invalid_argument that says what is wrong with which query.
  QueryPlan(uint32_t seed_type, size_t num_node_types, std::span<const PlannedEdgeType> edge_types,
            std::span<const OneHopRequest> requests);

  uint32_t seed_type() const { return seed_type_; }
  size_t num_node_types() const { return num_node_types_; }
  size_t size() const { return queries_.size(); }
  const OneHopQuery& operator[](size_t i) const { return queries_[i]; }
  const std::vector<OneHopQuery>& queries() const { return queries_; }
  uint32_t num_hops() const { return num_hops_; }

  // How the cells of a query are drawn.
  CellOptions cell_options(size_t i, uint64_t seed) const {
    const OneHopQuery& query = queries_[i];
    return {query.by, query.count, query.weighted, query.timed, seed, i};
  }
  // How many look-ups one seed takes at most: cells of key nodes, and features of all nodes of the sample.
  uint64_t max_sample_lookups() const { return sample_lookups_; }
  uint64_t max_feature_lookups() const { return feature_lookups_; }

 private:
  OneHopQuery checked(size_t i, const OneHopRequest& request, std::span<const PlannedEdgeType> edge_types) const;
  void count_lookups();

  uint32_t seed_type_;
  size_t num_node_types_;
  std::vector<OneHopQuery> queries_;
  uint32_t num_hops_ = 0;
  uint64_t sample_lookups_ = 0, feature_lookups_ = 0;
};

}  // namespace livegnn
