// LiveGNN as a contestant: a graph of one node type and one edge type, directed and in out-lists alone, as the peers
// have it, or with the in-lists that an engine needs. Its batches go to the store, its draws and subgraphs to the
// sampler.
//
// Thread safety: as batch.h says of contestants, with one reader at a time; `settle` when the readers that were there
// before `commit` are gone.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "batch.h"
#include "sampler.h"
#include "sampling/neighbor_draws.h"
#include "sampling/sampling.h"
#include "store/graph.h"

namespace livegnn::bench {

class LiveStore {
 public:
  LiveStore(size_t nodes, bool weighted, size_t threads, SamtreeOptions samtree, bool in_lists)
      : graph_({0}, {{0, 0, options_of(weighted, samtree, in_lists)}}),
        store_(*graph_.edges[0].store),
        sampler_(graph_),
        threads_(threads) {
    std::vector<int64_t> ids(nodes);
    std::iota(ids.begin(), ids.end(), 0);
    graph_.nodes[0].ids.restore(std::move(ids), {});
    store_.resize(nodes, nodes);
  }

  void prepare(const Batch& batch, ThreadPool* pool) {
    updates_.resize(batch.size);
    for (size_t i = 0; i < batch.size; ++i) {
      updates_[i] = {batch.sources[i], batch.targets[i], !batch.removes(i), {batch.weight(i), 0.0, kNoRow}};
    }
    store_.prepare(updates_, pool);
  }
  void commit(const Batch&, ThreadPool*) { store_.commit(); }
  void settle() { store_.settle(); }
  bool prepare_compaction() { return store_.prepare_compaction(); }

  size_t num_edges() const { return store_.num_edges(); }
  // The lists, what batches are prepared in (kept from one to the next), and the nodes' ids.
  size_t bytes() const { return bytes_at_rest() + store_.memory().batches + updates_.capacity() * sizeof(EdgeUpdate); }
  size_t bytes_at_rest() const { return store_.memory().lists + graph_.nodes[0].ids.bytes(); }
  void check() const { store_.check(); }

  template <class Visit>
  void scan(uint32_t node, Visit&& visit) const {
    store_.scan_out(node, [&](const NeighborSpan& span) {
      for (size_t i = 0; i < span.size; ++i) visit(span.ids[i], span.weights != nullptr ? span.weights[i] : 1.0f);
    });
  }

  void sample(std::span<const uint32_t> seeds, uint32_t k, bool by_weight, uint64_t seed, uint32_t* to) {
    const NeighborStrategy strategy{by_weight ? SampleBy::kWeight : SampleBy::kUniform, true, static_cast<int32_t>(k)};
    draws_.draw({&store_.out(), strategy, {}, seed, 0}, seeds, {}, 0, &drawn_);
    const uint32_t* from = drawn_.ids.data();
    for (size_t i = 0; i < seeds.size(); ++i, to += k) {
      const uint32_t* end = from + drawn_.counts[i];
      std::fill(std::copy(from, end, to), to + k, kNobody);
      from = end;
    }
  }

  livegnn::Subgraph subgraph(std::span<const uint32_t> seeds, std::span<const uint32_t> fan_outs, uint64_t seed,
                             Numbering*, ThreadPool*) {
    const std::vector<int64_t> ids(seeds.begin(), seeds.end());
    SubgraphRequest request;
    request.seeds = {{0, ids}};
    request.fan_outs = {{0, std::vector<int32_t>(fan_outs.begin(), fan_outs.end())}};
    request.by = SampleBy::kWeight;
    request.incoming = false;
    request.seed = seed;
    request.threads = threads_;
    return sampler_.subgraph(request);
  }

  // As the peers' subgraphs: the row is the neighbour, the column the node that it was drawn for.
  static Subgraph columns_of(const livegnn::Subgraph& from) {
    const auto copied = [](const Column<int64_t>& column) {
      return std::vector<uint32_t>(column.data(), column.data() + column.size());
    };
    return {copied(from.nodes[0].ids), copied(from.edges[0].col), copied(from.edges[0].row)};
  }

 private:
  static EdgeOptions options_of(bool weighted, SamtreeOptions samtree, bool in_lists) {
    EdgeOptions options;
    options.columns.weighted = weighted;
    options.in_lists = in_lists;
    options.samtree = samtree;
    return options;
  }

  Graph graph_;
  GraphStore& store_;
  Sampler sampler_;
  size_t threads_;
  std::vector<EdgeUpdate> updates_;
  NeighborDraws draws_;
  NeighborColumns drawn_;
};

}  // namespace livegnn::bench
