#include "presampling/shard/sampling_shard.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>

namespace livegnn {
namespace {

constexpr size_t kGroup = 32;            // rows of features whose cache misses are taken together
constexpr size_t kReferencesAhead = 16;  // references for which cells are fetched before they are needed

}  // namespace

SamplingShard::SamplingShard(QueryPlan plan, ShardOptions options)
    : plan_(std::move(plan)),
      options_(std::move(options)),
      node_owners_(OwnerRule::kModulo, options_.sampling_workers),
      owners_(OwnerRule::kJump, options_.serving_workers),
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
  make_sides();
  make_tables();
  grow_serving(o.serving_workers);
  for (uint32_t w = 0; w < o.sampling_workers; ++w) sampling_.emplace_back(o.worker, w);
}

void SamplingShard::make_sides() {
  for (size_t q = 0; q < plan_.size(); ++q) {
    const OneHopQuery& query = plan_[q];
    const auto same = [&](const Side& side) {
      return side.edge_type == query.edge_type && side.incoming == query.incoming;
    };
    auto side = std::find_if(sides_.begin(), sides_.end(), same);
    if (side == sides_.end()) {
      side = sides_.insert(side, {query.edge_type, query.incoming, query.undirected, {}, nullptr, nullptr});
      side->nodes = std::make_unique<NodeTable>();
    }
    side->queries.push_back(static_cast<uint32_t>(q));
    side->timed = side->timed || has_times(query);
    sides_of_.push_back(static_cast<size_t>(side - sides_.begin()));
  }
  for (Side& side : sides_) {
    most_queries_ = std::max(most_queries_, side.queries.size());
    if (!options_.keep_edges) continue;
    bool weighted = false;
    for (uint32_t q : side.queries) weighted = weighted || plan_[q].weighted || plan_[q].by == SampleBy::kWeight;
    side.lists = std::make_unique<NeighborLists>(weighted, side.timed);
  }
}

void SamplingShard::make_tables() {
  for (size_t q = 0; q < plan_.size(); ++q) {
    NodeTable* const nodes = sides_[sides_of_[q]].nodes.get();
    cells_.push_back(std::make_unique<CellTable>(plan_.cell_options(q, options_.seed), nodes));
    // Who needs a sample of the first hop follows from the node.
    subscriptions_.push_back(std::make_unique<SubscriptionTable>(plan_[q].of_seeds() ? nullptr : nodes));
  }
  for (uint32_t type = 0; type < options_.feature_widths.size(); ++type) {
    features_.push_back(std::make_unique<FeatureTable>(options_.feature_widths[type]));
    const auto has_keys = [&](const Side& side) { return plan_[side.queries[0]].key_type == type; };
    const auto side = std::find_if(sides_.begin(), sides_.end(), has_keys);
    const bool shares = side != sides_.end() && options_.feature_widths[type] > 0;
    feature_subscriptions_.push_back(std::make_unique<SubscriptionTable>(shares ? side->nodes.get() : nullptr));
  }
  make_referred();
  for (uint32_t q = 0; q < plan_.size(); ++q) {
    tables_.push_back({side_of(q).nodes.get(), cells_[q].get(), subscriptions_[q].get(), plan_[q].of_seeds(),
                       cells_[q]->format().has_ids_alone(), options_.sampling_workers > 1 || !referred_[q].empty()});
    Side& side = sides_[sides_of_[q]];
    side.ids_alone = side.ids_alone && tables_[q].ids_alone;
  }
}

void SamplingShard::make_referred() {
  for (const OneHopQuery& query : plan_.queries()) {
    std::vector<Referred>& referred = referred_.emplace_back();
    for (uint32_t child : query.children) {
      NodeTable* const nodes = side_of(child).nodes.get();
      if (referred.empty() || referred.back().nodes != nodes) referred.push_back({nodes, {}});
      referred.back().children.push_back(child);
    }
    if (features_[query.neighbor_type]->width() == 0) continue;
    SubscriptionTable* const features = feature_subscriptions_[query.neighbor_type].get();
    const auto same = [&](const Referred& one) { return one.nodes == features->nodes(); };
    auto at = std::find_if(referred.begin(), referred.end(), same);
    if (at == referred.end()) at = referred.insert(at, {features->nodes(), {}});
    at->features = true;
  }
}

size_t SamplingShard::bytes() const {
  size_t bytes = 0;
  for (const auto& table : cells_) bytes += table->bytes();
  for (const Side& side : sides_) bytes += side.nodes->bytes() + (side.lists == nullptr ? 0 : side.lists->bytes());
  for (const auto& table : subscriptions_) bytes += table->bytes();
  for (const auto& table : feature_subscriptions_) bytes += table->bytes();
  for (const auto& table : features_) bytes += table->bytes();
  return bytes;
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
      feature_subscriptions_[node_type]->nodes()->prefetch(NodeTable::hash_of(nodes[i]));
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

void SamplingShard::pass_references() {
  for (size_t i = 0, fetched = 0; i < references_.size(); ++i) {
    for (; fetched < std::min(references_.size(), i + kReferencesAhead); ++fetched)
      prefetch_referred(&references_[fetched]);
    apply_reference(references_[i]);  // which may lead to more
  }
  references_.clear();
}

// Fetches the cells that the reference may be the first to need. Reads what `refer` fetches.
inline void SamplingShard::prefetch_referred(Reference* reference) const {
  if (reference->owner != options_.worker) return;
  bool first = true;
  for (const Referred& referred : referred_[reference->query]) {
    uint64_t* const row = referred.nodes->find(reference->node, reference->hash);
    if (std::exchange(first, false)) {
      reference->row = row;
      reference->moves = static_cast<uint32_t>(referred.nodes->moves());
    }
    if (row == nullptr) continue;
    for (uint32_t child : referred.children) {
      const Tables& tables = tables_[child];
      if (!tables.subscriptions->has_at(row)) tables.cells->prefetch_cell(row);
    }
  }
}

inline void SamplingShard::apply_reference(const Reference& reference) {
  // The reference itself moves when it leads to others.
  const auto [node, hash, change, known, query, worker, owner, moves] = reference;
  if (owner != options_.worker) return sampling_[owner].reference(query, node, worker, change);
  uint64_t* row = known;
  for (const Referred& referred : referred_[query]) {
    if (row == nullptr || moves != static_cast<uint32_t>(referred.nodes->moves())) {
      row = referred.nodes->insert(node, hash);
    }
    for (uint32_t child : referred.children) subscribe(child, row, worker, change);
    if (referred.features) subscribe_features(plan_[query].neighbor_type, row, worker, change);
    if (change <= 0) referred.nodes->release(row);
    row = nullptr;
  }
}

inline void SamplingShard::subscribe(uint32_t query, uint64_t* row, uint32_t worker, int64_t change) {
  const Tables& tables = tables_[query];
  const Subscribed result = tables.subscriptions->add_at(row, worker, change);
  if (result == Subscribed::kAsBefore) return;
  const CellView cell = tables.cells->at(row);
  const bool now = result == Subscribed::kNow;
  if (!now || cell.size > 0) touched_samples_.push_back({query, worker, row[0], row, tables.nodes->moves()});
  if (!tables.refers) return;
  for (uint32_t i = 0; i < cell.size; ++i) refer(query, worker, cell.ids[i], now ? 1 : -1);
}

void SamplingShard::subscribe_features(uint32_t type, uint64_t* row, uint32_t worker, int64_t change) {
  const Subscribed result = feature_subscriptions_[type]->add_at(row, worker, change);
  if (result == Subscribed::kAsBefore || is_seed_of(type, row[0], worker)) return;
  if (result == Subscribed::kNoLonger ||
      (result == Subscribed::kNow && features_[type]->row_of(row[0]) != FeatureTable::kNoRow)) {
    touched_features_.push_back({type, worker, row[0]});
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
    block.for_each([&](const Record& record) { refer(record.what, record.worker, record.node, record.change); });
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

inline void SamplingShard::tell_sample(uint32_t query, uint64_t node, uint32_t worker, const CellView& cell) {
  const CellFormat& format = tables_[query].cells->format();
  if (cell.size == 0) {
    serving_[worker].no_sample(query, node);
  } else if (tables_[query].ids_alone) {
    serving_[worker].sample_of_ids(query, node, format, cell);
  } else {
    serving_[worker].sample(query, node, format, cell);
  }
}

void SamplingShard::publish_samples() {
  for (const Touched& touched : touched_samples_) {
    const Tables& tables = tables_[touched.what];
    uint64_t* const row = touched.moves == tables.nodes->moves() ? touched.row : tables.nodes->find(touched.node);
    if (touched.worker != kAllWorkers) {
      publish_sample(touched.what, touched.node, touched.worker, row);
      continue;
    }
    const CellView cell = tables.cells->take_at(row);
    for_each_subscriber(touched.what, touched.node, row,
                        [&](uint32_t worker) { tell_sample(touched.what, touched.node, worker, cell); });
  }
  touched_samples_.clear();
}

// As it is now: whatever a worker was told before, in this event or an earlier one, it has this afterwards.
void SamplingShard::publish_sample(uint32_t query, uint64_t node, uint32_t worker, const uint64_t* row) {
  const bool needed = plan_[query].of_seeds() ? is_seed_of(plan_.seed_type(), node, worker)
                                              : subscriptions_[query]->count_at(row, worker) > 0;
  tell_sample(query, node, worker, needed ? cells_[query]->at(row) : CellView{});
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
    for (uint64_t node : nodes) publish_sample(q, node, worker, side_of(q).nodes->find(node));
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
