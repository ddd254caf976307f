// LiveGNN's store as a contestant: directed edges in out-lists alone, as the peers have them.
//
// Thread safety: as batch.h says of contestants; `settle` when the readers that were there before `commit` are gone.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "batch.h"
#include "livegnn/graph_store.h"
#include "parallel.h"
#include "sampler.h"

namespace livegnn::bench {

class LiveStore {
 public:
  LiveStore(size_t nodes, bool weighted, SamtreeOptions samtree) : store_(options_of(weighted, samtree)) {
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
  // The lists, and what batches are prepared in: kept from one to the next.
  size_t bytes() const {
    const GraphStore::Memory memory = store_.memory();
    return memory.lists + memory.batches + updates_.capacity() * sizeof(EdgeUpdate);
  }
  size_t bytes_at_rest() const { return store_.memory().lists; }
  void check() const { store_.check(); }

  class View {
   public:
    View(const GraphStore::Trees* trees, uint32_t node) : trees_(trees), node_(node), root_(trees->root(node)) {}
    uint32_t degree() const { return root_.degree; }
    float total() const { return static_cast<float>(trees_->weight_sum(node_)); }
    uint32_t at(uint32_t i) const {
      const Leaf<uint32_t>* leaf = trees_->leaf_of(root_, &i);
      return leaf->id(trees_->columns(), i);
    }
    uint32_t at_weight(float weight) const {
      const EdgeColumns columns = trees_->columns();
      double at = weight;
      const Leaf<uint32_t>* leaf = trees_->leaf_at_weight(root_, &at);
      return leaf->id(columns, FSTable::find(leaf->weights(columns), leaf->size, leaf->sums(columns), at));
    }
    template <class Visit>
    void scan(Visit&& visit) const {
      trees_->scan(node_, [&](const NeighborSpan& span) {
        for (size_t i = 0; i < span.size; ++i) visit(span.ids[i], span.weights != nullptr ? span.weights[i] : 1.0f);
      });
    }

   private:
    const GraphStore::Trees* trees_;
    uint32_t node_;
    SamtreeRoot root_;
  };

  void sample(std::span<const uint32_t> seeds, uint32_t k, bool by_weight, uint64_t seed, uint32_t* to) const {
    bench::sample(*this, seeds, k, by_weight, seed, to);
  }
  Subgraph subgraph(std::span<const uint32_t> seeds, std::span<const uint32_t> fan_outs, uint64_t seed,
                    Numbering* numbering, ThreadPool* pool) const {
    return sample_subgraph(*this, seeds, fan_outs, seed, numbering, pool);
  }

  View view(uint32_t node) const { return View(&store_.out(), node); }

 private:
  static EdgeOptions options_of(bool weighted, SamtreeOptions samtree) {
    EdgeOptions options;
    options.columns.weighted = weighted;
    options.in_lists = false;
    options.samtree = samtree;
    return options;
  }

  GraphStore store_;
  std::vector<EdgeUpdate> updates_;
};

}  // namespace livegnn::bench
