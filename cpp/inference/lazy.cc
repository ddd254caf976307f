// What a lazy engine records of batches, and how it settles.
#include "inference/lazy.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <mutex>
#include <utility>

#include "inference/directed_changes.h"
#include "inference/engine_scratch.h"
#include "inference/message_sums.h"
#include "program/kernels.h"

namespace livegnn {
namespace {

// An engine settles when what it has recorded (changed edges and new features) comes to a sixteenth of the graph. A
// recorded edge takes a few times the memory of one in the store, and a query adds it as one more term: at a sixteenth,
// the record is some third of the graph's own memory, and queries read a sixteenth more. The number of nodes reached
// would be no measure: in a dense graph a few events reach all nodes, and yet nothing is computed that is not asked
// for. Small graphs settle after so many changes, whatever their size.
constexpr size_t kMostOfGraph = 16, kMostOfSmallGraph = 1024;

bool same_messages(const DirectedChange& change, bool weighted) {
  return change.had && change.has && (!weighted || change.old_weight == change.new_weight);
}

}  // namespace

// -- the engine's side

bool Engine::be_lazy(size_t eager) {
  if (!Lazy::knows(program_, eager)) return false;
  lazy_ = std::make_unique<Lazy>(this, eager, pool_->threads());
  return true;
}

void Engine::prepare_batch(const Delta& delta, Prepared* prepared) {
  if (lazy_ == nullptr) return prepare(delta, prepared);
  const bool removes = std::any_of(delta.nodes.begin(), delta.nodes.end(),
                                   [](const NodeDelta& nodes) { return !nodes.removed.empty(); });
  if (removes) {
    settle();
    return prepare(delta, prepared);
  }
  forget_units(prepared);
  prepare_steps(delta, lazy_->eager(), prepared);
  lazy_->prepare(delta, prepared);
}

void Engine::predict(std::span<const uint32_t> nodes, float* out, size_t output) const {
  if (lazy_ != nullptr) return lazy_->predict(nodes, out, output);
  predict_kept(nodes, out, output);
}

void Engine::settle() {
  if (lazy_ != nullptr) lazy_->settle();
}
bool Engine::outgrown_by(const Delta& delta) const { return lazy_ != nullptr && lazy_->outgrown_by(delta); }
size_t Engine::pending() const { return lazy_ == nullptr ? 0 : lazy_->pending(); }
LazyWork Engine::work() const { return lazy_ == nullptr ? LazyWork{} : lazy_->work(); }
size_t Engine::overlay_bytes() const { return lazy_ == nullptr ? 0 : lazy_->overlay_bytes(); }
size_t Engine::record_bytes() const { return lazy_ == nullptr ? 0 : lazy_->record_bytes(); }

// -- what there is

bool Engine::Lazy::knows(const Program& program, size_t eager) {
  if (eager >= program.order.size()) return false;
  for (size_t i = eager; i < program.order.size(); ++i) {
    const Step step = program.order[i];
    if (step.kind == Step::kRows) continue;
    if (step.kind != Step::kPropagate) return false;
  }
  return true;
}

Engine::Lazy::Lazy(Engine* engine, size_t eager, size_t threads)
    : engine_(*engine),
      eager_(eager),
      pool_(threads),
      differs_(engine->program_.values.size()),
      site_of_(engine->program_.values.size(), kNoIndex),
      column_of_(engine->program_.values.size()),
      edges_(engine->has_direction_.size()),
      recorded_(edges_.size()) {
  const Program& program = engine->program_;
  std::vector<bool> computed(program.values.size());
  for (size_t i = eager; i < program.order.size(); ++i) {
    const Step step = program.order[i];
    if (step.kind == Step::kRows) {
      for (const Sink& sink : program.rows[step.position].sinks) computed[sink.value] = true;
    } else {
      const PropagateStep& propagate = program.propagations[step.position];
      for (uint32_t value : values_of(propagate)) computed[value] = true;
      // Messages of both ends are computed anew for whoever they reach, from rows as they are now.
      if (propagate.message != kNoIndex) continue;
      differs_[propagate.input] = recorded_[direction_of(engine->graph_, propagate)] = true;
    }
  }
  for (uint32_t v = 0; v < program.values.size(); ++v) {
    if (differs_[v] && !computed[v]) add_site(Site::kSaved, program.values[v].node_type, {v}, nullptr, 0);
  }
  for (size_t i = eager; i < program.order.size(); ++i) {
    const Step step = program.order[i];
    if (step.kind == Step::kRows) {
      const RowsStep& rows = program.rows[step.position];
      std::vector<uint32_t> values;
      for (const Sink& sink : rows.sinks) values.push_back(sink.value);
      add_site(Site::kRows, rows.node_type, values, &rows, 0);
    } else {
      const PropagateStep& propagate = program.propagations[step.position];
      add_site(Site::kPropagate, program.values[propagate.output].node_type, values_of(propagate), nullptr,
               step.position);
    }
  }
  for (size_t i = 0; i <= program.others.size(); ++i) {
    const auto [kept, position] = engine->output_at(i);
    if (kept) {
      const uint32_t site = site_of_[position];
      outputs_.push_back(site != kNoIndex && sites_[site].kind == Site::kSaved ? kNoIndex : site);
    } else {
      outputs_.push_back(static_cast<uint32_t>(sites_.size()));
      const RowsStep& rows = program.on_demand[position];
      add_site(Site::kRows, rows.node_type, {kNoIndex}, &rows, 0);
    }
  }
  output_ = outputs_[0];
  need_.resize(sites_.size());
}

// What a propagation computes of a target: the aggregate, and what is kept beside it.
std::vector<uint32_t> Engine::Lazy::values_of(const PropagateStep& step) {
  std::vector<uint32_t> values{step.output};
  if (step.counts != kNoIndex) values.push_back(step.counts);
  if (step.context != kNoIndex) values.push_back(step.context);
  return values;
}

void Engine::Lazy::add_site(Site::Kind kind, uint32_t node_type, const std::vector<uint32_t>& values,
                            const RowsStep* rows, uint32_t propagation) {
  std::vector<Site::Column> columns;
  size_t stride = 0;
  for (uint32_t value : values) {
    const size_t width = row_stride(value == kNoIndex ? rows->registers[rows->sinks[0].reg].width
                                                      : engine_.program_.values[value].width);
    Site::Column column{value, stride, 0};
    stride += width;
    if (value != kNoIndex && differs_[value]) {
      column.difference = stride;
      stride += width;
    }
    if (value != kNoIndex) {
      site_of_[value] = static_cast<uint32_t>(sites_.size());
      column_of_[value] = columns.size();
    }
    columns.push_back(column);
  }
  sites_.push_back({kind, node_type, rows, propagation, std::move(columns), Overlay(stride)});
}

Engine::Lazy::Source Engine::Lazy::source_of(uint32_t value) const {
  Source source;
  source.table = engine_.rows(value);
  if (site_of_[value] == kNoIndex) return source;
  Site& site = const_cast<Site&>(sites_[site_of_[value]]);
  const Site::Column& column = site.columns[column_of_[value]];
  source.overlay = &site.overlay;
  source.saved = site.kind == Site::kSaved;
  source.at = column.at;
  source.difference = column.difference;
  return source;
}

LazyWork Engine::Lazy::work() const {
  std::shared_lock lock(mutex_);
  return work_;
}

size_t Engine::Lazy::overlay_bytes() const {
  std::shared_lock lock(mutex_);
  size_t total = 0;
  for (const Site& site : sites_) total += site.kind == Site::kSaved ? 0 : site.overlay.bytes();
  return total;
}

size_t Engine::Lazy::record_bytes() const {
  size_t total = 0;
  for (const Site& site : sites_) total += site.kind == Site::kSaved ? site.overlay.bytes() : 0;
  for (const EdgeRecord& record : edges_) total += record.bytes();
  return total;
}

bool Engine::Lazy::outgrown_by(const Delta& delta) const {
  size_t recorded = saved_features_, graph = 0;
  for (const auto& type : engine_.graph_.nodes) graph += type.ids.size();
  for (const NodeDelta& nodes : delta.nodes) recorded += nodes.featured.size();
  for (const EdgeRecord& record : edges_) recorded += record.size();
  for (size_t e = 0; e < delta.edges.size(); ++e) {
    const auto& type = engine_.graph_.edges[e];
    const size_t directions = type.spec.options.undirected ? 2 : 1;
    recorded += delta.edges[e].size() * directions;
    graph += type.store->num_edges() * directions;
  }
  return recorded > kMostOfSmallGraph + graph / kMostOfGraph;
}

// -- a batch

void Engine::Lazy::prepare(const Delta& delta, Prepared* prepared) {
  const Program& program = engine_.program_;
  prepared->marked = true;
  prepared->before.resize(program.values.size());
  for (const Site& site : sites_) {
    if (site.kind != Site::kSaved) continue;
    const uint32_t value = site.columns[0].value;
    const Changes& changes = prepared->changes[value];
    Changes& before = prepared->before[value];
    before.nodes.clear();
    before.stride = changes.stride;
    float* rows = before.rows.reserve(changes.nodes.size() * before.stride);
    for (uint32_t node : changes.nodes) {
      if (site.overlay.covers(node)) continue;
      std::memcpy(rows, engine_.stored_row(value, node), before.stride * sizeof(float));
      rows += before.stride;
      before.nodes.push_back(node);
    }
  }
  try {
    mark(delta, prepared);
  } catch (...) {
    std::fill(seen_.begin(), seen_.end(), uint8_t{0});
    throw;
  }
  if (output_ != kNoIndex) {
    prepared->changed = prepared->reached[output_];
  } else {
    prepared->changed = prepared->changes[program.output].nodes;
  }
  prepared->affected = prepared->changed.size();
}

// What a batch reaches, step by step and without arithmetic. A node that is stale already is marked again: who asks
// what a batch may change is told, and this reads nothing that a query may be writing.
void Engine::Lazy::mark(const Delta& delta, Prepared* prepared) {
  const Program& program = engine_.program_;
  for (const NodeDelta& nodes : delta.nodes) grow(&seen_, nodes.capacity);
  prepared->reached.resize(sites_.size());
  auto changed_of = [&](uint32_t value) -> const std::vector<uint32_t>& {
    const uint32_t site = site_of_[value];
    const bool eager = site == kNoIndex || sites_[site].kind == Site::kSaved;
    return eager ? prepared->changes[value].nodes : prepared->reached[site];
  };
  for (size_t s = 0; s < sites_.size(); ++s) {
    const Site& site = sites_[s];
    std::vector<uint32_t>& reached = prepared->reached[s];
    reached.clear();
    if (site.kind == Site::kSaved) continue;
    auto reach = [&](uint32_t node) {
      if (seen_[node]) return;
      seen_[node] = 1;
      reached.push_back(node);
    };
    if (site.kind == Site::kRows) {
      const NodeDelta& nodes = delta.nodes[site.node_type];
      for (size_t i = 0; i < nodes.added.size(); ++i) {
        if (nodes.added_ids[i] != kNoId) reach(nodes.added[i]);
      }
      for (uint32_t source : site.rows->sources) {
        for (uint32_t node : changed_of(source)) reach(node);
      }
    } else {
      constexpr size_t kAhead = 16;
      const PropagateStep& step = program.propagations[site.propagation];
      const EdgeView store = view_of(engine_.graph_, step);
      size_t messages = 0;
      auto scan = [&](const std::vector<uint32_t>& sources) {
        if (step.only_loops) {
          for (uint32_t node : sources) reach(node);
          return;
        }
        for (size_t i = 0; i < sources.size(); ++i) {
          if (i + kAhead < sources.size()) store.prefetch_out(sources[i + kAhead]);
          if (i + kAhead / 2 < sources.size()) store.prefetch_out_leaf(sources[i + kAhead / 2]);
          store.scan_out(sources[i], [&](NeighborSpan span) {
            messages += span.size;
            for (size_t j = 0; j < span.size; ++j) reach(span.ids[j]);
          });
        }
      };
      if (step.message == kNoIndex) {
        scan(changed_of(step.input));
      } else {
        for (const MessageSource& source : program.messages[step.message].sources) {
          if (source.side == MessageSource::kSource) scan(changed_of(source.value));
          if (source.side != MessageSource::kTarget) continue;
          for (uint32_t node : changed_of(source.value)) reach(node);
        }
      }
      for (const DirectedChange& change : prepared->edges[direction_of(engine_.graph_, step)]) {
        if (step.message == kNoIndex && same_messages(change, step.weighted)) continue;
        if (step.only_loops && change.source != change.target) continue;
        ++messages;
        reach(change.target);
      }
      prepared->edges_touched += messages;
    }
    for (uint32_t node : reached) seen_[node] = 0;
  }
}

// Queries go on between this and the commit. They may take the place of rows that the commit spoils, but cover no node,
// and whatever has a slot has room among the free ones.
void Engine::Lazy::reserve(const Delta& delta, const Prepared& prepared) {
  std::unique_lock lock(mutex_);
  for (size_t s = 0; s < sites_.size(); ++s) {
    Site& site = sites_[s];
    const bool saved = site.kind == Site::kSaved;
    const size_t rows = saved ? prepared.before[site.columns[0].value].nodes.size() : 0;
    site.overlay.reserve(delta.nodes[site.node_type].capacity, rows + prepared.reached[s].size(), rows);
  }
  for (size_t e = 0; e < edges_.size(); ++e) {
    if (recorded_[e]) edges_[e].prepare(prepared.edges[e]);
  }
  reserved_ = true;
}

void Engine::Lazy::release() noexcept {
  for (Site& site : sites_) site.overlay.settle();
  for (EdgeRecord& record : edges_) record.forget();
  reserved_ = false;
}

void Engine::Lazy::commit(const Delta& delta, const Prepared& prepared) noexcept {
  if (!reserved_) reserve(delta, prepared);
  reserved_ = false;
  for (Site& site : sites_) site.overlay.resize(delta.nodes[site.node_type].capacity);
  for (Site& site : sites_) {
    if (site.kind != Site::kSaved) continue;
    const Site::Column& column = site.columns[0];
    const Value& value = engine_.program_.values[column.value];
    const Changes& before = prepared.before[column.value];
    const std::vector<uint32_t>& changed = prepared.changes[column.value].nodes;
    for (size_t i = 0; i < before.nodes.size(); ++i) {
      site.overlay.spoil(before.nodes[i]);
      site.overlay.place(before.nodes[i]);
      std::memcpy(site.overlay.row(before.nodes[i]), before.at(i), before.stride * sizeof(float));
    }
    if (value.features) saved_features_ += before.nodes.size();
    const Rows now = engine_.rows(column.value);
    engine_.pool_->run(blocks_of(changed.size()), kMessageCost * static_cast<double>(changed.size()),
                       [&](size_t block) {
                         const size_t end = std::min(changed.size(), (block + 1) * kBlockRows);
                         for (size_t i = block * kBlockRows; i < end; ++i) {
                           float* row = site.overlay.row(changed[i]);
                           kernels().subtract(before.stride, now.row(changed[i]), row, row + column.difference);
                         }
                       });
  }
  for (size_t e = 0; e < edges_.size(); ++e) {
    if (recorded_[e]) edges_[e].merge();
  }
  for (size_t s = 0; s < sites_.size(); ++s) {
    for (uint32_t node : prepared.reached[s]) sites_[s].overlay.spoil(node);
  }
  if (output_ != kNoIndex) pending_.store(sites_[output_].overlay.num_stale(), std::memory_order_relaxed);
}

// -- settling

void Engine::Lazy::settle() {
  if (std::all_of(sites_.begin(), sites_.end(), [](const Site& site) { return site.overlay.nodes().empty(); })) {
    // Changed edges that reach nobody cannot be, but weights may have changed that no step reads.
    for (EdgeRecord& record : edges_) record.clear();
    return;
  }
  {
    // Without the graph's lock: nobody else commits, and functions of the user's run.
    std::unique_lock lock(mutex_);
    for (size_t s = 0; s < sites_.size(); ++s) need_[s].reserve(sites_[s].overlay.num_stale());
    for (size_t s = 0; s < sites_.size(); ++s) {
      Overlay& overlay = sites_[s].overlay;
      if (overlay.num_stale() == 0) continue;
      for (uint32_t node : overlay.nodes()) {
        if (!overlay.stale(node)) continue;
        need_[s].push_back(node);
        overlay.want(node);
      }
    }
    compute(true);
  }
  std::unique_lock alone(engine_.graph_.lock);
  for (Site& site : sites_) {
    if (site.kind == Site::kSaved) continue;
    const std::vector<uint32_t>& nodes = site.overlay.nodes();
    for (const Site::Column& column : site.columns) {
      if (column.value == kNoIndex) continue;
      const Rows out = engine_.rows(column.value);
      engine_.pool_->run(blocks_of(nodes.size()), kMessageCost * static_cast<double>(nodes.size()), [&](size_t block) {
        const size_t end = std::min(nodes.size(), (block + 1) * kBlockRows);
        for (size_t i = block * kBlockRows; i < end; ++i) {
          std::memcpy(out.row(nodes[i]), site.overlay.row(nodes[i]) + column.at, out.width * sizeof(float));
        }
      });
    }
    if (site.kind != Site::kPropagate) continue;
    Table& errors = engine_.errors_[site.propagation];
    if (errors.width() == 0) continue;  // of a maximum
    // Messages of both ends have been summed anew, whatever the number of their bounds.
    const bool anew = engine_.program_.propagations[site.propagation].message != kNoIndex;
    for (uint32_t node : nodes) {
      if (anew) {
        errors.clear_row(node);
      } else {
        errors.write(node, site.overlay.error(node));
      }
    }
  }
  clear();
}

void Engine::Lazy::clear() {
  for (Site& site : sites_) site.overlay.clear();
  for (EdgeRecord& record : edges_) record.clear();
  saved_features_ = 0;
  pending_.store(0, std::memory_order_relaxed);
}

}  // namespace livegnn
