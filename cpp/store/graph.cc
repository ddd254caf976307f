#include "store/graph.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <mutex>
#include <new>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>

#include "hashing/mix_hash.h"
#include "store/owners_after.h"
#include "store/part_features.h"
#include "threads/parallel.h"

namespace livegnn {
namespace {

// The node to whose block an edge belongs.
uint32_t owner_of(const Graph::EdgeType& type, uint32_t source, uint32_t target) {
  return type.spec.options.undirected ? std::min(source, target) : source;
}

void count_edges(const Delta& delta, const OwnersAfter& owners, const std::vector<Graph::EdgeType>& types,
                 GraphPart* part) {
  part->begin_count(types.size());
  for (uint32_t e = 0; e < types.size(); ++e) {
    const EdgeTypeSpec& spec = types[e].spec;
    for (const EdgeChange& change : delta.edges[e]) {
      if (change.had == change.has) continue;
      const bool turned = owner_of(types[e], change.source, change.target) != change.source;
      const auto [first, second] =
          turned ? std::pair(change.target, change.source) : std::pair(change.source, change.target);
      part->count(e, {spec.source_type, spec.target_type}, owners.owns(spec.source_type, first),
                  owners.owns(spec.target_type, second), change.has ? 1 : -1);
    }
  }
}

void check_row(uint32_t row, size_t rows) {
  if (row >= rows) {
    throw std::runtime_error("out/row: expected rows below " + std::to_string(rows) + ", got " + std::to_string(row));
  }
}

void check_width(size_t width, size_t expected) {
  if (width == expected) return;
  throw std::runtime_error("x: expected rows of " + std::to_string(expected) + " numbers, got " +
                           std::to_string(width));
}

// Features that events set are finite. Rows that nobody has are zero, because what takes one may bring no features.
void check_features(const float* values, size_t rows, size_t width, std::span<const uint32_t> free) {
  for (size_t i = 0; i < rows * width; ++i) {
    if (std::isfinite(values[i])) continue;
    throw std::runtime_error("x: expected finite numbers, got " + std::to_string(values[i]) + " in row " +
                             std::to_string(i / width));
  }
  for (uint32_t row : free) {
    if (std::all_of(values + row * width, values + (row + 1) * width, [](float value) { return value == 0; })) continue;
    throw std::runtime_error("x: expected zeros in row " + std::to_string(row) + ", which is free, got other numbers");
  }
}

// A hash of an edge and of everything that a list stores about it. The factors are arbitrary odd numbers.
uint64_t print_of(uint32_t source, uint32_t target, const NeighborSpan& span, size_t i) {
  uint64_t sum = (uint64_t{source} << 32 | target) * 0x9e3779b97f4a7c15ULL;
  if (span.keys != nullptr) sum += span.keys[i] * 0xd1b54a32d192ed03ULL;
  if (span.rows != nullptr) sum += span.rows[i] * 0xaef17502108ef2d9ULL;
  if (span.weights != nullptr) sum += std::bit_cast<uint32_t>(span.weights[i]) * 0xf1357aea2e62a9c5ULL;
  if (span.times != nullptr) sum += std::bit_cast<uint64_t>(span.times[i]) * 0x8cb92ba72f3d8dd7ULL;
  return MixHash{}(sum);
}

void check_ends(const char* side, const IdMap& ids, uint32_t node, const IdMap& others, const NeighborSpan& span) {
  if (!ids.in_use(node)) {
    throw std::runtime_error(std::string(side) + "/shape: expected no edges of index " + std::to_string(node) +
                             ", which no node has, got " + std::to_string(span.size));
  }
  if (others.free_list().empty()) return;
  for (size_t i = 0; i < span.size; ++i) {
    if (others.in_use(span.ids[i])) continue;
    throw std::runtime_error(std::string(side) + "/ids: expected indices of nodes, got " + std::to_string(span.ids[i]) +
                             ", which no node has");
  }
}

// An edge that was added without a time has time 0, which is no event's.
void check_times(const NeighborSpan& span, double latest) {
  for (size_t i = 0; span.times != nullptr && i < span.size; ++i) {
    if (span.times[i] <= latest || span.times[i] == 0) continue;
    throw std::runtime_error("out/time: expected times up to the latest_time, " + std::to_string(latest) + ", got " +
                             std::to_string(span.times[i]));
  }
}

}  // namespace

Graph::Graph(const std::vector<size_t>& feature_widths, const std::vector<EdgeTypeSpec>& edge_types, size_t threads,
             const std::string& features_directory, std::span<const uint32_t> timed_features)
    : features_directory_(features_directory), pool_(std::make_unique<ThreadPool>(threads)) {
  for (uint32_t n = 0; n < feature_widths.size(); ++n) {
    const bool timed = std::find(timed_features.begin(), timed_features.end(), n) != timed_features.end();
    nodes.push_back({{}, NodeFeatures(feature_widths[n], features_directory), FeatureTimes(timed)});
  }
  for (EdgeTypeSpec spec : edge_types) {
    spec.options.columns.featured = spec.width > 0;
    edges.push_back(
        {spec, std::make_unique<GraphStore>(spec.options), EdgeFeatures(spec.width, features_directory), {}});
  }
}

// Called before the lists change. If the batch is abandoned, the bounds are lower than necessary, which is harmless.
void Graph::note_times(EdgeType* type, const std::vector<EdgeChange>& changes, size_t capacity) {
  if (!type->spec.expires) return;
  type->earliest.resize(capacity);
  for (const EdgeChange& change : changes) {
    if (change.has) type->earliest.note(owner_of(*type, change.source, change.target), change.new_time);
  }
}

std::vector<EdgeName> Graph::expired(uint32_t edge_type, double horizon) {
  EdgeType& type = edges[edge_type];
  std::vector<EdgeName> found;
  for (size_t block = 0; block < type.earliest.num_blocks(); ++block) {
    if (!type.earliest.before(block, horizon)) continue;
    double earliest = EarliestTimes::kNever;
    for (uint32_t i = 0; i < EarliestTimes::kBlock; ++i) {
      const auto node = static_cast<uint32_t>(block * EarliestTimes::kBlock + i);
      if (part != nullptr && !part->owns(type.spec.source_type, node)) continue;  // its owner has all its edges
      type.store->scan_out(node, [&](NeighborSpan span) {
        for (size_t k = 0; k < span.size; ++k) {
          if (owner_of(type, node, span.ids[k]) != node) continue;
          earliest = std::min(earliest, span.times[k]);
          if (span.times[k] < horizon) found.push_back({node, span.ids[k], key_at(span, k)});
        }
      });
    }
    type.earliest.tighten(block, earliest);
  }
  return found;
}

void Graph::divide(std::unique_ptr<GraphPart> as) {
  part = std::move(as);
  for (NodeType& type : nodes) type.features.divide(shares_features());
}

void Graph::prepare(const Delta& delta) {
  try {
    for (size_t n = 0; n < nodes.size(); ++n) {
      const NodeDelta& change = delta.nodes[n];
      if (!shares_features()) nodes[n].features.prepare(change.capacity);
      nodes[n].times.prepare(change.capacity);
      const auto passing = static_cast<size_t>(std::count(change.added_ids.begin(), change.added_ids.end(), kNoId));
      nodes[n].ids.prepare(change.added_ids, change.removed.size() + passing);
      if (part != nullptr) {
        part->prepare(static_cast<uint32_t>(n), change.added, change.owners, change.removed, change.capacity);
      }
    }
    for (size_t e = 0; e < edges.size(); ++e) {
      EdgeType& type = edges[e];
      type.features.prepare(delta.edge_features[e]);
      type.store->prepare_nodes(delta.nodes[type.spec.source_type].capacity,
                                delta.nodes[type.spec.target_type].capacity);
      note_times(&type, delta.edges[e], delta.nodes[type.spec.source_type].capacity);
      updates_.clear();
      updates_.reserve(delta.edges[e].size());
      need_ = std::max(need_, delta.edges[e].size());
      for (const EdgeChange& change : delta.edges[e]) {
        updates_.push_back(
            {change.source, change.target, change.has, {change.new_weight, change.new_time, change.row}, change.key});
      }
      type.store->prepare(updates_, pool_.get());
    }
    if (part == nullptr) return;
    const OwnersAfter owners(*part, delta);
    count_edges(delta, owners, edges, part.get());
    if (shares_features()) prepare_features(delta, owners, this);
  } catch (...) {
    abandon();
    throw;
  }
}

void Graph::settle_tables() noexcept {
  for (NodeType& type : nodes) {
    type.ids.settle();
    type.features.settle();
    type.times.settle();
  }
  for (EdgeType& type : edges) type.features.settle();
  if (part != nullptr) part->settle();
}

void Graph::abandon() noexcept {
  settle_tables();
  for (EdgeType& type : edges) type.store->abandon();
}

void Graph::settle() noexcept {
  settle_tables();
  if (texts) texts->collect_if_due();
  size_t given_back = 0;
  if (needs_.outgrown(std::exchange(need_, 0))) {
    given_back = bytes_of(updates_);
    give_back(&updates_);
  }
  updates_bytes_ = bytes_of(updates_);
  for (EdgeType& type : edges) {
    given_back += type.store->settle();
    try {
      if (!type.store->prepare_compaction()) continue;
    } catch (const std::bad_alloc&) {
      continue;  // The next batch will try again.
    }
    if (type.store->is_moved()) {
      std::unique_lock alone(lock);
      type.store->commit();
    }
    given_back += type.store->settle();
  }
  return_freed(given_back);
}

void Graph::commit(const Delta& delta) noexcept {
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
    type.ids.adopt();
    if (texts) texts->retain(change.added_ids);
    if (texts) texts->release(change.removed_ids);
    // Added nodes get the indices that are free now, before the indices of removed nodes become free.
    for (int64_t id : change.added_ids) type.ids.insert(id);
    for (size_t i = 0; i < change.added.size(); ++i) {
      if (change.added_ids[i] == kNoId) type.ids.release(change.added[i]);
    }
    if (part != nullptr) part->commit(static_cast<uint32_t>(n), change.owners, change.removed);
    type.features.commit(change.capacity);
    type.times.commit(change.capacity);
    for (uint32_t index : change.removed) {
      type.ids.erase(index);
      type.features.clear_row(index);
      type.times.clear(index);
    }
    for (size_t i = 0; i < change.featured.size(); ++i) {
      type.features.write(change.featured[i], change.features.data() + i * type.features.stride());
    }
    for (size_t i = 0; i < change.times.size(); ++i) type.times.write(change.featured[i], change.times[i]);
  }
  if (part != nullptr) part->finish_commit();
}

// Checks that every end is a node, and that both lists of an edge agree: then the sums of hashes over both sides are
// equal. Looking up each edge of one side in the other would take many times as long.
void Graph::check_lists(const EdgeType& type) const {
  const IdMap &sources = nodes[type.spec.source_type].ids, &targets = nodes[type.spec.target_type].ids;
  const bool undirected = type.spec.options.undirected;
  uint64_t out = 0, in = 0;
  for (uint32_t node = 0; node < type.store->num_sources(); ++node) {
    type.store->scan_out(node, [&](const NeighborSpan& span) {
      check_ends("out", sources, node, targets, span);
      check_times(span, latest_time);
      for (size_t i = 0; i < span.size; ++i) {
        const uint32_t other = span.ids[i];
        if (!undirected || node < other) out += print_of(node, other, span, i);
        if (undirected && node > other) in += print_of(other, node, span, i);
      }
    });
  }
  if (!type.store->has_in()) return;
  for (uint32_t node = 0; !undirected && node < type.store->num_targets(); ++node) {
    type.store->scan_in(node, [&](const NeighborSpan& span) {
      check_ends("in", targets, node, sources, span);
      for (size_t i = 0; i < span.size; ++i) in += print_of(span.ids[i], node, span, i);
    });
  }
  if (out == in) return;
  throw std::runtime_error(undirected
                               ? "out/ids: expected each edge alike in the lists of both ends, got two that differ"
                               : "in/ids: expected the edges of out with the same columns, got others");
}

// The edges of a part, as `count_edges` counts those of its batches.
void Graph::count_loaded(uint32_t edge_type) {
  const EdgeType& type = edges[edge_type];
  const std::pair<uint32_t, uint32_t> types{type.spec.source_type, type.spec.target_type};
  part->begin_count(edges.size());
  for (uint32_t source = 0; source < type.store->num_sources(); ++source) {
    const bool owns_source = part->owns(types.first, source);
    type.store->scan_out(source, [&](const NeighborSpan& span) {
      for (size_t i = 0; i < span.size; ++i) {
        if (owner_of(type, source, span.ids[i]) != source) continue;  // in the list of the other end
        part->count(edge_type, types, owns_source, part->owns(types.second, span.ids[i]), 1);
      }
    });
  }
  part->finish_count();
}

void Graph::load_nodes(uint32_t node_type, std::vector<int64_t> ids, std::vector<uint32_t> free, const float* values,
                       size_t rows, size_t width) {
  NodeType& type = nodes[node_type];
  check_width(width, type.features.width());
  const size_t expected = shares_features() ? 0 : ids.size();
  if (rows != expected) {
    throw std::runtime_error("x: expected " + std::to_string(expected) + " rows, as many as ids, got " +
                             std::to_string(rows));
  }
  if (texts) texts->retain(ids);  // before what throws: the destructor releases those that are there
  type.ids.restore(std::move(ids), std::move(free));
  if (part != nullptr) part->load(node_type, type.ids.ids());
  if (shares_features()) return type.features.hold({}, type.ids.capacity());
  check_features(values, rows, width, type.ids.free_list());
  type.features.hold({}, rows);
  for (uint32_t i = 0; i < rows; ++i) type.features.write(i, values + i * width);
}

void Graph::load_held_features(uint32_t node_type, std::span<const uint32_t> held, const float* values, size_t rows,
                               size_t width) {
  NodeType& type = nodes[node_type];
  check_width(width, type.features.width());
  if (rows != held.size()) {
    throw std::runtime_error("x: expected " + std::to_string(held.size()) + " rows, as many as held nodes, got " +
                             std::to_string(rows));
  }
  for (size_t i = 0; i < rows; ++i) {
    if (type.ids.in_use(held[i]) && (i == 0 || held[i] > held[i - 1])) continue;
    throw std::runtime_error("held: expected indices of nodes, each once and in growing order, got " +
                             std::to_string(held[i]));
  }
  check_features(values, rows, width, {});
  type.features.hold(held, type.ids.capacity());
  for (size_t i = 0; i < rows; ++i) type.features.write(held[i], values + i * width);
}

void Graph::load_feature_times(uint32_t node_type, std::vector<double> times) {
  NodeType& type = nodes[node_type];
  if (times.size() != type.ids.capacity()) {
    throw std::runtime_error("time: expected " + std::to_string(type.ids.capacity()) + " times, as many as ids, got " +
                             std::to_string(times.size()));
  }
  for (uint32_t i = 0; i < times.size(); ++i) {
    if (times[i] == FeatureTimes::kNever) continue;
    if (type.ids.in_use(i) && std::isfinite(times[i]) && (times[i] <= latest_time || times[i] == 0)) continue;
    throw std::runtime_error("time: expected times of nodes up to the latest_time, " + std::to_string(latest_time) +
                             ", and else -inf, got " + std::to_string(times[i]) + " for index " + std::to_string(i));
  }
  type.times.load(std::move(times));
}

void Graph::load_edge_features(uint32_t edge_type, const float* values, size_t rows, size_t width,
                               std::vector<uint32_t> free) {
  EdgeType& type = edges[edge_type];
  check_width(width, type.spec.width);
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
  type.features.restore(values, rows, std::move(free), used);
  check_features(values, rows, width, type.features.free_list());
}

}  // namespace livegnn
