// Samples of the live graph: nodes, neighbours of many nodes, subgraphs (PlatoD2GL, section III: node, neighbour and
// subgraph sampling).
//
// A subgraph has hops: hop h draws neighbours for the nodes that hop h - 1 brought in, of every edge type that has a
// fan-out. Nodes are numbered in the order in which they come, edges are pairs of these numbers, all as in PyG's
// SamplerOutput. Drawing goes on in blocks of a fixed number of nodes on several threads, numbering on one.
//
// Invariant: a result is a function of graph, request and seed; the number of threads has no part in it.
// Thread safety: any number of samples at once, each with memory of its own, which is kept for later ones. The caller
// shares `Graph::lock` during a call: the whole of a sample is from before a batch or after it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "sampling/neighbor_draws.h"
#include "store/graph.h"

namespace livegnn {

// Memory that is written once, by several threads: not zeroed before.
template <class T>
class Column {
 public:
  Column() = default;
  explicit Column(size_t size) : data_(std::make_unique_for_overwrite<T[]>(size)), size_(size) {}
  size_t size() const { return size_; }
  T* data() { return data_.get(); }
  const T* data() const { return data_.get(); }
  T& operator[](size_t i) { return data_[i]; }
  const T& operator[](size_t i) const { return data_[i]; }
  T* release() { return data_.release(); }

 private:
  std::unique_ptr<T[]> data_;
  size_t size_ = 0;
};

enum class BadSample { kUnknownNode, kEdgeType, kRequest };

// What is wrong with a request, for the bindings to word: the node type and position of a seed that is unknown, or the
// edge type that does not have what was asked for.
class SampleError : public std::invalid_argument {
 public:
  SampleError(BadSample kind, const std::string& what, uint32_t type = 0, size_t position = 0)
      : std::invalid_argument(what), kind(kind), type(type), position(position) {}
  BadSample kind;
  uint32_t type;
  size_t position;
};

enum class NodesBy : uint8_t { kUniform, kDegree, kWeight };  // kWeight: the sum of the weights of a node's edges

struct NodeRequest {
  uint32_t type = 0;  // of nodes if by kUniform, else of edges, whose sources (`incoming`: targets) are drawn
  NodesBy by = NodesBy::kUniform;
  bool incoming = false;
  bool replace = false;
  size_t count = 0;
  uint64_t seed = 0;
};

struct NeighborRequest {
  uint32_t edge_type = 0;
  bool incoming = true;  // neighbours that point at a node
  NeighborStrategy strategy;
  EdgeColumns wanted;             // those that the type lacks stay empty
  std::span<const double> until;  // nothing, one bound, or one for each id
  uint64_t seed = 0;
  size_t threads = 1;
};

struct NeighborSample {
  Column<int64_t> rowptr;  // [ids + 1]
  Column<int64_t> ids;
  Column<float> weight;
  Column<double> time;
  Column<int64_t> edge;  // rows of features
};

struct SubgraphRequest {
  struct Seeds {
    uint32_t node_type;
    std::span<const int64_t> ids;
  };
  struct FanOut {
    uint32_t edge_type;
    std::vector<int32_t> counts;  // for each hop
  };

  std::vector<Seeds> seeds;
  std::vector<FanOut> fan_outs;
  SampleBy by = SampleBy::kUniform;
  bool replace = false;
  bool disjoint = false;  // a node is one for each seed that it is reached from, not one for all of them
  bool incoming = true;
  bool attributes = false;        // also what nodes and edges carry, as it was when they were drawn
  std::span<const double> until;  // nothing, one bound, or, if disjoint, one for each seed in the order of `seeds`
  uint64_t seed = 0;
  size_t threads = 1;
};

struct Subgraph {
  struct Nodes {
    Column<int64_t> ids;
    Column<int64_t> batch;             // if disjoint: the seed that a node was reached from
    std::vector<int64_t> num_sampled;  // seeds, then for each hop
    Column<float> features;            // if `attributes`: rows, without padding
  };
  struct Edges {
    Column<int64_t> row, col;             // source and target
    std::optional<Column<int64_t>> edge;  // rows of features, where the type has any
    std::vector<int64_t> num_sampled;     // for each hop
    Column<float> weight, features;       // if `attributes`, where the type has any
    Column<double> time;
  };

  std::vector<Nodes> nodes;              // by node type
  std::vector<Edges> edges;              // as the fan-outs
  std::vector<Column<int64_t>> inverse;  // as the seeds: where each of them stands among the nodes
};

struct SampleScratch;  // what one sample works in

class Sampler {
 public:
  explicit Sampler(const Graph& graph);
  Sampler(const Sampler&) = delete;
  Sampler& operator=(const Sampler&) = delete;
  ~Sampler();

  // All throw SampleError. Ids are numbers inside (id_map.h).
  Column<int64_t> nodes(const NodeRequest& request) const;
  NeighborSample neighbors(const NeighborRequest& request, std::span<const int64_t> ids);
  Subgraph subgraph(const SubgraphRequest& request);

 private:
  struct Lease;

  // `Graph::sampling_bytes` grows by so much.
  void count(int64_t bytes) {
    bytes_ += bytes;
    graph_.sampling_bytes.fetch_add(static_cast<size_t>(bytes), std::memory_order_relaxed);
  }

  const Graph& graph_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<SampleScratch>> idle_;
  int64_t bytes_ = 0;  // of `idle_`
};

}  // namespace livegnn
