#include "store/stage.h"

#include <algorithm>
#include <cstring>

#include "store/event_checks.h"

namespace livegnn {
namespace {

// Number of removed nodes of one edge type in a batch from which the changes of every node are listed.
constexpr size_t kFewDrops = 16;

uint64_t edge_key(uint32_t source, uint32_t target) { return (uint64_t{source} << 32) | target; }

// The same key for both directions of an undirected edge.
uint64_t end_key(const EdgeOptions& options, uint32_t source, uint32_t target) {
  return options.undirected ? edge_key(std::min(source, target), std::max(source, target)) : edge_key(source, target);
}

}  // namespace

Stage::Stage(const Graph& graph, bool refuse_parallel, bool trusted)
    : graph_(graph),
      refuse_parallel_(refuse_parallel),
      trusted_(trusted),
      node_stages_(graph.nodes.size()),
      edge_stages_(graph.edges.size()),
      owners_(graph.part.get()) {
  delta_.nodes.resize(graph.nodes.size());
  delta_.edges.resize(graph.edges.size());
  delta_.edge_features.resize(graph.edges.size());
}

uint32_t Stage::find(uint32_t node_type, int64_t id) const {
  const NodeStage& stage = node_stages_[node_type];
  const NodeDelta& delta = delta_.nodes[node_type];
  if (stage.reserved > 0) {
    const uint32_t added = stage.added.find(static_cast<uint64_t>(id));
    if (added != kNoIndex) return delta.added[added];
  }
  const uint32_t index = graph_.nodes[node_type].ids.index_of(id);
  const bool removed = index != kNoIndex && !delta.removed.empty() && stage.removed.find(index) != kNoIndex;
  return removed ? kNoIndex : index;
}

uint32_t Stage::resolve(uint32_t node_type, int64_t id) const {
  const uint32_t index = find(node_type, id);
  if (index != kNoIndex) return index;
  const bool removed = graph_.nodes[node_type].ids.index_of(id) != kNoIndex;
  throw EventError(BadEvent::kUnknownNode, removed ? "was removed earlier in this batch" : "is not in the graph", id,
                   node_type);
}

uint32_t Stage::pair_of(uint32_t edge_type, uint32_t source, uint32_t target) {
  EdgeStage& stage = edge_stages_[edge_type];
  const Graph::EdgeType& type = graph_.edges[edge_type];
  const uint64_t key = end_key(type.spec.options, source, target);
  uint32_t pair = stage.pair_of.find(key);
  if (pair == kNoIndex) {
    pair = static_cast<uint32_t>(stage.pairs.size());
    stage.pair_of.insert(key, pair);
    stage.pairs.push_back({{}, type.store->last_key(source, target)});
  }
  return pair;
}

uint32_t Stage::next_key(uint32_t edge_type, uint32_t pair) const {
  const std::optional<uint32_t> greatest = edge_stages_[edge_type].pairs[pair].greatest();
  if (!greatest) return 0;
  if (*greatest < UINT32_MAX) return *greatest + 1;
  throw EventError(BadEvent::kTooManyEdges,
                   "an edge without a key gets the one after the greatest between its ends, which is the greatest of "
                   "all: give a key");
}

// Records the new state of an edge that the batch touches.
void Stage::note_key(uint32_t edge_type, uint32_t pair, const EdgeChange& change) {
  EdgeStage& stage = edge_stages_[edge_type];
  auto& [present, last] = stage.pairs[pair];
  const auto at = std::lower_bound(present.begin(), present.end(), change.key);
  const bool noted = at != present.end() && *at == change.key;
  if (change.has && !noted) present.insert(at, change.key);
  if (!change.has && noted) present.erase(at);
  while (last && stage.positions.find(edge_key(pair, *last)) != kNoIndex) {
    last = *last == 0 ? std::nullopt : graph_.edges[edge_type].store->last_key(change.source, change.target, *last - 1);
  }
}

EdgeChange* Stage::change_of(uint32_t edge_type, uint32_t source, uint32_t target, uint32_t key) {
  auto& changes = delta_.edges[edge_type];
  EdgeStage& stage = edge_stages_[edge_type];
  const auto& options = graph_.edges[edge_type].spec.options;
  const uint64_t name =
      options.keyed ? edge_key(pair_of(edge_type, source, target), key) : end_key(options, source, target);
  uint32_t position = stage.positions.find(name);
  if (position == kNoIndex) {
    position = static_cast<uint32_t>(changes.size());
    stage.positions.insert(name, position);
    auto old = graph_.edges[edge_type].store->find(source, target, key);
    EdgeValue value = old.value_or(EdgeValue{});
    changes.push_back(
        {source, target, old.has_value(), old.has_value(), value.weight, value.weight, value.time, value.row, key});
    if (options.columns.featured) stage.slots.push_back(kNoIndex);
    if (stage.drops > kFewDrops) link(edge_type, position);
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
                      const double* time, const float* x, size_t width, size_t count, const uint32_t* key) {
  const Graph::EdgeType& type = graph_.edges[edge_type];
  const EdgeTypeSpec& spec = type.spec;
  const bool weighted = spec.options.columns.weighted, timed = spec.options.columns.timed;
  const Holders edges{edge_type, source, target};
  for (size_t i = 0; weight != nullptr && i < count; ++i) check_weight(weight[i], "edge weights", edges, i);
  const double latest = check_times(time, count, "edge times", edges);
  if (timed) delta_.latest_time = std::max(delta_.latest_time, latest);
  if (x != nullptr) check_rows(x, width, count, type.features.table().width(), "features of edges", edges);
  resolve_ends(spec, source, target, count);
  if (owners_.placing()) owners_.note_edges(spec.source_type, sources_, spec.target_type, targets_);
  for (size_t i = 0; i < count; ++i) {
    prefetch_ahead(*type.store, i);
    if (owners_.divided() && !keeps(spec, i)) continue;
    const bool keyed = spec.options.keyed;
    const uint32_t pair = keyed ? pair_of(edge_type, sources_[i], targets_[i]) : kNoIndex;
    uint32_t edge = 0;
    if (keyed) edge = key != nullptr ? key[i] : next_key(edge_type, pair);
    EdgeChange* change = change_of(edge_type, sources_[i], targets_[i], edge);
    if (refuse_parallel_ && change->has) {
      throw EventError(BadEvent::kParallel, "an edge is there already", source[i], edge_type, target[i]);
    }
    const float new_weight = weight != nullptr && weighted ? weight[i] : 1.0f;
    const double new_time = time != nullptr && timed ? time[i] : 0.0;
    const bool is_late = change->has && timed && new_time < change->new_time;
    const bool is_new = !change->has;
    if (change->has && spec.options.accumulate && weighted) {
      // A late event still adds its weight; time and features stay those of the latest event.
      check_weight(change->new_weight + new_weight, "a weight that adds up", edges, i);
      if (!trusted_) check_sum(change->new_weight, new_weight, edges, i);
      change->new_weight += new_weight;
      change->new_time = std::max(change->new_time, new_time);
    } else if (!is_late) {
      change->has = true;
      change->new_weight = new_weight;
      change->new_time = new_time;
    }
    if (keyed) note_key(edge_type, pair, *change);
    // A late event does not overwrite what happened after it.
    if (is_late || !spec.options.columns.featured) continue;
    const auto position = static_cast<size_t>(change - delta_.edges[edge_type].data());
    if (x != nullptr) {
      write_edge_features(edge_type, position, x + i * width);
    } else if (is_new && (change->had || edge_stages_[edge_type].slots[position] != kNoIndex)) {
      // The features that it had before it was removed, in the graph or earlier in this batch, are lost.
      write_edge_features(edge_type, position, nullptr);
    }
  }
  delta_.num_events += count;
}

void Stage::remove_edges(uint32_t edge_type, const int64_t* source, const int64_t* target, size_t count,
                         const uint32_t* key) {
  const EdgeTypeSpec& spec = graph_.edges[edge_type].spec;
  resolve_ends(spec, source, target, count);
  const GraphStore& store = *graph_.edges[edge_type].store;
  for (size_t i = 0; i < count; ++i) {
    prefetch_ahead(store, i);
    if (owners_.divided() && !keeps(spec, i)) continue;
    if (!spec.options.keyed) {
      change_of(edge_type, sources_[i], targets_[i], 0)->has = false;
      continue;
    }
    const uint32_t pair = pair_of(edge_type, sources_[i], targets_[i]);
    const std::optional<uint32_t> last = key != nullptr ? key[i] : edge_stages_[edge_type].pairs[pair].greatest();
    if (!last) continue;
    EdgeChange* change = change_of(edge_type, sources_[i], targets_[i], *last);
    change->has = false;
    note_key(edge_type, pair, *change);
  }
  delta_.num_events += count;
}

// Does nothing if the node has features of a later time. `FeatureTimes::kNever`: no event has set these.
void Stage::write_features(uint32_t node_type, uint32_t index, const float* x, size_t width, double time) {
  NodeDelta& delta = delta_.nodes[node_type];
  NodeStage& stage = node_stages_[node_type];
  const FeatureTimes& times = graph_.nodes[node_type].times;
  size_t stride = graph_.nodes[node_type].features.stride();
  uint32_t position = stage.featured.find(index);
  // An index that the batch has reserved has no time yet, as it has none in the graph.
  if (times.kept() && time < (position == kNoIndex ? times.at(index) : delta.times[position])) {
    ++delta_.late_features;
    return;
  }
  if (position == kNoIndex) {
    position = static_cast<uint32_t>(delta.featured.size());
    stage.featured.insert(index, position);
    delta.featured.push_back(index);
    delta.features.resize(delta.features.size() + stride);
    if (times.kept()) delta.times.push_back(time);
  } else if (times.kept()) {
    delta.times[position] = time;
  }
  if (width > 0) std::memcpy(delta.features.data() + position * stride, x, width * sizeof(float));
}

// A null `x` means zeros.
void Stage::write_edge_features(uint32_t edge_type, size_t position, const float* x) {
  const Table& table = graph_.edges[edge_type].features.table();
  EdgeStage& stage = edge_stages_[edge_type];
  uint32_t& slot = stage.slots[position];
  if (slot == kNoIndex) {
    slot = static_cast<uint32_t>(stage.features.size() / table.stride());
    stage.features.resize(stage.features.size() + table.stride());
  }
  float* row = stage.features.data() + slot * table.stride();
  if (x != nullptr) {
    std::memcpy(row, x, table.width() * sizeof(float));
  } else {
    std::memset(row, 0, table.width() * sizeof(float));
  }
}

void Stage::check_features(uint32_t node_type, const int64_t* ids, const float* x, size_t width, size_t count,
                           const double* time) {
  const Graph::NodeType& type = graph_.nodes[node_type];
  const Holders nodes{node_type, ids};
  check_rows(x, width, count, type.features.width(), "features", nodes);
  const double latest = check_times(time, count, "times of features", nodes);
  if (type.times.kept()) delta_.latest_time = std::max(delta_.latest_time, latest);
}

void Stage::set_features(uint32_t node_type, const int64_t* ids, const float* x, size_t width, size_t count,
                         const double* time) {
  check_features(node_type, ids, x, width, count, time);
  std::vector<float>& features = delta_.nodes[node_type].features;
  const size_t room = features.size() + count * graph_.nodes[node_type].features.stride();
  // Room for exactly this call would be moved at each: a batch may have as many calls as events.
  if (room > features.capacity()) features.reserve(std::max(room, 2 * features.capacity()));
  for (size_t i = 0; i < count; ++i) {
    write_features(node_type, resolve(node_type, ids[i]), x + i * width, width, time != nullptr ? time[i] : 0.0);
  }
  delta_.num_events += count;
}

// Reserves an index for a node that is not there.
uint32_t Stage::add_node(uint32_t node_type, int64_t id) {
  NodeDelta& delta = delta_.nodes[node_type];
  NodeStage& stage = node_stages_[node_type];
  const IdMap& map = graph_.nodes[node_type].ids;
  if (map.capacity() + stage.reserved >= kNoIndex) {
    throw EventError(BadEvent::kTooManyNodes, "a node type holds at most 4294967294 nodes", id, node_type);
  }
  const uint32_t index = map.next_index(stage.reserved++);
  stage.added.insert(static_cast<uint64_t>(id), static_cast<uint32_t>(delta.added.size()));
  delta.added.push_back(index);
  delta.added_ids.push_back(id);
  if (owners_.divided()) delta.owners.push_back(owners_.add(node_type, delta.owners.size(), index, id));
  return index;
}

void Stage::add_nodes(uint32_t node_type, const int64_t* ids, const float* x, size_t width, size_t count,
                      const double* time) {
  if (x != nullptr) check_features(node_type, ids, x, width, count, time);
  for (size_t i = 0; i < count; ++i) {
    if (ids[i] < 0) throw EventError(BadEvent::kNegativeId, "ids must be at least 0", ids[i], node_type);
    uint32_t index = find(node_type, ids[i]);
    if (index == kNoIndex) index = add_node(node_type, ids[i]);
    if (x != nullptr) write_features(node_type, index, x + i * width, width, time != nullptr ? time[i] : 0.0);
  }
  delta_.num_events += count;
}

void Stage::add_unknown(uint32_t node_type, const int64_t* ids, const float* row, size_t width, size_t count) {
  if (row != nullptr) {
    check_rows(row, width, 1, graph_.nodes[node_type].features.width(), "features", {node_type, ids});
  }
  for (size_t i = 0; i < count; ++i) {
    if (find(node_type, ids[i]) != kNoIndex) continue;
    if (ids[i] < 0) throw EventError(BadEvent::kNegativeId, "ids must be at least 0", ids[i], node_type);
    const uint32_t index = add_node(node_type, ids[i]);
    if (row != nullptr) write_features(node_type, index, row, width, FeatureTimes::kNever);
  }
}

// Adds a change to the lists of its ends.
void Stage::link(uint32_t edge_type, uint32_t position) {
  EdgeStage& stage = edge_stages_[edge_type];
  const EdgeChange& change = delta_.edges[edge_type][position];
  for (size_t side = 0; side < 2; ++side) {
    auto [at, is_new] = stage.first[side].try_emplace(side == 0 ? change.source : change.target, kNoIndex);
    stage.next[side].push_back(at->second);
    at.value() = position;
  }
}

// Removes the edges of a node that this batch has changed so far: the graph's lists do not contain those that it added.
void Stage::drop_staged(uint32_t edge_type, uint32_t node_type, uint32_t index) {
  const EdgeTypeSpec& spec = graph_.edges[edge_type].spec;
  EdgeStage& stage = edge_stages_[edge_type];
  auto& changes = delta_.edges[edge_type];
  const std::array<bool, 2> sides{spec.source_type == node_type, spec.target_type == node_type};
  // For a few nodes, searching all changes is faster than listing the changes of every node.
  if (stage.drops < kFewDrops) {
    ++stage.drops;
    for (EdgeChange& change : changes) {
      if ((sides[0] && change.source == index) || (sides[1] && change.target == index)) change.has = false;
    }
    return;
  }
  if (stage.drops == kFewDrops) {
    ++stage.drops;
    for (uint32_t position = 0; position < changes.size(); ++position) link(edge_type, position);
  }
  for (size_t side = 0; side < 2; ++side) {
    if (!sides[side]) continue;
    auto first = stage.first[side].find(index);
    if (first == stage.first[side].end()) continue;
    for (uint32_t i = first->second; i != kNoIndex; i = stage.next[side][i]) changes[i].has = false;
  }
}

void Stage::drop_edges(uint32_t node_type, uint32_t index) {
  for (uint32_t e = 0; e < graph_.edges.size(); ++e) {
    const EdgeTypeSpec& spec = graph_.edges[e].spec;
    const GraphStore& store = *graph_.edges[e].store;
    if (spec.source_type == node_type) {
      store.scan_out(index, [&](NeighborSpan span) {
        for (size_t i = 0; i < span.size; ++i) change_of(e, index, span.ids[i], key_at(span, i))->has = false;
      });
    }
    if (spec.target_type == node_type && !spec.options.undirected && store.has_in()) {
      store.scan_in(index, [&](NeighborSpan span) {
        for (size_t i = 0; i < span.size; ++i) change_of(e, span.ids[i], index, key_at(span, i))->has = false;
      });
    }
    if (spec.source_type == node_type || spec.target_type == node_type) drop_staged(e, node_type, index);
  }
}

// If a type has no in-lists, scans all edges, once for all nodes of one event.
void Stage::drop_unlisted(uint32_t edge_type, const std::vector<uint32_t>& targets) {
  const GraphStore& store = *graph_.edges[edge_type].store;
  std::vector<bool> removed(store.num_targets());
  for (uint32_t target : targets) {
    if (target < removed.size()) removed[target] = true;
  }
  for (uint32_t source = 0; source < store.num_sources(); ++source) {
    store.scan_out(source, [&](NeighborSpan span) {
      for (size_t i = 0; i < span.size; ++i) {
        if (removed[span.ids[i]]) change_of(edge_type, source, span.ids[i], key_at(span, i))->has = false;
      }
    });
  }
}

void Stage::remove_nodes(uint32_t node_type, const int64_t* ids, size_t count) {
  NodeDelta& delta = delta_.nodes[node_type];
  NodeStage& stage = node_stages_[node_type];
  std::vector<uint32_t> indices(count);
  for (size_t i = 0; i < count; ++i) {
    const uint32_t index = indices[i] = resolve(node_type, ids[i]);
    drop_edges(node_type, index);
    const uint32_t featured = stage.featured.find(index);
    if (featured != kNoIndex) {
      delta.featured[featured] = kNoIndex;
      stage.featured.erase(index);
    }
    const auto id = static_cast<uint64_t>(ids[i]);
    const uint32_t added = stage.added.find(id);
    if (added != kNoIndex) {
      // The index stays reserved, so that later ones stay valid: the node is added and removed at once.
      stage.added.erase(id);
      delta.added_ids[added] = kNoId;
      if (owners_.divided()) delta.owners[added] = Owners::kNoOwner;
    } else {
      stage.removed.insert(index, static_cast<uint32_t>(delta.removed.size()));
      delta.removed.push_back(index);
      delta.removed_ids.push_back(ids[i]);
    }
  }
  for (uint32_t e = 0; e < graph_.edges.size(); ++e) {
    if (graph_.edges[e].spec.target_type == node_type && !graph_.edges[e].store->has_in()) drop_unlisted(e, indices);
  }
  delta_.num_events += count;
}

void Stage::finish_edges(uint32_t edge_type) {
  const Graph::EdgeType& type = graph_.edges[edge_type];
  const Table& table = type.features.table();
  const EdgeColumns& columns = type.spec.options.columns;
  const EdgeStage& stage = edge_stages_[edge_type];
  EdgeFeaturesDelta& features = delta_.edge_features[edge_type];
  const std::vector<float> zeros(table.width());
  auto& changes = delta_.edges[edge_type];
  size_t kept = 0;
  for (size_t i = 0; i < changes.size(); ++i) {
    EdgeChange change = changes[i];
    if (!change.had && !change.has) continue;
    const float* x = nullptr;
    if (columns.featured && change.has && stage.slots[i] != kNoIndex) {
      x = stage.features.data() + stage.slots[i] * table.stride();
      const float* old = change.had ? table.row(change.row) : zeros.data();
      if (std::memcmp(x, old, table.width() * sizeof(float)) == 0) x = nullptr;
    }
    // The store needs a new time, although views ignore it.
    if (change.had && change.has && change.old_weight == change.new_weight && x == nullptr &&
        (!columns.timed || type.store->find(change.source, change.target, change.key)->time == change.new_time)) {
      continue;
    }
    if (columns.featured && !change.had) {
      if (features.taken == type.features.room()) {
        throw EventError(BadEvent::kTooManyEdges, "an edge type with features holds at most 4294967295 edges");
      }
      change.row = type.features.next_row(features.taken++);
    }
    if (columns.featured && !change.has) features.freed.push_back(change.row);
    if (x != nullptr) {
      features.featured.push_back(static_cast<uint32_t>(kept));
      features.rows.push_back(change.row);
      features.features.insert(features.features.end(), x, x + table.stride());
    }
    changes[kept++] = change;
  }
  changes.resize(kept);
}

void Stage::finish_nodes(uint32_t node_type) {
  NodeDelta& delta = delta_.nodes[node_type];
  const Graph::NodeType& type = graph_.nodes[node_type];
  const size_t stride = type.features.stride();
  size_t kept = 0;
  for (size_t i = 0; i < delta.featured.size(); ++i) {
    const uint32_t index = delta.featured[i];
    if (index == kNoIndex) continue;
    if (kept != i && stride > 0) {
      std::memmove(delta.features.data() + kept * stride, delta.features.data() + i * stride, stride * sizeof(float));
    }
    if (type.times.kept()) delta.times[kept] = delta.times[i];
    delta.featured[kept++] = index;
  }
  delta.featured.resize(kept);
  delta.features.resize(kept * stride);
  if (type.times.kept()) delta.times.resize(kept);
  const size_t reserved = delta.added.size(), free = type.ids.free_list().size();
  delta.capacity = type.ids.capacity() + (reserved > free ? reserved - free : 0);
}

Delta Stage::finish() {
  for (uint32_t e = 0; e < delta_.edges.size(); ++e) finish_edges(e);
  for (uint32_t n = 0; n < delta_.nodes.size(); ++n) finish_nodes(n);
  if (owners_.placing()) owners_.place(&delta_.nodes);
  // Free memory here, where no other thread waits for it, rather than in the destructor.
  edge_stages_.clear();
  node_stages_.clear();
  return std::move(delta_);
}

}  // namespace livegnn
