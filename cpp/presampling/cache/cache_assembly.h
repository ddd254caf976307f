// A sample of several hops, put together from a serving worker's cache alone (Helios, section 6).
//
// A node whose features were not published has zeros. Edges of a type carry weights, or times, if all one-hop queries
// over it do.
//
// If the cache has evicted what a sample needs, `missing` names it: the sample is not the whole one.
//
// Invariants: those of sample_walk.h; the features of each node are looked up once.
// Thread safety: an assembly belongs to one thread. The cache must not change during a call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "presampling/cache/sample_cache.h"
#include "presampling/samples/sample_walk.h"
#include "sampling/sampling.h"

namespace livegnn {

class CacheAssembly {
 public:
  struct CarriedColumns {
    uint32_t edge_type;
    bool weighted, timed;
  };

  explicit CacheAssembly(const SampleCache& cache);

  // What the edges of a sample carry, by their place among the edge types of the plan.
  static std::vector<CarriedColumns> carried_by(const QueryPlan& plan);

  // `ids`: nodes of the seed type; one of which nothing is known has no neighbours.
  Subgraph sample(std::span<const int64_t> ids, bool attributes) {
    Subgraph out;
    sample(ids, attributes, &out);
    return out;
  }
  // The same in place of an earlier sample of this assembly with the same `attributes`, whose memory is used again.
  void sample(std::span<const int64_t> ids, bool attributes, Subgraph* out);

  // Of the last sample.
  const Lookups& lookups() const { return lookups_; }
  const std::vector<EntryKey>& missing() const { return missing_; }
  size_t bytes() const { return walk_.bytes() + bytes_of(carried_) + bytes_of(missing_); }

 private:
  void write_nodes(bool attributes, Subgraph* out);
  void write_edges(bool attributes, Subgraph* out) const;

  const SampleCache& cache_;
  SampleWalk<uint64_t> walk_;  // of ids
  std::vector<CarriedColumns> carried_;
  Lookups lookups_;
  std::vector<EntryKey> missing_;
};

}  // namespace livegnn
