#include "livegnn/graph.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <mutex>

#include "parallel.h"

namespace livegnn {
namespace {

constexpr size_t kKeptUpdates = 1 << 18;  // of the largest batch whose memory is kept for the next

uint64_t edge_key(uint32_t source, uint32_t target) { return (uint64_t{source} << 32) | target; }

void check_finite(const float* values, size_t count, const char* what) {
  for (size_t i = 0; i < count; ++i) {
    if (!std::isfinite(values[i])) {
      throw EventError(BadEvent::kNotFinite, std::string(what) + " must be finite, got " + std::to_string(values[i]) +
                                                 " at position " + std::to_string(i));
    }
  }
}

void check_finite_sum(float before, float added) {
  if (std::isfinite(before + added)) return;
  throw EventError(BadEvent::kNotFinite, "a weight that adds up must stay finite, got " + std::to_string(before) +
                                             " and " + std::to_string(added));
}

}  // namespace

Graph::Graph(const std::vector<size_t>& feature_widths, const std::vector<EdgeTypeSpec>& edge_types, size_t threads)
    : pool_(std::make_unique<ThreadPool>(threads)) {
  for (size_t width : feature_widths) nodes.push_back({{}, Table(width)});
  for (const auto& spec : edge_types) edges.push_back({spec, std::make_unique<GraphStore>(spec.options)});
}

Graph::~Graph() = default;

void Graph::prepare(const Delta& delta) {
  try {
    for (size_t e = 0; e < edges.size(); ++e) {
      updates_.clear();
      for (const EdgeChange& change : delta.edges[e]) {
        updates_.push_back({change.source, change.target, change.has, {change.new_weight, change.new_time}});
      }
      edges[e].store->prepare(updates_, pool_.get());
    }
  } catch (...) {
    abandon();
    throw;
  }
}

void Graph::abandon() {
  for (EdgeType& type : edges) type.store->abandon();
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
  for (EdgeType& type : edges) {
    type.store->resize(delta.nodes[type.spec.source_type].capacity, delta.nodes[type.spec.target_type].capacity);
    type.store->commit();
  }
  for (size_t n = 0; n < nodes.size(); ++n) {
    NodeType& type = nodes[n];
    const NodeDelta& change = delta.nodes[n];
    // Added nodes were promised the indices that are free now: those that are freed here come after them.
    for (int64_t id : change.added_ids) type.ids.insert(id);
    for (size_t i = 0; i < change.added.size(); ++i) {
      if (change.added_ids[i] == kNoId) type.ids.release(change.added[i]);
    }
    for (uint32_t index : change.removed) {
      type.ids.erase(index);
      type.features.clear_row(index);
    }
    type.features.resize(change.capacity);
    for (size_t i = 0; i < change.featured.size(); ++i) {
      type.features.write(change.featured[i], change.features.data() + i * type.features.stride());
    }
  }
}

uint32_t Stage::Positions::find(uint64_t key) const {
  if (map_.empty()) {
    for (const auto& [k, position] : few_) {
      if (k == key) return position;
    }
    return kNoIndex;
  }
  auto found = map_.find(key);
  return found == map_.end() ? kNoIndex : found->second;
}

void Stage::Positions::insert(uint64_t key, uint32_t position) {
  if (map_.empty() && few_.size() < kFew) {
    few_.emplace_back(key, position);
    return;
  }
  if (map_.empty()) {
    map_.reserve(1024);
    for (const auto& [k, p] : few_) map_[k] = p;
    few_.clear();
  }
  map_[key] = position;
}

void Stage::Positions::erase(uint64_t key) {
  if (map_.empty()) {
    std::erase_if(few_, [key](const auto& entry) { return entry.first == key; });
  } else {
    map_.erase(key);
  }
}

Stage::Stage(const Graph& graph) : graph_(graph), node_stages_(graph.nodes.size()), edge_stages_(graph.edges.size()) {
  delta_.nodes.resize(graph.nodes.size());
  delta_.edges.resize(graph.edges.size());
}

uint32_t Stage::resolve(uint32_t node_type, int64_t id) {
  const NodeStage& stage = node_stages_[node_type];
  if (stage.reserved > 0) {
    uint32_t added = stage.added.find(static_cast<uint64_t>(id));
    if (added != kNoIndex) return added;
  }
  uint32_t index = graph_.nodes[node_type].ids.index_of(id);
  bool removed = index != kNoIndex && !delta_.nodes[node_type].removed.empty() && stage.removed.find(index) != kNoIndex;
  if (index == kNoIndex || removed) {
    throw EventError(BadEvent::kUnknownNode, removed ? "was removed earlier in this batch" : "is not in the graph", id,
                     node_type);
  }
  return index;
}

EdgeChange* Stage::change_of(uint32_t edge_type, uint32_t source, uint32_t target) {
  auto& changes = delta_.edges[edge_type];
  EdgeStage& stage = edge_stages_[edge_type];
  const auto& options = graph_.edges[edge_type].spec.options;
  uint64_t key =
      options.undirected ? edge_key(std::min(source, target), std::max(source, target)) : edge_key(source, target);
  uint32_t position = stage.positions.find(key);
  if (position == kNoIndex) {
    position = static_cast<uint32_t>(changes.size());
    stage.positions.insert(key, position);
    auto old = graph_.edges[edge_type].store->find(source, target);
    EdgeValue value = old.value_or(EdgeValue{});
    changes.push_back({source, target, old.has_value(), old.has_value(), value.weight, value.weight, value.time});
  }
  return &changes[position];
}

void Stage::resolve_ends(const EdgeTypeSpec& spec, const int64_t* source, const int64_t* target, size_t count) {
  sources_.resize(count);
  targets_.resize(count);
  for (size_t i = 0; i < count; ++i) {
    sources_[i] = resolve(spec.source_type, source[i]);
    targets_[i] = resolve(spec.target_type, target[i]);
  }
}

void Stage::prefetch_ahead(const GraphStore& store, size_t i) const {
  constexpr size_t kAhead = 8;
  if (i + 2 * kAhead < sources_.size()) store.prefetch_out(sources_[i + 2 * kAhead]);
  if (i + kAhead < sources_.size()) store.prefetch_out_leaf(sources_[i + kAhead]);
}

void Stage::add_edges(uint32_t edge_type, const int64_t* source, const int64_t* target, const float* weight,
                      const double* time, size_t count) {
  const EdgeTypeSpec& spec = graph_.edges[edge_type].spec;
  if (weight != nullptr) check_finite(weight, count, "edge weights");
  if (time != nullptr) {
    for (size_t i = 0; i < count; ++i) {
      if (!std::isfinite(time[i])) {
        throw EventError(BadEvent::kNotFinite, "edge times must be finite, got " + std::to_string(time[i]) +
                                                   " at position " + std::to_string(i));
      }
    }
  }
  resolve_ends(spec, source, target, count);
  const GraphStore& store = *graph_.edges[edge_type].store;
  for (size_t i = 0; i < count; ++i) {
    prefetch_ahead(store, i);
    EdgeChange* change = change_of(edge_type, sources_[i], targets_[i]);
    float new_weight = weight != nullptr && spec.options.columns.weighted ? weight[i] : 1.0f;
    double new_time = time != nullptr && spec.options.columns.timed ? time[i] : 0.0;
    if (change->has && spec.options.accumulate && spec.options.columns.weighted) {
      // Late or not, a payment counts; only the time stays that of the latest.
      check_finite_sum(change->new_weight, new_weight);
      change->new_weight += new_weight;
      change->new_time = std::max(change->new_time, new_time);
      continue;
    }
    // An event that comes late does not undo what happened after it.
    if (change->has && spec.options.columns.timed && new_time < change->new_time) continue;
    change->has = true;
    change->new_weight = new_weight;
    change->new_time = new_time;
  }
  delta_.num_events += count;
}

void Stage::remove_edges(uint32_t edge_type, const int64_t* source, const int64_t* target, size_t count) {
  const EdgeTypeSpec& spec = graph_.edges[edge_type].spec;
  resolve_ends(spec, source, target, count);
  const GraphStore& store = *graph_.edges[edge_type].store;
  for (size_t i = 0; i < count; ++i) {
    prefetch_ahead(store, i);
    change_of(edge_type, sources_[i], targets_[i])->has = false;
  }
  delta_.num_events += count;
}

void Stage::check_rows(uint32_t node_type, const float* x, size_t width, size_t count) const {
  size_t expected = graph_.nodes[node_type].features.width();
  if (width != expected) {
    throw EventError(BadEvent::kWidth,
                     "features must be " + std::to_string(expected) + " wide, got " + std::to_string(width));
  }
  check_finite(x, width * count, "features");
}

void Stage::write_features(uint32_t node_type, uint32_t index, const float* x, size_t width) {
  NodeDelta& delta = delta_.nodes[node_type];
  NodeStage& stage = node_stages_[node_type];
  size_t stride = graph_.nodes[node_type].features.stride();
  uint32_t position = stage.featured.find(index);
  if (position == kNoIndex) {
    position = static_cast<uint32_t>(delta.featured.size());
    stage.featured.insert(index, position);
    delta.featured.push_back(index);
    delta.features.resize(delta.features.size() + stride);
  }
  std::memcpy(delta.features.data() + position * stride, x, width * sizeof(float));
}

void Stage::set_features(uint32_t node_type, const int64_t* ids, const float* x, size_t width, size_t count) {
  check_rows(node_type, x, width, count);
  delta_.nodes[node_type].features.reserve(delta_.nodes[node_type].features.size() +
                                           count * graph_.nodes[node_type].features.stride());
  for (size_t i = 0; i < count; ++i) {
    write_features(node_type, resolve(node_type, ids[i]), x + i * width, width);
  }
  delta_.num_events += count;
}

void Stage::add_nodes(uint32_t node_type, const int64_t* ids, const float* x, size_t width, size_t count) {
  if (x != nullptr) check_rows(node_type, x, width, count);
  NodeDelta& delta = delta_.nodes[node_type];
  NodeStage& stage = node_stages_[node_type];
  const IdMap& map = graph_.nodes[node_type].ids;
  for (size_t i = 0; i < count; ++i) {
    if (ids[i] < 0) throw EventError(BadEvent::kNegativeId, "ids must be at least 0", ids[i], node_type);
    auto id = static_cast<uint64_t>(ids[i]);
    uint32_t index = stage.added.find(id);
    if (index == kNoIndex) {
      index = map.index_of(ids[i]);
      if (index != kNoIndex && stage.removed.find(index) != kNoIndex) index = kNoIndex;
      if (index == kNoIndex) {
        if (map.capacity() + stage.reserved >= kNoIndex) {
          throw EventError(BadEvent::kTooManyNodes, "a node type holds at most 4294967294 nodes", ids[i], node_type);
        }
        index = map.next_index(stage.reserved++);
        stage.added.insert(id, index);
        delta.added.push_back(index);
        delta.added_ids.push_back(ids[i]);
      }
    }
    if (x != nullptr) write_features(node_type, index, x + i * width, width);
  }
  delta_.num_events += count;
}

void Stage::drop_edges(uint32_t node_type, uint32_t index) {
  for (uint32_t e = 0; e < graph_.edges.size(); ++e) {
    const auto& [spec, store] = graph_.edges[e];
    if (spec.source_type == node_type) {
      store->scan_out(index, [&](NeighborSpan span) {
        for (size_t i = 0; i < span.size; ++i) change_of(e, index, span.ids[i])->has = false;
      });
    }
    if (spec.target_type == node_type && !spec.options.undirected) {
      store->scan_in(index, [&](NeighborSpan span) {
        for (size_t i = 0; i < span.size; ++i) change_of(e, span.ids[i], index)->has = false;
      });
    }
    for (EdgeChange& change : delta_.edges[e]) {
      if ((spec.source_type == node_type && change.source == index) ||
          (spec.target_type == node_type && change.target == index)) {
        change.has = false;
      }
    }
  }
}

void Stage::remove_nodes(uint32_t node_type, const int64_t* ids, size_t count) {
  NodeDelta& delta = delta_.nodes[node_type];
  NodeStage& stage = node_stages_[node_type];
  for (size_t i = 0; i < count; ++i) {
    uint32_t index = resolve(node_type, ids[i]);
    drop_edges(node_type, index);
    uint32_t featured = stage.featured.find(index);
    if (featured != kNoIndex) {
      delta.featured[featured] = kNoIndex;
      stage.featured.erase(index);
    }
    auto id = static_cast<uint64_t>(ids[i]);
    if (stage.added.find(id) == index && stage.reserved > 0) {
      // The index stays promised, so that the later ones stay right: the node is added and at once removed.
      stage.added.erase(id);
      auto at = static_cast<size_t>(std::find(delta.added.begin(), delta.added.end(), index) - delta.added.begin());
      delta.added_ids[at] = kNoId;
    } else {
      stage.removed.insert(index, static_cast<uint32_t>(delta.removed.size()));
      delta.removed.push_back(index);
      delta.removed_ids.push_back(ids[i]);
    }
  }
  delta_.num_events += count;
}

Delta Stage::finish() {
  for (size_t e = 0; e < delta_.edges.size(); ++e) {
    bool timed = graph_.edges[e].spec.options.columns.timed;
    std::erase_if(delta_.edges[e], [&](const EdgeChange& change) {
      if (change.had != change.has) return false;
      if (!change.has) return true;
      if (change.old_weight != change.new_weight) return false;
      // The store must learn of a new time, though no view does.
      return !timed || graph_.edges[e].store->find(change.source, change.target)->time == change.new_time;
    });
  }
  for (size_t n = 0; n < delta_.nodes.size(); ++n) {
    NodeDelta& delta = delta_.nodes[n];
    const Graph::NodeType& type = graph_.nodes[n];
    size_t stride = type.features.stride();
    size_t kept = 0;
    for (size_t i = 0; i < delta.featured.size(); ++i) {
      uint32_t index = delta.featured[i];
      if (index == kNoIndex) continue;
      if (kept != i) {
        std::memmove(delta.features.data() + kept * stride, delta.features.data() + i * stride, stride * sizeof(float));
      }
      delta.featured[kept++] = index;
    }
    delta.featured.resize(kept);
    delta.features.resize(kept * stride);
    size_t reserved = delta.added.size();
    size_t free = type.ids.free_list().size();
    delta.capacity = type.ids.capacity() + (reserved > free ? reserved - free : 0);
  }
  return std::move(delta_);
}

}  // namespace livegnn
