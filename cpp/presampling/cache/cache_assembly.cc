#include "presampling/cache/cache_assembly.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace livegnn {
namespace {

// The cells of one query in a cache (`SampleWalk::run`).
struct CachedCells {
  void prefetch_root(uint64_t node) const { cache.prefetch_sample(query, node); }
  void prefetch_cell(uint64_t node) const { cache.prefetch_cell(query, node); }
  CellView find(uint64_t node) const {
    const CellView cell = cache.sample(query, node, lookups);
    if (cell.size == 0) note({RecordKind::kSample, query, node});
    return cell;
  }
  void note(const EntryKey& key) const {
    if (cache.may_be_evicted(key)) missing->push_back(key);
  }
  uint64_t node_of(uint64_t id) const { return id; }
  void reached(uint64_t node) const {
    if (features != nullptr) features->prefetch(node);
  }
  void add_values(const CellView& cell, uint64_t, SampleWalk<uint64_t>::EdgesOfType* edges) const {
    if (weighted) edges->weights.insert(edges->weights.end(), cell.weights, cell.weights + cell.size);
    if (timed) edges->times.insert(edges->times.end(), cell.times, cell.times + cell.size);
  }

  const SampleCache& cache;
  uint32_t query;
  bool towards_key, weighted, timed, valued;
  const FeatureTable* features;  // null if they are not asked for
  Lookups* lookups;
  std::vector<EntryKey>* missing;
};

}  // namespace

CacheAssembly::CacheAssembly(const SampleCache& cache)
    : cache_(cache), walk_(cache.plan()), carried_(carried_by(cache.plan())) {}

std::vector<CacheAssembly::CarriedColumns> CacheAssembly::carried_by(const QueryPlan& plan) {
  std::vector<CarriedColumns> all;
  for (const OneHopQuery& query : plan.queries()) {
    const auto of_type = [&](const CarriedColumns& one) { return one.edge_type == query.edge_type; };
    auto found = std::find_if(all.begin(), all.end(), of_type);
    if (found == all.end()) found = all.insert(found, {query.edge_type, true, true});
    found->weighted = found->weighted && query.weighted;
    found->timed = found->timed && query.timed;
  }
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.edge_type < b.edge_type; });
  return all;
}

void CacheAssembly::sample(std::span<const int64_t> ids, bool attributes, Subgraph* out) {
  const QueryPlan& plan = cache_.plan();
  lookups_ = {};
  missing_.clear();
  walk_.begin(ids.size());
  out->inverse.resize(1);
  Column<int64_t>& inverse = out->inverse[0];
  inverse.open(ids.size());
  for (size_t i = 0; i < ids.size(); ++i) inverse[i] = walk_.add_seed(std::bit_cast<uint64_t>(ids[i]));
  walk_.run([&](size_t query) {
    const OneHopQuery& asked = plan[query];
    const CarriedColumns& carried = carried_[walk_.edges_of(query)];
    const bool weighted = attributes && carried.weighted, timed = attributes && carried.timed;
    const FeatureTable& features = cache_.features(asked.neighbor_type);
    const bool featured = attributes && features.width() > 0;
    return CachedCells{cache_,
                       static_cast<uint32_t>(query),
                       asked.towards_key,
                       weighted,
                       timed,
                       weighted || timed,
                       featured ? &features : nullptr,
                       &lookups_,
                       &missing_};
  });
  write_nodes(attributes, out);
  write_edges(attributes, out);
}

void CacheAssembly::write_nodes(bool attributes, Subgraph* out) {
  constexpr size_t kAhead = 16;
  out->nodes.resize(walk_.nodes().size());
  for (uint32_t t = 0; t < walk_.nodes().size(); ++t) {
    const auto& type = walk_.nodes()[t];
    auto& to = out->nodes[t];
    to.num_sampled = type.num_sampled;
    const size_t count = type.nodes.size();
    to.ids.open(count);
    if (count > 0) std::memcpy(to.ids.data(), type.nodes.data(), count * sizeof(int64_t));
    const FeatureTable& table = cache_.features(t);
    const size_t width = table.width();
    if (!attributes || width == 0) continue;
    to.features.open(count * width);
    for (size_t i = 0; i < std::min(kAhead, count); ++i) table.prefetch_row(type.nodes[i]);
    for (size_t i = 0; i < count; ++i) {
      if (i + kAhead < count) table.prefetch_row(type.nodes[i + kAhead]);
      float* const row = to.features.data() + i * width;
      if (const float* from = cache_.features(t, type.nodes[i], &lookups_)) {
        std::memcpy(row, from, width * sizeof(float));
      } else {
        std::fill_n(row, width, 0.0f);
        const EntryKey key{RecordKind::kFeatures, t, type.nodes[i]};
        if (cache_.may_be_evicted(key)) missing_.push_back(key);
      }
    }
  }
}

void CacheAssembly::write_edges(bool attributes, Subgraph* out) const {
  out->edges.resize(walk_.edges().size());
  for (size_t e = 0; e < walk_.edges().size(); ++e) {
    const auto& type = walk_.edges()[e];
    auto& to = out->edges[e];
    to.edge_type = type.edge_type;
    to.num_sampled = type.num_sampled;
    copy_to(type.source, &to.row);
    copy_to(type.target, &to.col);
    if (attributes && carried_[e].weighted) copy_to(type.weights, &to.weight);
    if (attributes && carried_[e].timed) copy_to(type.times, &to.time);
  }
}

}  // namespace livegnn
