#include "inference/engine.h"

#include <tsl/robin_map.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>
#include <stdexcept>

#include "hashing/mix_hash.h"
#include "inference/edges/directed_changes.h"
#include "inference/halo/boundary_values.h"
#include "inference/propagation/max_propagation.h"
#include "inference/propagation/message_propagation.h"
#include "inference/propagation/sum_propagation.h"
#include "inference/rows/stored_rows.h"
#include "inference/schedule.h"
#include "program/kernels.h"
#include "store/part_features.h"

namespace livegnn {
namespace {

// Copies rows one after the other, without their padding.
void copy_rows(const std::vector<const float*>& rows, size_t width, float* out) {
  for (size_t i = 0; i < rows.size(); ++i) std::memcpy(out + i * width, rows[i], width * sizeof(float));
}

Preparation* preparation(Prepared* prepared) { return static_cast<Preparation*>(prepared); }
const Preparation& preparation(const Prepared& prepared) { return static_cast<const Preparation&>(prepared); }

bool is_part_with_nodes(const Graph& graph) {
  return graph.part != nullptr && std::any_of(graph.nodes.begin(), graph.nodes.end(),
                                              [](const Graph::NodeType& type) { return type.ids.capacity() > 0; });
}

// A batch that fails half-way restores its workspace to the state between uses.
template <class Body>
void give_up_on_failure(Preparation* prepared, const Body& body) {
  try {
    body();
  } catch (...) {
    prepared->batch.workspace.reset();
    throw;
  }
}

}  // namespace

Engine::Engine(const Graph& graph, Program program, size_t threads, const std::string& directory, size_t keep_degree)
    : state_(graph, std::move(program), directory, keep_degree), pool_(std::make_unique<ThreadPool>(threads)) {
  make_steps();
}

Engine::~Engine() = default;

void Engine::make_steps() {
  const Program& program = state_.rows.program;
  ThreadPool* const pool = pool_.get();
  for (size_t c = 0; c < program.contexts.size(); ++c)
    degrees_.push_back(std::make_unique<Degrees>(state_.rows, state_.degrees, c));
  for (size_t p = 0; p < program.propagations.size(); ++p) {
    const PropagateStep& step = program.propagations[p];
    if (step.message != kNoIndex) {
      propagations_.push_back(std::make_unique<MessagePropagation>(state_.rows, state_.rounding, p, pool));
    } else if (step.aggregate == Aggregate::kMax) {
      propagations_.push_back(std::make_unique<MaxPropagation>(state_.rows, state_.rounding, p, pool));
    } else {
      propagations_.push_back(std::make_unique<SumPropagation>(state_.rows, state_.rounding, p, pool));
    }
  }
  for (const RowsStep& step : program.rows) rows_.push_back(std::make_unique<NodeRows>(state_.rows, step, false, pool));
  if (!program.output_kept) {
    output_ = std::make_unique<NodeRows>(state_.rows, program.on_demand[program.output], true, pool);
  }
  schedule_.push_back({0, 0});
  for (size_t i = 0; i < program.order.size(); ++i) {
    if (program.order[i].kind == Step::kPropagate) schedule_.push_back({i, i});
    schedule_.back().end = i + 1;
  }
}

void Engine::join(Exchange* exchange, Graph* graph) {
  if (graph != &state_.rows.graph) throw std::invalid_argument("an engine joins an exchange with its own graph");
  if (lazy_ != nullptr || state_.rows.keep_degree > 0) {
    throw std::invalid_argument("an engine of a part of a graph computes at once, and keeps all aggregates");
  }
  halo_ = std::make_unique<Halo>(state_.rows, exchange);
  graph->part->read_features(feature_directions(state_.rows));
  hold_features(graph);
}

void Engine::initialize() {
  if (lazy_ != nullptr) lazy_->clear();
  state_.rows.clear();
  const bool together = is_part_with_nodes(state_.rows.graph);  // all parts have the same nodes
  if (together && halo_ == nullptr) return;
  size_t depth = 0;
  const Program& program = state_.rows.program;
  Whole whole(program.values.size());
  std::vector<Table> tables;
  for (const Step& step : program.order) {
    if (step.kind == Step::kContext) {
      degrees_[step.position]->initialize(&state_.rows, &state_.degrees, pool_.get());
    } else if (step.kind == Step::kRows) {
      rows_[step.position]->initialize(&state_.rows, whole);
    } else {
      if (together) halo_->exchange_all(++depth, &state_.rows);
      const uint32_t output = program.propagations[step.position].output;
      if (state_.rows.partial[output] >= 0) {
        Table& table = tables.emplace_back(program.values[output].width);
        table.resize(state_.rows.graph.nodes[program.values[output].node_type].ids.capacity());
        whole[output] = {table.row(0), table.stride(), table.width(), table.rows()};
      }
      propagations_[step.position]->initialize(&state_.rows, &state_.rounding, &whole);
    }
  }
  state_.rounding.moments = {};
  if (together) {
    halo_->measure_first(&state_.rounding, pool_.get());
  } else {
    measure_first(state_.rows, &state_.rounding, pool_.get());
  }
}

void Engine::save(Arrays* to) const {
  state_.save(to);
  if (lazy_ != nullptr) lazy_->save(to);
}

void Engine::load(const ArrayViews& from) {
  if (lazy_ != nullptr) lazy_->clear();
  state_.load(from);
  for (const auto& degrees : degrees_) degrees->check(pool_.get());
  const std::optional<size_t> eager = Lazy::saved_eager(from);
  if (!eager) return;
  if (lazy_ != nullptr && lazy_->eager() == *eager) return lazy_->load(from);
  // Of an engine in another mode: its record is worked off.
  if (!Lazy::knows(state_.rows.program, *eager))
    throw std::runtime_error("lazy/eager: expected steps that can wait, got others");
  Lazy other(&state_.rows, &state_.rounding, *eager, pool_.get());
  other.load(from);
  other.show_current();
}

// -- a batch

void Engine::prepare(const Delta& delta, Prepared* prepared) {
  if (halo_ == nullptr) return prepare_depths(this, delta, prepared);
  Preparation* const p = preparation(prepared);
  prepare_depths(this, delta, prepared,
                 [&](size_t depth) { give_up_on_failure(p, [&] { halo_->exchange(depth, &p->batch); }); });
}

void Engine::prepare_batch(const Delta& delta, Prepared* prepared) {
  if (lazy_ == nullptr) return prepare(delta, prepared);
  const bool removes = std::any_of(delta.nodes.begin(), delta.nodes.end(),
                                   [](const NodeDelta& nodes) { return !nodes.removed.empty(); });
  if (removes) {
    lazy_->show_current();
    return prepare(delta, prepared);
  }
  lazy_->show_base();
  Preparation* const p = preparation(prepared);
  p->batch.scales.forget(state_.rows.program.propagations.size());
  give_up_on_failure(p, [&] {
    open(delta, lazy_->eager(), p);
    for (const Depth& depth : schedule_) run_steps(depth, p);
    close(p);
  });
  p->marked = true;
  lazy_->prepare(p->batch.changes, &p->marks, p);
  include_added(p);
  p->affected = p->changed.size();
  p->batch.totals = totals_of(state_.rows, delta, *p);
}

void Engine::begin(const Delta& delta, Prepared* prepared) {
  Preparation* const p = preparation(prepared);
  p->batch.scales.forget(state_.rows.program.propagations.size());
  if (halo_ != nullptr) halo_->begin(delta);
  give_up_on_failure(p, [&] { open(delta, state_.rows.program.order.size(), p); });
}

void Engine::prepare_depth(size_t depth, Prepared* prepared) {
  Preparation* const p = preparation(prepared);
  give_up_on_failure(p, [&] { run_steps(schedule_[depth], p); });
}

bool Engine::finish(Prepared* prepared) {
  Preparation* const p = preparation(prepared);
  bool again = false;
  give_up_on_failure(p, [&] {
    close(p);
    const BatchChanges& changes = p->batch.changes;
    NewScales& scales = p->batch.scales;
    p->batch.totals = totals_of(state_.rows, *changes.delta, *p);
    if (halo_ != nullptr) halo_->gather(&p->batch);
    again = p->lost == kNoIndex && !scales.in_use && is_measured_after(state_.rounding, p->batch.totals) &&
            (halo_ == nullptr ? measure_after(state_.rows, state_.rounding, changes, &scales)
                              : halo_->measure(state_.rounding, changes, &scales));
    if (!again) return;
    scales.in_use = true;
    open(*changes.delta, p->steps, p);
  });
  return again;
}

void Engine::open(const Delta& delta, size_t steps, Preparation* prepared) {
  PreparedBatch& batch = prepared->batch;
  BatchChanges& changes = batch.changes;
  changes.delta = &delta;
  prepared->steps = steps;
  batch.guarded = guard_ && !prepared->trusted;
  batch.recompute_all = recompute_all_;
  prepared->output_done = prepared->marked = false;
  batch.step = 0;
  prepared->lost = kNoIndex;
  prepared->changed.clear();
  prepared->affected = prepared->edges_touched = prepared->nodes_touched = prepared->recomputed = 0;
  batch.workspace = workspaces_.take();
  batch.workspace->open(delta, state_.rows.graph.part.get());
  const Program& program = state_.rows.program;
  changes.rows.resize(program.values.size());
  for (size_t v = 0; v < program.values.size(); ++v) changes.rows[v].begin(program.values[v].width);
  take_features(&batch);
  take_edges(&batch);
  find_moves(&batch);
}

void Engine::close(Preparation* prepared) const {
  const Program& program = state_.rows.program;
  PreparedBatch& batch = prepared->batch;
  if (batch.has_lost() || prepared->steps < program.order.size()) {
    // The effect on the prediction is unknown.
  } else if (program.output_kept) {
    const Changes& output = batch.of(program.output);
    prepared->changed.assign(output.nodes().begin(),
                             output.nodes().begin() + static_cast<std::ptrdiff_t>(output.own_size()));
  } else if (!prepared->output_done) {
    batch.step = program.order.size();
    output_->prepare(&batch);
  }
  if (!batch.has_lost() && prepared->steps >= program.order.size()) include_added(prepared);
  batch.workspace->close(*batch.changes.delta, prepared->need());
  batch.workspace.reset();
}

void Engine::include_added(Preparation* prepared) const {
  const NodeDelta& nodes = prepared->batch.changes.delta->nodes[state_.rows.program.output_type(0)];
  if (nodes.added.empty()) return;
  std::vector<uint32_t>& changed = prepared->changed;
  tsl::robin_map<uint32_t, bool, MixHash> listed;
  listed.reserve(changed.size() + nodes.added.size());
  for (uint32_t node : changed) listed[node] = true;
  const GraphPart* const part = state_.rows.graph.part.get();
  for (size_t i = 0; i < nodes.added.size(); ++i) {
    if (part != nullptr && nodes.owners[i] != part->self()) continue;
    if (nodes.added_ids[i] == kNoId || !listed.insert({nodes.added[i], true}).second) continue;
    changed.push_back(nodes.added[i]);
  }
}

void Engine::run_steps(const Depth& depth, Preparation* prepared) const {
  const Program& program = state_.rows.program;
  PreparedBatch& batch = prepared->batch;
  for (size_t i = depth.first; i < std::min(depth.end, prepared->steps); ++i) {
    if (batch.has_lost()) return;
    batch.step = i;
    const Step step = program.order[i];
    if (step.kind == Step::kContext) {
      degrees_[step.position]->prepare(&batch);
    } else if (step.kind == Step::kRows) {
      rows_[step.position]->prepare(&batch);
    } else {
      const Propagation& propagation = *propagations_[step.position];
      const NodeRows* const reader = propagation.takes_reader() ? reader_after(i, prepared->steps) : nullptr;
      propagation.prepare(reader, &batch);
      if (reader == nullptr) continue;
      if (reader == output_.get()) {
        prepared->output_done = true;
      } else {
        ++i;
      }
    }
  }
}

const NodeRows* Engine::reader_after(size_t position, size_t steps) const {
  const Program& program = state_.rows.program;
  const NodeRows* reader = nullptr;
  if (position + 1 == program.order.size()) {
    reader = output_.get();
  } else if (position + 1 < steps && program.order[position + 1].kind == Step::kRows) {
    reader = rows_[program.order[position + 1].position].get();
  }
  const uint32_t aggregate = program.propagations[program.order[position].position].output;
  return reader != nullptr && reader->reads(aggregate) ? reader : nullptr;
}

void Engine::take_features(PreparedBatch* batch) const {
  const Program& program = state_.rows.program;
  BatchChanges* const changes = &batch->changes;
  const bool divided = state_.rows.graph.part != nullptr;
  for (uint32_t v = 0; v < program.values.size(); ++v) {
    const Value& value = program.values[v];
    if (!value.features) continue;
    const NodeDelta& nodes = changes->delta->nodes[value.node_type];
    Changes& rows = changes->rows[v];
    const size_t stride = state_.rows.graph.nodes[value.node_type].features.stride();
    if (state_.rows.graph.nodes[value.node_type].features.width() == value.width) {
      rows.lie_at(nodes.features.data());
    } else {  // the graph has got more columns
      rows.open(nodes.featured.size());
      for (size_t i = 0; i < nodes.featured.size(); ++i) {
        float* const row = rows.row_to_write(i);
        std::fill_n(std::copy_n(nodes.features.data() + i * stride, value.width, row), rows.stride() - value.width,
                    0.0f);
      }
    }
    const auto take = [&](size_t i) {
      const float* const row = rows.at(i);
      if (!kernels().differs(value.width, state_.rows.stored_row(v, nodes.featured[i]), row)) return;
      rows.add(nodes.featured[i], static_cast<uint32_t>(i));
    };
    const std::vector<uint8_t>& marks = batch->workspace->removed[value.node_type];
    for (size_t i = 0; i < nodes.featured.size(); ++i) {
      if (!divided || marks[nodes.featured[i]] == 0) take(i);
    }
    if (!divided) continue;
    const size_t own = rows.size();
    for (size_t i = 0; i < nodes.featured.size(); ++i) {
      if (marks[nodes.featured[i]] != 0) take(i);
    }
    rows.take_for_halo(rows.size() - own);
  }
}

void Engine::take_edges(PreparedBatch* batch) const {
  const Graph& graph = state_.rows.graph;
  BatchChanges* const changes = &batch->changes;
  if (changes->edges.size() != state_.rows.has_direction.size()) {  // the graph has got more types since the last batch
    changes->edges.assign(state_.rows.has_direction.size(), {});
    changes->moves.clear();
  }
  for (size_t e = 0; e < graph.edges.size(); ++e) {
    direct_changes(graph, *changes->delta, e, state_.rows.zeros.data(), &changes->edges[e]);
    if (state_.rows.has_direction[graph.edges.size() + e]) {
      reverse_changes(changes->edges[e], &changes->edges[graph.edges.size() + e]);
    }
  }
  if (graph.part == nullptr) return;
  for (size_t d = 0; d < changes->edges.size(); ++d) {
    const std::vector<uint8_t>& marks = batch->workspace->removed[receiver_type(graph, d)];
    std::erase_if(changes->edges[d],
                  [&](const DirectedChange& change) { return (marks[change.target] & Workspace::kForeign) != 0; });
  }
}

void Engine::find_moves(PreparedBatch* batch) const {
  if (state_.rows.keep_degree == 0) return;
  BatchChanges& changes = batch->changes;
  changes.moves.resize(state_.rows.kept_nodes.size());
  for (size_t d = 0; d < state_.rows.kept_nodes.size(); ++d) {
    if (!state_.rows.has_direction[d]) continue;
    const uint32_t node_type = receiver_type(state_.rows.graph, d);
    state_.rows.kept_nodes[d].find_moves(view_at(state_.rows.graph, d), changes.edges[d],
                                         batch->workspace->removed[node_type], changes.delta->nodes[node_type].removed,
                                         state_.rows.keep_degree, &changes.moves[d]);
  }
}

std::vector<int64_t> Engine::changed_ids(const Delta& delta, const Prepared& prepared) const {
  const uint32_t type = state_.rows.program.output_type(0);
  const NodeDelta& nodes = delta.nodes[type];
  const IdMap& ids = state_.rows.graph.nodes[type].ids;
  std::vector<int64_t> changed(prepared.changed.size());
  if (nodes.added.empty()) {
    for (size_t i = 0; i < changed.size(); ++i) changed[i] = ids.id_of(prepared.changed[i]);
    return changed;
  }
  tsl::robin_map<uint32_t, int64_t, MixHash> added;
  added.reserve(nodes.added.size());
  for (size_t i = 0; i < nodes.added.size(); ++i) added[nodes.added[i]] = nodes.added_ids[i];
  for (size_t i = 0; i < changed.size(); ++i) {
    const auto found = added.find(prepared.changed[i]);
    changed[i] = found == added.end() ? ids.id_of(prepared.changed[i]) : found->second;
  }
  return changed;
}

void Engine::reserve(const Delta& delta, const Prepared& prepared) {
  try {
    const Preparation& p = preparation(prepared);
    state_.reserve(delta, p.batch.changes);
    if (p.marked) lazy_->reserve(delta, p.batch.changes, p.marks);
  } catch (...) {
    release();
    throw;
  }
}

void Engine::release() noexcept {
  state_.release();
  if (lazy_ != nullptr) lazy_->release();
  if (halo_ != nullptr) halo_->abandon();
}

void Engine::commit(const Delta& delta, const Prepared& prepared) noexcept {
  const Preparation& p = preparation(prepared);
  state_.commit(delta, p.batch, pool_.get());
  if (halo_ != nullptr) halo_->commit();
  if (p.marked) {
    lazy_->commit(delta, p.batch.changes, p.marks);
  } else if (lazy_ != nullptr) {
    lazy_->leave_behind();
  }
}

// -- lazy computation

bool Engine::be_lazy(size_t eager) {
  if (!Lazy::knows(state_.rows.program, eager)) return false;
  lazy_ = std::make_unique<Lazy>(&state_.rows, &state_.rounding, eager, pool_.get());
  return true;
}

void Engine::settle() {
  if (lazy_ == nullptr) return;
  lazy_->show_current();
  lazy_->clear();
}
void Engine::show_current() {
  if (lazy_ != nullptr) lazy_->show_current();
}
void Engine::show_base() noexcept {
  if (lazy_ != nullptr) lazy_->show_base();
}
bool Engine::outgrown_by(const Delta& delta) const { return lazy_ != nullptr && lazy_->outgrown_by(delta); }
size_t Engine::pending() const { return lazy_ == nullptr ? 0 : lazy_->pending(); }
LazyWork Engine::work() const { return lazy_ == nullptr ? LazyWork{} : lazy_->work(); }
size_t Engine::overlay_bytes() const { return lazy_ == nullptr ? 0 : lazy_->overlay_bytes(); }
size_t Engine::record_bytes() const { return lazy_ == nullptr ? 0 : lazy_->record_bytes(); }

// -- reading

void Engine::read_rows(uint32_t value, std::span<const uint32_t> nodes, float* out) const {
  RowArena arena;
  std::vector<const float*> rows(nodes.size());
  stored_rows(state_.rows, value, nodes, &arena, rows.data());
  copy_rows(rows, state_.rows.program.values[value].width, out);
}

void Engine::read_rows(const Prepared& prepared, uint32_t value, std::span<const uint32_t> nodes, float* out) const {
  RowArena arena;
  std::vector<const float*> rows(nodes.size());
  new_rows(state_.rows, preparation(prepared).batch.changes, value, nodes, &arena, rows.data());
  copy_rows(rows, state_.rows.program.values[value].width, out);
}

void Engine::predict(std::span<const uint32_t> nodes, float* out, size_t output) const {
  if (lazy_ != nullptr) return lazy_->predict(nodes, out, output);
  read_output(state_.rows, output, nodes, out);
}

void Engine::predict_prepared(const Prepared& prepared, std::span<const uint32_t> nodes, float* out,
                              size_t output) const {
  read_new_output(state_.rows, preparation(prepared).batch.changes, output, nodes, out);
}

void Engine::evaluate(size_t on_demand, float* out) { evaluate_all(state_.rows, on_demand, pool_.get(), out); }

Scrubbed Engine::scrub(size_t propagation, std::span<const uint32_t> nodes) const {
  Scrubbed seen = propagations_[propagation]->scrub(nodes);
  // A unit that is too large would hide rounding.
  if (!state_.rounding.scales[propagation].fits()) seen.difference = std::numeric_limits<double>::infinity();
  return seen;
}

Scrubbed Engine::scrub_rows(uint32_t value, std::span<const uint32_t> nodes) const {
  if (!state_.rows.is_stored(value)) return {};
  const Program& program = state_.rows.program;
  for (size_t r = 0; r < program.rows.size(); ++r) {
    for (const Sink& sink : program.rows[r].sinks) {
      if (sink.value == value) return rows_[r]->scrub(value, nodes);
    }
  }
  return {};
}

Scrubbed Engine::scrub_context(size_t context, std::span<const uint32_t> nodes) const {
  return degrees_[context]->scrub(nodes);
}

}  // namespace livegnn
