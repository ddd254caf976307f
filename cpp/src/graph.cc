#include "livegnn/graph.h"

#include <algorithm>
#include <mutex>
#include <stdexcept>
#include <string>

#include "parallel.h"

namespace livegnn {
namespace {

constexpr size_t kKeptUpdates = 1 << 18;  // of the largest batch whose memory is kept for the next

// Whose block an edge counts for.
uint32_t owner_of(const Graph::EdgeType& type, uint32_t source, uint32_t target) {
  return type.spec.options.undirected ? std::min(source, target) : source;
}

void check_row(uint32_t row, size_t rows) {
  if (row >= rows) throw std::runtime_error("features of edges: no such row as " + std::to_string(row));
}

}  // namespace

Graph::Graph(const std::vector<size_t>& feature_widths, const std::vector<EdgeTypeSpec>& edge_types, size_t threads,
             const std::string& features_directory)
    : pool_(std::make_unique<ThreadPool>(threads)) {
  for (size_t width : feature_widths) nodes.push_back({{}, Table(width, features_directory)});
  for (EdgeTypeSpec spec : edge_types) {
    spec.options.columns.featured = spec.width > 0;
    edges.push_back(
        {spec, std::make_unique<GraphStore>(spec.options), EdgeFeatures(spec.width, features_directory), {}});
  }
}

Graph::~Graph() = default;

// Before the lists change: if the batch comes to nothing, the bounds are lower than they need be, which is no harm.
void Graph::note_times(EdgeType* type, const std::vector<EdgeChange>& changes, size_t capacity) {
  if (!type->spec.expires) return;
  type->earliest.resize(capacity);
  for (const EdgeChange& change : changes) {
    if (change.has) type->earliest.note(owner_of(*type, change.source, change.target), change.new_time);
  }
}

std::vector<std::pair<uint32_t, uint32_t>> Graph::expired(uint32_t edge_type, double horizon) {
  EdgeType& type = edges[edge_type];
  std::vector<std::pair<uint32_t, uint32_t>> found;
  for (size_t block = 0; block < type.earliest.num_blocks(); ++block) {
    if (!type.earliest.before(block, horizon)) continue;
    double earliest = EarliestTimes::kNever;
    for (uint32_t i = 0; i < EarliestTimes::kBlock; ++i) {
      const auto node = static_cast<uint32_t>(block * EarliestTimes::kBlock + i);
      type.store->scan_out(node, [&](NeighborSpan span) {
        for (size_t k = 0; k < span.size; ++k) {
          if (owner_of(type, node, span.ids[k]) != node) continue;
          earliest = std::min(earliest, span.times[k]);
          if (span.times[k] < horizon) found.emplace_back(node, span.ids[k]);
        }
      });
    }
    type.earliest.tighten(block, earliest);
  }
  return found;
}

void Graph::prepare(const Delta& delta) {
  try {
    for (size_t n = 0; n < nodes.size(); ++n) nodes[n].features.prepare(delta.nodes[n].capacity);
    for (size_t e = 0; e < edges.size(); ++e) {
      EdgeType& type = edges[e];
      type.features.prepare(delta.edge_features[e]);
      note_times(&type, delta.edges[e], delta.nodes[type.spec.source_type].capacity);
      updates_.clear();
      for (const EdgeChange& change : delta.edges[e]) {
        updates_.push_back(
            {change.source, change.target, change.has, {change.new_weight, change.new_time, change.row}});
      }
      type.store->prepare(updates_, pool_.get());
    }
  } catch (...) {
    abandon();
    throw;
  }
}

void Graph::abandon() {
  for (NodeType& type : nodes) type.features.abandon();
  for (EdgeType& type : edges) {
    type.store->abandon();
    type.features.abandon();
  }
}

void Graph::settle() {
  for (EdgeType& type : edges) {
    type.store->settle();
    if (updates_.capacity() > kKeptUpdates) updates_ = {};
    if (!type.store->prepare_compaction()) continue;
    {
      std::unique_lock alone(lock);
      type.store->commit();
    }
    type.store->settle();
  }
}

void Graph::commit(const Delta& delta) {
  for (size_t e = 0; e < edges.size(); ++e) {
    EdgeType& type = edges[e];
    type.store->resize(delta.nodes[type.spec.source_type].capacity, delta.nodes[type.spec.target_type].capacity);
    type.store->commit();
    type.features.commit(delta.edge_features[e]);
  }
  latest_time = std::max(latest_time, delta.latest_time);
  for (size_t n = 0; n < nodes.size(); ++n) {
    NodeType& type = nodes[n];
    const NodeDelta& change = delta.nodes[n];
    // Added nodes were promised the indices that are free now: those that are freed here come after them.
    for (int64_t id : change.added_ids) type.ids.insert(id);
    for (size_t i = 0; i < change.added.size(); ++i) {
      if (change.added_ids[i] == kNoId) type.ids.release(change.added[i]);
    }
    type.features.resize(change.capacity);
    for (uint32_t index : change.removed) {
      type.ids.erase(index);
      type.features.clear_row(index);
    }
    for (size_t i = 0; i < change.featured.size(); ++i) {
      type.features.write(change.featured[i], change.features.data() + i * type.features.stride());
    }
  }
}

void Graph::load_edge_features(uint32_t edge_type, const float* values, size_t rows, std::vector<uint32_t> free) {
  EdgeType& type = edges[edge_type];
  if (type.spec.width == 0) return;
  std::vector<uint32_t> used;
  for (uint32_t node = 0; node < type.store->num_sources(); ++node) {
    type.store->scan_out(node, [&](NeighborSpan span) {
      for (size_t i = 0; i < span.size; ++i) {
        check_row(span.rows[i], rows);
        if (owner_of(type, node, span.ids[i]) == node) used.push_back(span.rows[i]);
      }
    });
  }
  // That both lists of an edge name the same row is trusted, as is all that the two sides have in common.
  const size_t targets = !type.spec.options.undirected && type.store->has_in() ? type.store->num_targets() : 0;
  for (uint32_t node = 0; node < targets; ++node) {
    type.store->scan_in(node, [&](NeighborSpan span) {
      for (size_t i = 0; i < span.size; ++i) check_row(span.rows[i], rows);
    });
  }
  type.features.restore(values, rows, std::move(free), used);
}

}  // namespace livegnn
