// A peer on several threads: each thread has the sources that it holds for itself, in a structure of its own, so a
// batch needs no locks.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "batch.h"
#include "sampler.h"
#include "threads/parallel.h"

namespace livegnn::bench {

template <class Shard>
class Peer {
 public:
  Peer(size_t nodes, bool weighted, size_t threads) {
    const auto shards = static_cast<uint32_t>(threads);
    for (uint32_t i = 0; i < shards; ++i) {
      shards_.push_back(std::make_unique<Shard>(Share{i, shards}, nodes, weighted));
    }
  }

  void prepare(const Batch& batch, ThreadPool* pool) {
    pool->run(shards_.size(), kAlways, [&](size_t i) { shards_[i]->prepare(batch); });
  }
  void commit(const Batch& batch, ThreadPool* pool) {
    pool->run(shards_.size(), kAlways, [&](size_t i) { shards_[i]->commit(batch); });
  }
  void settle() {}
  bool prepare_compaction() { return false; }

  size_t num_edges() const {
    return sum([](const Shard& shard) { return shard.num_edges(); });
  }
  size_t bytes() const {
    return sum([](const Shard& shard) { return shard.bytes(); });
  }
  size_t bytes_at_rest() const {
    return sum([](const Shard& shard) {
      if constexpr (requires { shard.bytes_at_rest(); }) {
        return shard.bytes_at_rest();
      } else {
        return shard.bytes();
      }
    });
  }
  void check() const {}

  void sample(std::span<const uint32_t> seeds, uint32_t k, bool by_weight, uint64_t seed, uint32_t* to) const {
    bench::sample(*this, seeds, k, by_weight, seed, to);
  }
  Subgraph subgraph(std::span<const uint32_t> seeds, std::span<const uint32_t> fan_outs, uint64_t seed,
                    Numbering* numbering, ThreadPool* pool) const {
    return sample_subgraph(*this, seeds, fan_outs, seed, numbering, pool);
  }

  static Subgraph columns_of(Subgraph graph) { return graph; }

  typename Shard::View view(uint32_t node) const { return shards_[node % shards_.size()]->view(node); }
  template <class Visit>
  void scan(uint32_t node, Visit&& visit) const {
    view(node).scan(visit);
  }

 private:
  static constexpr double kAlways = 1e9;  // nanoseconds: worth waking a thread for

  template <class Count>
  size_t sum(const Count& count) const {
    size_t total = 0;
    for (const auto& shard : shards_) total += count(*shard);
    return total;
  }

  std::vector<std::unique_ptr<Shard>> shards_;
};

}  // namespace livegnn::bench
