// Number of nodes per out-degree, for one edge type: a small view that the guide to writing views explains.
//
// Invariant: `counts()[d]` is the number of nodes with `d` out-edges; the last element is not 0.
// Thread safety: the same as for every view (view.h).
#pragma once

#include <algorithm>
#include <vector>

#include "views/view.h"

namespace livegnn {

class DegreeHistogram : public View {
 public:
  DegreeHistogram(const Graph& graph, uint32_t edge_type)
      : edge_type_(edge_type), node_type_(graph.edges[edge_type].spec.source_type) {
    const IdMap& ids = graph.nodes[node_type_].ids;
    for (uint32_t node = 0; node < ids.capacity(); ++node) {
      if (ids.in_use(node)) add(&counts_, graph.edges[edge_type].store->degree_out(node), 1);
    }
  }

  const std::vector<int64_t>& counts() const { return counts_; }

  void prepare(const Change& change) override {
    next_ = counts_;
    const NodeDelta& nodes = change.delta.nodes[node_type_];
    touched_.clear();
    change.for_each_edge(edge_type_, [&](uint32_t source, uint32_t, const EdgeChange&) { touched_.push_back(source); });
    touched_.insert(touched_.end(), nodes.removed.begin(), nodes.removed.end());
    for (size_t i = 0; i < nodes.added.size(); ++i) {
      if (nodes.added_ids[i] != kNoId) touched_.push_back(nodes.added[i]);
    }
    std::sort(touched_.begin(), touched_.end());
    touched_.erase(std::unique(touched_.begin(), touched_.end()), touched_.end());
    std::vector<uint32_t> removed(nodes.removed);
    std::sort(removed.begin(), removed.end());
    const Graph& before = change.before;
    for (uint32_t node : touched_) {
      if (before.nodes[node_type_].ids.in_use(node)) {
        add(&next_, before.edges[edge_type_].store->degree_out(node), -1);
      }
      if (std::binary_search(removed.begin(), removed.end(), node)) continue;
      add(&next_, change.degree_out_after(edge_type_, node), 1);
    }
  }
  void commit() noexcept override { counts_.swap(next_); }
  void abandon() noexcept override { next_.clear(); }

  void save(Arrays* to) const override { to->put("counts", counts_); }
  void load(const ArrayViews& from) override {
    const auto counts = from.at<int64_t>("counts");
    counts_.assign(counts.begin(), counts.end());
  }
  size_t bytes() const override { return bytes_of(counts_) + bytes_of(next_) + bytes_of(touched_); }

 private:
  static void add(std::vector<int64_t>* counts, size_t degree, int64_t number) {
    if (counts->size() <= degree) counts->resize(degree + 1);
    (*counts)[degree] += number;
    while (!counts->empty() && counts->back() == 0) counts->pop_back();
  }

  uint32_t edge_type_, node_type_;
  std::vector<int64_t> counts_, next_;
  std::vector<uint32_t> touched_;
};

}  // namespace livegnn
