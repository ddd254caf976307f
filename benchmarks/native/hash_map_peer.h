// A peer: a hash map from node to its neighbours, two vectors that are appended to: ids, and cumulative weights.
//
// What a program without a graph store would do. To know whether an edge is there it scans the ids, as vectors: with
// the degrees of the benchmark's shapes that is faster than an index per node, and takes no memory.
//
// Invariants: no list is empty; ids of a list are distinct; a list has as many sums as ids, or none if without weights.
// Thread safety: any number of readers, or one writer.
#pragma once

#include <tsl/robin_map.h>

#include <vector>

#include "batch.h"
#include "cs_table.h"
#include "hashing/mix_hash.h"

namespace livegnn::bench {

class HashMapPeer {
  struct List {
    std::vector<uint32_t> ids;
    std::vector<float> sums;
  };

 public:
  HashMapPeer(Share share, size_t /*nodes*/, bool weighted) : share_(share), weighted_(weighted) {}

  // Nothing can be built aside: the lists are changed in place.
  void prepare(const Batch&) {}

  void commit(const Batch& batch) {
    for (size_t i = 0; i < batch.size; ++i) {
      if (!share_.holds(batch.sources[i])) continue;
      if (batch.removes(i)) {
        remove(batch.sources[i], batch.targets[i]);
      } else {
        upsert(batch.sources[i], batch.targets[i], batch.weight(i));
      }
    }
  }

  size_t num_edges() const { return num_edges_; }

  size_t bytes() const {
    size_t total = bucket_bytes(lists_);
    for (const auto& [node, list] : lists_) total += heap_bytes(list.ids) + heap_bytes(list.sums);
    return total;
  }

  // The neighbours of one node, looked up once and drawn from many times.
  class View {
   public:
    explicit View(const List* list) : list_(list) {}
    uint32_t degree() const { return list_ == nullptr ? 0 : static_cast<uint32_t>(list_->ids.size()); }
    float total() const { return CSTable::total(list_->sums.data(), list_->sums.size()); }
    uint32_t at(uint32_t i) const { return list_->ids[i]; }
    uint32_t at_weight(float at) const { return list_->ids[CSTable::find(list_->sums.data(), list_->sums.size(), at)]; }
    template <class Visit>
    void scan(Visit&& visit) const {
      for (uint32_t i = 0; i < degree(); ++i) {
        visit(list_->ids[i], list_->sums.empty() ? 1.0f : CSTable::weight(list_->sums.data(), i));
      }
    }

   private:
    const List* list_;
  };

  View view(uint32_t node) const {
    const auto found = lists_.find(node);
    return View(found == lists_.end() ? nullptr : &found->second);
  }

 private:
  using Lists = tsl::robin_map<uint32_t, List, MixHash>;

  void upsert(uint32_t source, uint32_t target, float weight) {
    List& list = lists_[source];
    const size_t n = list.ids.size(), i = find_id(list.ids.data(), n, target);
    if (i < n) {
      if (weighted_) CSTable::update(list.sums.data(), n, i, weight);
      return;
    }
    list.ids.push_back(target);
    if (weighted_) list.sums.push_back(CSTable::next(list.sums.data(), n, weight));
    ++num_edges_;
  }

  void remove(uint32_t source, uint32_t target) {
    const auto found = lists_.find(source);
    if (found == lists_.end()) return;
    List& list = found.value();
    const size_t n = list.ids.size(), i = find_id(list.ids.data(), n, target);
    if (i == n) return;
    if (weighted_) {
      CSTable::remove(list.sums.data(), n, i);
      list.sums.pop_back();
    }
    list.ids[i] = list.ids.back();
    list.ids.pop_back();
    --num_edges_;
    if (list.ids.empty()) lists_.erase(found);
  }

  Share share_;
  bool weighted_;
  Lists lists_;
  size_t num_edges_ = 0;
};

}  // namespace livegnn::bench
