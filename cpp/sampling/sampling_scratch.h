// Working memory of one sample, and the parts that all kinds of samples share.
//
// Invariant: only memory outlives a sample, no data.
// Thread safety: a SampleScratch belongs to one sample at a time; `draw_blocks` uses the sample's own threads.
#pragma once

#include <tsl/robin_map.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "hashing/mix_hash.h"
#include "memory/recent_needs.h"
#include "sampling/sampling.h"
#include "threads/parallel.h"

namespace livegnn {

// The threads of one sample. They are started only if there is enough work, because most samples are small. They do not
// outlive the sample, so that a process may fork between two samples (as loaders of training data do).
class Workers {
 public:
  explicit Workers(size_t threads) : threads_(threads) {}

  template <class Body>
  void run(size_t blocks, double nanoseconds, const Body& body) {
    if (!pool_ && threads_ > 1 && blocks > 1 && nanoseconds > kWorthStarting) pool_.emplace(threads_);
    if (pool_) {
      pool_->run(blocks, nanoseconds, body);
    } else {
      for (size_t i = 0; i < blocks; ++i) body(i);
    }
  }

 private:
  static constexpr double kWorthStarting = 300'000;

  size_t threads_;
  std::optional<ThreadPool> pool_;
};

// The number of each node in a sample, in the order in which nodes are added. A lookup costs one read of a dense array,
// which is not cleared between samples: a stamp says which sample an entry belongs to.
class Numbering {
 public:
  // `disjoint`: each seed has its own copy of a node; then a hash map replaces the array.
  void begin(size_t capacity, bool disjoint) {
    disjoint_ = disjoint;
    if (disjoint) return;
    if (stamps_.size() < capacity) stamps_.resize(capacity, 0);
    if (++epoch_ == 0) {
      std::fill(stamps_.begin(), stamps_.end(), 0);
      epoch_ = 1;
    }
  }

  // Call it after a sample. Clearing a map takes time proportional to its buckets, so a map that a large sample left
  // behind is freed. Returns how many bytes were given back.
  size_t end() {
    const bool outgrown = needs_.outgrown(by_seed_.size());
    if (!outgrown && by_seed_.bucket_count() <= 8 * by_seed_.size() + 64) {
      by_seed_.clear();
      return 0;
    }
    const size_t held = bytes();
    give_back(&by_seed_);
    return held;
  }
  size_t bytes() const {
    return bytes_of(stamps_) + by_seed_.bucket_count() * (sizeof(uint64_t) + 2 * sizeof(uint32_t));
  }

  void prefetch(uint32_t node) const {
    if (!disjoint_) __builtin_prefetch(&stamps_[node], 1);
  }

  // Returns the number of a node; a node without one gets `next`.
  uint32_t number(uint32_t node, uint32_t seed, uint32_t next) {
    if (disjoint_) return by_seed_.try_emplace(uint64_t{seed} << 32 | node, next).first->second;
    uint64_t& stamp = stamps_[node];
    if (stamp >> 32 != epoch_) stamp = uint64_t{epoch_} << 32 | next;
    return static_cast<uint32_t>(stamp);
  }

 private:
  bool disjoint_ = false;
  uint32_t epoch_ = 0;
  std::vector<uint64_t> stamps_;  // epoch, number
  tsl::robin_map<uint64_t, uint32_t, MixHash> by_seed_;
  RecentNeeds needs_{size_t{1} << 12};  // in entries of `by_seed_`
};

struct SampleScratch {
  static constexpr size_t kBlockNodes = 256;

  static size_t num_blocks(size_t nodes) { return (nodes + kBlockNodes - 1) / kBlockNodes; }

  // Draws for `nodes`, in blocks from `first_block` on. `until(i)`: the bound of node i; `bounds`: the number of
  // bounds: 0, 1 (for all) or one per node.
  template <class Until>
  void draw_blocks(const NeighborDraws::Task& task, std::span<const uint32_t> nodes, size_t bounds, const Until& until,
                   size_t first_block, Places places, Workers* workers) {
    if (blocks.size() < first_block + num_blocks(nodes.size())) blocks.resize(first_block + num_blocks(nodes.size()));
    const double expected = task.strategy.count == NeighborStrategy::kAll ? 64 : std::min(task.strategy.count, 4096);
    workers->run(num_blocks(nodes.size()), static_cast<double>(nodes.size()) * (100 + 40 * expected),
                 [&](size_t block) {
                   const size_t begin = block * kBlockNodes, size = std::min(kBlockNodes, nodes.size() - begin);
                   double of_nodes[kBlockNodes];
                   const size_t some = bounds > 1 ? size : bounds;
                   for (size_t i = 0; i < some; ++i) of_nodes[i] = until(bounds > 1 ? begin + i : 0);
                   auto draws = take();
                   draws->draw(task, nodes.subspan(begin, size), {of_nodes, some}, places.from(begin),
                               &blocks[first_block + block]);
                   give(std::move(draws));
                 });
  }

  // Call it after a sample: gives back memory that is much larger than other samples need. Returns the number of bytes.
  size_t end() {
    size_t given_back = 0;
    for (Numbering& numbering : numberings) given_back += numbering.end();
    size_t need = indices.size();
    for (const NeighborColumns& block : blocks) need += block.counts.size() + block.ids.size();
    if (needs_.outgrown(need)) {
      given_back += bytes();
      give_back(&blocks);
      give_back(&indices);
      give_back(&idle_);
    }
    for (NeighborColumns& block : blocks) block.clear();
    indices.clear();
    return given_back;
  }
  size_t bytes() const {
    size_t bytes = bytes_of(blocks) + bytes_of(indices);
    for (const NeighborColumns& block : blocks) bytes += block.bytes();
    for (const Numbering& numbering : numberings) bytes += numbering.bytes();
    for (const auto& draws : idle_) bytes += draws->bytes();
    return bytes;
  }

  std::vector<NeighborColumns> blocks;
  std::vector<Numbering> numberings;  // by node type
  std::vector<uint32_t> indices;      // of seeds
  size_t counted = 0;                 // bytes that the sampler has counted

 private:
  std::unique_ptr<NeighborDraws> take() {
    std::lock_guard lock(mutex_);
    if (idle_.empty()) return std::make_unique<NeighborDraws>();
    auto draws = std::move(idle_.back());
    idle_.pop_back();
    return draws;
  }
  void give(std::unique_ptr<NeighborDraws> draws) {
    std::lock_guard lock(mutex_);
    idle_.push_back(std::move(draws));
  }

  std::mutex mutex_;
  std::vector<std::unique_ptr<NeighborDraws>> idle_;
  RecentNeeds needs_{size_t{1} << 16};  // in neighbours
};

// A scratch for the duration of one sample.
struct Sampler::Lease {
  explicit Lease(Sampler* sampler) : sampler(sampler) {
    std::lock_guard lock(sampler->mutex_);
    if (sampler->idle_.empty()) {
      scratch = std::make_unique<SampleScratch>();
    } else {
      scratch = std::move(sampler->idle_.back());
      sampler->idle_.pop_back();
    }
  }
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;
  ~Lease() {
    return_freed(scratch->end());
    const size_t before = std::exchange(scratch->counted, scratch->bytes());
    std::lock_guard lock(sampler->mutex_);
    const bool kept = sampler->idle_.size() < kMostIdle;
    sampler->count(static_cast<int64_t>(kept ? scratch->counted : 0) - static_cast<int64_t>(before));
    if (kept) sampler->idle_.push_back(std::move(scratch));
  }
  SampleScratch* operator->() const { return scratch.get(); }

  static constexpr size_t kMostIdle = 4;

  Sampler* sampler;
  std::unique_ptr<SampleScratch> scratch;
};

// -- checks; they throw SampleError

void check_node_type(const Graph& graph, uint32_t node_type);
void check_strategy(const Graph& graph, uint32_t edge_type, bool incoming, const NeighborStrategy& strategy,
                    bool bounded);
// Checks that there is one bound for all, or one for each of `seeds`.
void check_bounds(std::span<const double> until, size_t seeds);
// Appends the index of each id.
void resolve(const Graph& graph, uint32_t node_type, std::span<const int64_t> ids, std::vector<uint32_t>* indices);

// The lists from which the neighbours of an edge type are drawn.
inline NeighborDraws::Task draws_from(const Graph& graph, uint32_t edge_type, bool incoming, NeighborStrategy strategy,
                                      EdgeColumns wanted, uint64_t seed, uint64_t purpose) {
  const GraphStore& store = *graph.edges[edge_type].store;
  if (!store.options().keyed) {
    return {incoming ? &store.in() : &store.out(), strategy, wanted, seed, purpose};
  }
  return {nullptr, strategy, wanted, seed, purpose, incoming ? &store.keyed_in() : &store.keyed_out()};
}

// The internal numbers of nodes that are scattered over their type.
inline void write_ids(const IdMap& ids, std::span<const uint32_t> nodes, int64_t* to) {
  constexpr size_t kAhead = 16;
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (i + kAhead < nodes.size()) __builtin_prefetch(&ids.ids()[nodes[i + kAhead]]);
    to[i] = ids.id_of(nodes[i]);
  }
}

// Rows of features that are scattered over a table, or those of nodes, without padding.
template <class Features>
void write_features(const Features& table, std::span<const uint32_t> rows, float* to) {
  constexpr size_t kAhead = 16;
  const size_t width = table.width();
  for (size_t i = 0; i < rows.size(); ++i) {
    if (i + kAhead < rows.size()) __builtin_prefetch(table.row(rows[i + kAhead]));
    std::memcpy(to + i * width, table.row(rows[i]), width * sizeof(float));
  }
}

inline void write_rows(std::span<const uint32_t> rows, int64_t* to) {
  std::transform(rows.begin(), rows.end(), to, [](uint32_t row) { return row == kNoRow ? int64_t{-1} : int64_t{row}; });
}

}  // namespace livegnn
