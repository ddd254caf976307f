// Samples of the live graph: nodes, neighbours of many nodes, subgraphs (PlatoD2GL, section III: node, neighbour and
// subgraph sampling).
//
// A subgraph has hops: hop h draws neighbours for the nodes that hop h - 1 added, for every edge type that has a
// fan-out, or as one-hop queries say (one_hops.h), each with its own direction and strategy. Nodes are numbered in the
// order in which they are added, edges are pairs of these numbers, all as in PyG's SamplerOutput. Several threads draw,
// in blocks of a fixed number of nodes; one thread numbers.
//
// Invariant: a result is a function of graph, request and seed; it does not depend on the number of threads.
// Thread safety: any number of samples at once, each with its own memory, which is kept for later samples. The caller
// must hold `Graph::lock` shared during a call, so that the whole sample is from before a batch or after it.
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

#include "memory/frame.h"
#include "sampling/neighbor_draws.h"
#include "sampling/one_hops.h"
#include "store/graph.h"

namespace livegnn {

// Memory that several threads write once; it is not zeroed first.
template <class T>
class Column {
 public:
  Column() = default;
  explicit Column(size_t size) { open(size); }
  // So many elements from now on, whatever they are. Memory that is large enough is used again.
  void open(size_t size) {
    if (data_ == nullptr || room_ < size) {
      data_ = std::make_unique_for_overwrite<T[]>(size);
      room_ = size;
    }
    size_ = size;
  }
  size_t size() const { return size_; }
  T* data() { return data_.get(); }
  const T* data() const { return data_.get(); }
  T& operator[](size_t i) { return data_[i]; }
  const T& operator[](size_t i) const { return data_[i]; }
  T* release() { return data_.release(); }

 private:
  std::unique_ptr<T[]> data_;
  size_t size_ = 0, room_ = 0;
};

enum class BadSample { kUnknownNode, kEdgeType, kRequest };

// An invalid request; the bindings write the message. `type` and `position` are the node type and position of an
// unknown seed, or the edge type that lacks what was requested.
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
  bool incoming = true;  // draw sources of in-edges
  NeighborStrategy strategy;
  EdgeColumns wanted;             // columns that the type lacks stay empty
  std::span<const double> until;  // empty, one bound, or one for each id
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
  // Either fan-outs, with `by`, `replace` and `incoming` for all of them; or one-hop queries, in topological order.
  std::vector<FanOut> fan_outs;
  SampleBy by = SampleBy::kUniform;
  bool replace = false;
  bool incoming = true;
  std::vector<OneHop> one_hops;
  bool disjoint = false;          // a node occurs once for each seed that reaches it, instead of once for all
  bool attributes = false;        // also return features, weights and times, as of the draw
  std::span<const double> until;  // empty, one bound, or, if disjoint, one for each seed in the order of `seeds`
  uint64_t seed = 0;
  size_t threads = 1;
};

struct Subgraph {
  struct Nodes {
    Column<int64_t> ids;
    Column<int64_t> batch;             // if disjoint: the seed from which a node was reached
    std::vector<int64_t> num_sampled;  // seeds, then for each hop
    Column<float> features;            // if `attributes`: rows, without padding
  };
  struct Edges {
    uint32_t edge_type = 0;
    Column<int64_t> row, col;             // source and target
    std::optional<Column<int64_t>> edge;  // rows of features, if the type has any
    std::vector<int64_t> num_sampled;     // for each hop
    Column<float> weight, features;       // if `attributes`, and if the type has any
    Column<double> time;
  };

  std::vector<Nodes> nodes;              // by node type
  std::vector<Edges> edges;              // in the order of the fan-outs; of one-hop queries: by edge type
  std::vector<Column<int64_t>> inverse;  // in the order of the seeds: position of each seed among the nodes
};

struct SampleScratch;  // working memory of one sample

class Sampler {
 public:
  explicit Sampler(const Graph& graph);
  Sampler(const Sampler&) = delete;
  Sampler& operator=(const Sampler&) = delete;
  ~Sampler();

  // All throw SampleError. Ids are internal numbers (id_map.h).
  Column<int64_t> nodes(const NodeRequest& request) const;
  NeighborSample neighbors(const NeighborRequest& request, std::span<const int64_t> ids);
  Subgraph subgraph(const SubgraphRequest& request);
  // Of a graph that is a part: answers what the asker of a sample of the whole graph wants of it (part_letters.h).
  // Throws std::runtime_error for what no asker sends.
  Frame answer(std::span<const std::byte> question, size_t threads);

  struct Lease;  // of working memory

 private:
  // Adds this number of bytes to `Graph::sampling_bytes`.
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
