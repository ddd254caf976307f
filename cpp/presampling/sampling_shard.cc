#include "presampling/sampling_shard.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>

#include "store/leaf.h"

namespace livegnn {
namespace {

constexpr size_t kGroup = 32;                // whose cache misses are taken together
constexpr size_t kEdgesAtOnce = 4 * kGroup;  // published together, while their cells are in a near cache

}  // namespace

SamplingShard::SamplingShard(QueryPlan plan, ShardOptions options)
    : plan_(std::move(plan)),
      options_(std::move(options)),
      owners_(options_.serving_workers),
      received_(options_.sampling_workers) {
  const ShardOptions& o = options_;
  if (o.sampling_workers == 0 || o.worker >= o.sampling_workers) {
    throw std::invalid_argument("sampling worker " + std::to_string(o.worker) + " is none of " +
                                std::to_string(o.sampling_workers));
  }
  if (o.feature_widths.size() != plan_.num_node_types()) {
    throw std::invalid_argument("there are " + std::to_string(plan_.num_node_types()) + " node types, and widths of " +
                                std::to_string(o.feature_widths.size()));
  }
  for (size_t q = 0; q < plan_.size(); ++q) {
    const OneHopQuery& query = plan_[q];
    cells_.push_back(std::make_unique<CellTable>(plan_.cell_options(q, o.seed)));
    subscriptions_.push_back(std::make_unique<SubscriptionTable>());
    const auto same = [&](const Side& side) {
      return side.edge_type == query.edge_type && side.incoming == query.incoming;
    };
    auto side = std::find_if(sides_.begin(), sides_.end(), same);
    if (side == sides_.end()) {
      side = sides_.insert(side, {query.edge_type, query.incoming, query.undirected, {}, nullptr});
    }
    side->queries.push_back(static_cast<uint32_t>(q));
    side->timed = side->timed || has_times(query);
  }
  for (Side& side : sides_) {
    if (!o.keep_edges) continue;
    bool weighted = false;
    for (uint32_t q : side.queries) weighted = weighted || plan_[q].weighted || plan_[q].by == SampleBy::kWeight;
    side.lists = std::make_unique<NeighborLists>(weighted, side.timed);
  }
  for (size_t width : o.feature_widths) {
    features_.push_back(std::make_unique<FeatureTable>(width));
    feature_subscriptions_.push_back(std::make_unique<SubscriptionTable>());
  }
  grow_serving(o.serving_workers);
  for (uint32_t w = 0; w < o.sampling_workers; ++w) sampling_.emplace_back(o.worker, w);
}

size_t SamplingShard::bytes() const {
  size_t bytes = 0;
  for (const auto& table : cells_) bytes += table->bytes();
  for (const Side& side : sides_) bytes += side.lists == nullptr ? 0 : side.lists->bytes();
  for (const auto& table : subscriptions_) bytes += table->bytes();
  for (const auto& table : feature_subscriptions_) bytes += table->bytes();
  for (const auto& table : features_) bytes += table->bytes();
  return bytes;
}

// -- edges

void SamplingShard::check_edges(uint32_t edge_type, const EdgeBatch& edges, bool values) const {
  const size_t size = edges.sources.size();
  bool weights = false, times = false;
  for (const OneHopQuery& query : plan_.queries()) {
    if (query.edge_type != edge_type || !values) continue;
    weights = weights || query.weighted || query.by == SampleBy::kWeight;
    times = times || has_times(query);
  }
  const auto require = [&](bool holds, const char* what) {
    if (!holds) throw std::invalid_argument("edges of type " + std::to_string(edge_type) + ": " + what);
  };
  require(edges.targets.size() == size, "there must be as many targets as sources");
  require((edges.weights.empty() && !weights) || edges.weights.size() == size, "each needs a weight");
  require((edges.times.empty() && !times) || edges.times.size() == size, "each needs a time");
  const auto is_weight = [](float weight) { return std::fabs(weight) <= kMaxWeight; };
  require(std::all_of(edges.weights.begin(), edges.weights.end(), is_weight),
          "a weight must be a number whose magnitude is at most 2^96");
  require(std::all_of(edges.times.begin(), edges.times.end(), [](double time) { return std::isfinite(time); }),
          "a time must be finite");
}

// `visit(node, Neighbor)` for the ends of an edge at which this side begins, and which this worker owns.
template <class Visit>
void SamplingShard::for_each_end(const Side& side, const EdgeBatch& edges, size_t i, const Visit& visit) const {
  const uint64_t source = edges.sources[i], target = edges.targets[i];
  const float weight = edges.weights.empty() ? 1.0f : edges.weights[i];
  const double time = edges.times.empty() ? 0.0 : edges.times[i];
  if (!side.incoming && owns(source)) visit(source, Neighbor{target, weight, time});
  const bool other_end = side.incoming || (side.undirected && source != target);
  if (other_end && owns(target)) visit(target, Neighbor{source, weight, time});
}

void SamplingShard::change_lists(const Side& side, const EdgeBatch& edges, bool has) {
  if (side.lists == nullptr) return;
  list_changes_.clear();
  for (size_t i = 0; i < edges.sources.size(); ++i) {
    for_each_end(side, edges, i,
                 [&](uint64_t node, const Neighbor& neighbor) { list_changes_.push_back({node, neighbor, has}); });
  }
  side.lists->apply(list_changes_);
}

void SamplingShard::change_edges(uint32_t edge_type, const EdgeBatch& edges, bool has) {
  check_edges(edge_type, edges, has);
  for (const Side& side : sides_) {
    if (side.edge_type == edge_type) change_lists(side, edges, has);
  }
  for (size_t begin = 0; begin < edges.sources.size(); begin += kEdgesAtOnce) {
    const size_t end = std::min(edges.sources.size(), begin + kEdgesAtOnce);
    work_.clear();
    for (const Side& side : sides_) {
      if (side.edge_type != edge_type) continue;
      for (size_t i = begin; i < end; ++i) {
        for_each_end(side, edges, i, [&](uint64_t node, const Neighbor& neighbor) {
          for (uint32_t query : side.queries) {
            if (!has || !is_late(side, query, node, neighbor)) work_.push_back({query, node, neighbor});
          }
        });
      }
    }
    run_work(has);
    complete();
  }
  settle();
}

void SamplingShard::add_edges(uint32_t edge_type, const EdgeBatch& edges) { change_edges(edge_type, edges, true); }
void SamplingShard::remove_edges(uint32_t edge_type, const EdgeBatch& edges) { change_edges(edge_type, edges, false); }

// Whether the edge is there with a later time. Lists know it; without them a cell does, of what it holds.
bool SamplingShard::is_late(const Side& side, uint32_t query, uint64_t node, const Neighbor& neighbor) const {
  if (side.lists != nullptr) return side.lists->is_late(node, neighbor);
  const CellTable& cells = *cells_[query];
  if (!plan_[query].timed && plan_[query].by != SampleBy::kLatest) return false;
  const CellView cell = cells.find(node);
  for (uint32_t i = 0; i < cell.size; ++i) {
    if (cell.ids[i] == neighbor.id) return cells.format().time_at(cell, i) > neighbor.time;
  }
  return false;
}

void SamplingShard::run_work(bool has) {
  for (size_t begin = 0; begin < work_.size(); begin += kGroup) {
    const std::span<const Work> group(work_.data() + begin, std::min(kGroup, work_.size() - begin));
    for (const Work& work : group) {
      cells_[work.query]->prefetch(work.node);
      subscriptions_[work.query]->prefetch(work.node);
    }
    for (const Work& work : group) cells_[work.query]->prefetch_cell(work.node, work.neighbor.id);
    for (const Work& work : group) change_cell(work, has);
  }
}

void SamplingShard::change_cell(const Work& work, bool has) {
  CellTable& cells = *cells_[work.query];
  const CellChange change = has ? cells.insert(work.node, work.neighbor) : cells.erase(work.node, work.neighbor.id);
  if (!change.changed) return;
  bool needed = false;
  for_each_subscriber(work.query, work.node, [&](uint32_t worker) {
    needed = true;
    if (change.added) references_.push_back({work.query, worker, work.neighbor.id, 1});
    if (change.removed) references_.push_back({work.query, worker, change.removed_id, -1});
  });
  if (change.first && needed) touched_samples_.push_back({work.query, kAllWorkers, work.node});
  if (change.first && !needed) cells.take(work.node);  // nobody waits for it
  if (change.incomplete) redraw(work.query, work.node);
}

// Draws a cell anew from the node's list, where there is one.
void SamplingShard::redraw(uint32_t query, uint64_t node) {
  const auto of_query = [&](const Side& side) {
    return std::count(side.queries.begin(), side.queries.end(), query) > 0;
  };
  const NeighborLists* lists = std::find_if(sides_.begin(), sides_.end(), of_query)->lists.get();
  if (lists == nullptr) return;
  const auto refer = [&](uint64_t neighbor, int64_t change) {
    for_each_subscriber(query, node,
                        [&](uint32_t worker) { references_.push_back({query, worker, neighbor, change}); });
  };
  const bool changed = cells_[query]->redraw(
      node, [&](const auto& offer) { lists->scan(node, offer); }, [&](uint64_t id) { refer(id, -1); },
      [&](uint64_t id) { refer(id, 1); });
  if (changed) touched_samples_.push_back({query, kAllWorkers, node});
}

void SamplingShard::erase_cell(uint32_t query, uint64_t node) {
  const bool changed = cells_[query]->erase_cell(node, [&](uint64_t id) {
    for_each_subscriber(query, node, [&](uint32_t worker) { references_.push_back({query, worker, id, -1}); });
  });
  if (changed) touched_samples_.push_back({query, kAllWorkers, node});
}

// -- features

void SamplingShard::check_features(uint32_t node_type, size_t rows, std::span<const float> values) const {
  if (node_type >= features_.size()) throw std::invalid_argument("there is no node type " + std::to_string(node_type));
  const size_t width = features_[node_type]->width();
  if (values.size() != rows * width) {
    throw std::invalid_argument("expected " + std::to_string(rows) + " rows of " + std::to_string(width) +
                                " features, got " + std::to_string(values.size()) + " numbers");
  }
  const auto finite = [](float value) { return std::isfinite(value); };
  if (!std::all_of(values.begin(), values.end(), finite)) throw std::invalid_argument("a feature must be finite");
}

void SamplingShard::set_features(uint32_t node_type, std::span<const uint64_t> nodes, std::span<const float> rows) {
  check_features(node_type, nodes.size(), rows);
  FeatureTable& table = *features_[node_type];
  const size_t width = table.width();
  if (width == 0) return;
  for (size_t begin = 0; begin < nodes.size(); begin += kGroup) {
    const size_t end = std::min(nodes.size(), begin + kGroup);
    for (size_t i = begin; i < end; ++i) {
      table.prefetch(nodes[i]);
      feature_subscriptions_[node_type]->prefetch(nodes[i]);
    }
    for (size_t i = begin; i < end; ++i) {
      if (owns(nodes[i]) && table.set(nodes[i], rows.data() + i * width)) {
        touched_features_.push_back({node_type, kAllWorkers, nodes[i]});
      }
    }
    complete();
  }
}

void SamplingShard::add_missing(uint32_t node_type, std::span<const uint64_t> nodes, std::span<const float> row) {
  check_features(node_type, 1, row);
  FeatureTable& table = *features_[node_type];
  if (table.width() == 0) return;
  for (uint64_t node : nodes) {
    if (!owns(node) || table.row_of(node) != FeatureTable::kNoRow) continue;
    table.set(node, row.data());
    touched_features_.push_back({node_type, kAllWorkers, node});
  }
  complete();
}

// -- subscriptions

// `visit(worker)` for each serving worker that has the samples of a node.
template <class Visit>
void SamplingShard::for_each_subscriber(uint32_t query, uint64_t node, const Visit& visit) const {
  if (plan_[query].of_seeds()) {
    for_each_owner(node, visit);
  } else {
    subscriptions_[query]->for_each_worker(node, visit);
  }
}

void SamplingShard::pass_references() {
  for (size_t begin = 0; begin < references_.size();) {
    const size_t end = std::min(references_.size(), begin + kGroup);
    for (size_t i = begin; i < end; ++i) {
      const Reference& reference = references_[i];
      feature_subscriptions_[plan_[reference.query].neighbor_type]->prefetch(reference.node);
      for (uint32_t child : plan_[reference.query].children) {
        subscriptions_[child]->prefetch(reference.node);
        cells_[child]->prefetch(reference.node);
      }
    }
    for (size_t i = begin; i < end; ++i) {
      const Reference& reference = references_[i];
      for (uint32_t child : plan_[reference.query].children) {
        if (!subscriptions_[child]->has(reference.node)) cells_[child]->prefetch_cell(reference.node);
      }
    }
    for (size_t i = begin; i < end; ++i) apply_reference(Reference(references_[i]));
    begin = end;
  }
  references_.clear();
}

void SamplingShard::apply_reference(const Reference& reference) {
  const uint32_t owner = sampling_worker_of(reference.node, options_.sampling_workers);
  if (owner != options_.worker) {
    sampling_[owner].reference(reference.query, reference.node, reference.worker, reference.change);
    return;
  }
  for (uint32_t child : plan_[reference.query].children) subscribe(child, reference);
  const uint32_t type = plan_[reference.query].neighbor_type;
  if (features_[type]->width() == 0) return;
  const Subscribed result = feature_subscriptions_[type]->add(reference.node, reference.worker, reference.change);
  if (result == Subscribed::kAsBefore || is_seed_of(type, reference.node, reference.worker)) return;
  if (result == Subscribed::kNoLonger ||
      (result == Subscribed::kNow && features_[type]->row_of(reference.node) != FeatureTable::kNoRow)) {
    touched_features_.push_back({type, reference.worker, reference.node});
  }
}

void SamplingShard::subscribe(uint32_t query, const Reference& reference) {
  const Subscribed result = subscriptions_[query]->add(reference.node, reference.worker, reference.change);
  if (result == Subscribed::kAsBefore) return;
  const CellView cell = cells_[query]->find(reference.node);
  const bool now = result == Subscribed::kNow;
  if (!now || cell.size > 0) touched_samples_.push_back({query, reference.worker, reference.node});
  for (uint32_t i = 0; i < cell.size; ++i) {
    references_.push_back({query, reference.worker, cell.ids[i], now ? 1 : -1});
  }
}

void SamplingShard::receive(std::span<const uint8_t> blocks) {
  while (!blocks.empty()) {
    const PublishedBlock block = PublishedBlock::read(&blocks);
    if (block.header().receiver != options_.worker) {
      throw std::runtime_error("published block: it is for sampling worker " + std::to_string(block.header().receiver) +
                               ", and this is number " + std::to_string(options_.worker));
    }
    if (!received_.is_next(block.header())) continue;
    block.for_each([&](const Record& record) {
      if (record.kind != RecordKind::kReference || record.what >= plan_.size() || record.worker >= kMaxServingWorkers ||
          !owns(record.node)) {
        throw std::runtime_error("published block: a record that is not for this sampling worker");
      }
      grow_serving(record.worker + 1);
    });
    block.for_each(
        [&](const Record& record) { references_.push_back({record.what, record.worker, record.node, record.change}); });
    complete();
    received_.passed(block.header());
  }
  settle();
}

// -- publishing

void SamplingShard::complete() {
  pass_references();
  publish_samples();
  publish_features();
}

void SamplingShard::publish_samples() {
  for (const Touched& touched : touched_samples_) {
    if (touched.worker != kAllWorkers) {
      publish_sample(touched.what, touched.node, touched.worker, cells_[touched.what]->find(touched.node));
      continue;
    }
    const CellTable& cells = *cells_[touched.what];
    const CellView cell = cells_[touched.what]->take(touched.node);
    for_each_subscriber(touched.what, touched.node, [&](uint32_t worker) {
      if (cell.size > 0) {
        serving_[worker].sample(touched.what, touched.node, cells.format(), cell);
      } else {
        serving_[worker].no_sample(touched.what, touched.node);
      }
    });
  }
  touched_samples_.clear();
}

// As it is now: whatever a worker was told before, in this event or an earlier one, it has this afterwards.
void SamplingShard::publish_sample(uint32_t query, uint64_t node, uint32_t worker, const CellView& cell) {
  const bool needed = plan_[query].of_seeds() ? is_seed_of(plan_.seed_type(), node, worker)
                                              : subscriptions_[query]->count(node, worker) > 0;
  if (needed && cell.size > 0) {
    serving_[worker].sample(query, node, cells_[query]->format(), cell);
  } else {
    serving_[worker].no_sample(query, node);
  }
}

void SamplingShard::publish_features() {
  for (const Touched& touched : touched_features_) {
    if (touched.worker != kAllWorkers) {
      publish_row(touched.what, touched.node, touched.worker);
      continue;
    }
    if (touched.what == plan_.seed_type()) {
      for_each_owner(touched.node, [&](uint32_t worker) { publish_row(touched.what, touched.node, worker); });
    }
    feature_subscriptions_[touched.what]->for_each_worker(touched.node, [&](uint32_t worker) {
      if (!is_seed_of(touched.what, touched.node, worker)) publish_row(touched.what, touched.node, worker);
    });
  }
  touched_features_.clear();
}

void SamplingShard::publish_row(uint32_t node_type, uint64_t node, uint32_t worker) {
  const float* row = features_[node_type]->find(node);
  const bool needed = is_seed_of(node_type, node, worker) || feature_subscriptions_[node_type]->count(node, worker) > 0;
  if (needed && row != nullptr) {
    serving_[worker].features(node_type, node, {row, features_[node_type]->width()});
  } else {
    serving_[worker].no_features(node_type, node);
  }
}

void SamplingShard::publish_all(uint32_t worker) {
  if (worker >= serving_.size()) {
    throw std::invalid_argument("there is no serving worker " + std::to_string(worker));
  }
  serving_[worker] = PublicationWriter(options_.worker, worker);
  for (uint32_t q = 0; q < plan_.size(); ++q) {
    std::vector<uint64_t> nodes;
    cells_[q]->for_each([&](uint64_t node, const CellView&) {
      const bool needed = plan_[q].of_seeds() ? is_seed_of(plan_.seed_type(), node, worker)
                                              : subscriptions_[q]->count(node, worker) > 0;
      if (needed) nodes.push_back(node);
    });
    std::sort(nodes.begin(), nodes.end());  // as in `remove_sorted`
    for (uint64_t node : nodes) publish_sample(q, node, worker, cells_[q]->find(node));
  }
  for (uint32_t type = 0; type < features_.size(); ++type) {
    for (uint32_t row = 0; row < features_[type]->size(); ++row) {
      const uint64_t node = features_[type]->node_of(row);
      if (is_seed_of(type, node, worker) || feature_subscriptions_[type]->count(node, worker) > 0) {
        publish_row(type, node, worker);
      }
    }
  }
}

void SamplingShard::finish() {
  for (PublicationWriter& writer : serving_) writer.finish();
  for (PublicationWriter& writer : sampling_) writer.finish();
}

void SamplingShard::clear_outbox() noexcept {
  for (PublicationWriter& writer : serving_) writer.clear();
  for (PublicationWriter& writer : sampling_) writer.clear();
}

size_t SamplingShard::records_written() const {
  size_t records = 0;
  for (const PublicationWriter& writer : serving_) records += writer.records_written();
  for (const PublicationWriter& writer : sampling_) records += writer.records_written();
  return records;
}

void SamplingShard::settle() {
  for (const auto& table : cells_) table->settle();
  for (const auto& table : subscriptions_) table->settle();
  for (const auto& table : feature_subscriptions_) table->settle();
}

}  // namespace livegnn
