#include "inference/edges/directed_changes.h"

#include <algorithm>

namespace livegnn {
namespace {

void sort_changes(std::vector<DirectedChange>* changes) {
  std::sort(changes->begin(), changes->end(), [](const DirectedChange& a, const DirectedChange& b) {
    return a.target != b.target ? a.target < b.target : a.order() < b.order();
  });
}

}  // namespace

void direct_changes(const Graph& graph, const Delta& delta, size_t edge_type, const float* zeros,
                    std::vector<DirectedChange>* changes) {
  const Graph::EdgeType& edges = graph.edges[edge_type];
  const EdgeFeaturesDelta& features = delta.edge_features[edge_type];
  const Table& table = edges.features.table();
  changes->clear();
  size_t featured = 0;
  for (size_t i = 0; i < delta.edges[edge_type].size(); ++i) {
    const EdgeChange& change = delta.edges[edge_type][i];
    const float *before = nullptr, *after = nullptr;
    if (table.width() > 0) {
      before = change.had ? table.row(change.row) : zeros;
      after = change.had ? before : zeros;
      if (featured < features.featured.size() && features.featured[featured] == i) {
        after = features.features.data() + featured++ * table.stride();
      }
    }
    changes->push_back({change.source, change.target, change.old_weight, change.new_weight, change.had, change.has,
                        change.key, before, after});
    if (edges.spec.options.undirected && change.source != change.target) {
      changes->push_back({change.target, change.source, change.old_weight, change.new_weight, change.had, change.has,
                          change.key, before, after});
    }
  }
  sort_changes(changes);
}

void reverse_changes(const std::vector<DirectedChange>& changes, std::vector<DirectedChange>* reversed) {
  *reversed = changes;
  for (DirectedChange& change : *reversed) std::swap(change.source, change.target);
  sort_changes(reversed);
}

}  // namespace livegnn
