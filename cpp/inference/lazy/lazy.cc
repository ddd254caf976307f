// What a lazy engine records of batches, and how it settles.
#include "inference/lazy/lazy.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <mutex>
#include <utility>

#include "inference/edges/directed_changes.h"
#include "inference/edges/edge_view.h"
#include "inference/evaluation/blocks.h"
#include "program/kernels.h"

namespace livegnn {
namespace {

// An engine settles when its record (changed edges and new features) reaches a sixteenth of the graph. A recorded edge
// takes a few times the memory of one in the store, and a query adds it as one more term: at a sixteenth, the record is
// about a third of the graph's own memory, and queries read a sixteenth more. The number of nodes reached would not be
// a good measure: in a dense graph a few events reach all nodes, but only rows that are read are computed. Small graphs
// settle after a fixed number of changes.
constexpr size_t kMostOfGraph = 16, kMostOfSmallGraph = 1024;

}  // namespace

// -- structure and sizes

bool Lazy::knows(const Program& program, size_t eager) {
  if (eager >= program.order.size()) return false;
  for (size_t i = eager; i < program.order.size(); ++i) {
    const Step step = program.order[i];
    if (step.kind == Step::kRows) continue;
    if (step.kind != Step::kPropagate) return false;
  }
  return true;
}

Lazy::Lazy(RowState* state, RoundingState* rounding, size_t eager, ThreadPool* writer_pool)
    : state_(*state),
      rounding_(*rounding),
      eager_(eager),
      writer_pool_(*writer_pool),
      pool_(writer_pool->threads()),
      differs_(state->program.values.size()),
      lazy_step_of_(state->program.values.size(), kNoIndex),
      column_of_(state->program.values.size()),
      edges_(state->has_direction.size()),
      recorded_(edges_.size()) {
  const Program& program = state->program;
  std::vector<bool> computed(program.values.size());
  for (size_t i = eager; i < program.order.size(); ++i) {
    const Step step = program.order[i];
    if (step.kind == Step::kRows) {
      for (const Sink& sink : program.rows[step.position].sinks) computed[sink.value] = true;
    } else {
      const PropagateStep& propagate = program.propagations[step.position];
      for (uint32_t value : values_of(propagate)) computed[value] = true;
      // Messages that read both ends are computed again for every target that they reach, from current rows.
      if (propagate.message != kNoIndex) continue;
      differs_[propagate.input] = recorded_[direction_of(state->graph, propagate)] = true;
    }
  }
  for (uint32_t v = 0; v < program.values.size(); ++v) {
    if (differs_[v] && !computed[v]) add_step(LazyStep::kSaved, program.values[v].node_type, {v}, nullptr, 0);
  }
  for (size_t i = eager; i < program.order.size(); ++i) {
    const Step step = program.order[i];
    if (step.kind == Step::kRows) {
      const RowsStep& rows = program.rows[step.position];
      std::vector<uint32_t> values;
      for (const Sink& sink : rows.sinks) values.push_back(sink.value);
      add_step(LazyStep::kRows, rows.node_type, values, &rows, 0);
    } else {
      const PropagateStep& propagate = program.propagations[step.position];
      add_step(LazyStep::kPropagate, program.values[propagate.output].node_type, values_of(propagate), nullptr,
               step.position);
    }
  }
  for (size_t i = 0; i <= program.others.size(); ++i) {
    const auto [kept, position] = state->program.output_at(i);
    if (kept) {
      const uint32_t lazy_step = lazy_step_of_[position];
      outputs_.push_back(lazy_step != kNoIndex && lazy_steps_[lazy_step].kind == LazyStep::kSaved ? kNoIndex
                                                                                                  : lazy_step);
    } else {
      outputs_.push_back(static_cast<uint32_t>(lazy_steps_.size()));
      const RowsStep& rows = program.on_demand[position];
      add_step(LazyStep::kRows, rows.node_type, {kNoIndex}, &rows, 0);
    }
  }
  output_ = outputs_[0];
  need_.resize(lazy_steps_.size());
}

// The values that a propagation computes for a target: the aggregate, and those that are stored with it.
std::vector<uint32_t> Lazy::values_of(const PropagateStep& step) {
  std::vector<uint32_t> values{step.output};
  if (step.counts != kNoIndex) values.push_back(step.counts);
  if (step.context != kNoIndex) values.push_back(step.context);
  return values;
}

void Lazy::add_step(LazyStep::Kind kind, uint32_t node_type, const std::vector<uint32_t>& values, const RowsStep* rows,
                    uint32_t propagation) {
  std::vector<LazyStep::Column> columns;
  size_t stride = 0;
  for (uint32_t value : values) {
    const size_t width =
        row_stride(value == kNoIndex ? rows->registers[rows->sinks[0].reg].width : state_.program.values[value].width);
    LazyStep::Column column{value, stride, 0};
    stride += width;
    if (value != kNoIndex && differs_[value]) {
      column.difference = stride;
      stride += width;
    }
    if (value != kNoIndex) {
      lazy_step_of_[value] = static_cast<uint32_t>(lazy_steps_.size());
      column_of_[value] = columns.size();
    }
    columns.push_back(column);
  }
  lazy_steps_.push_back({kind, node_type, rows, propagation, std::move(columns), Overlay(stride), {}});
}

Lazy::Source Lazy::source_of(uint32_t value) const {
  Source source;
  source.table = state_.rows(value);
  if (lazy_step_of_[value] == kNoIndex) return source;
  LazyStep& lazy_step = const_cast<LazyStep&>(lazy_steps_[lazy_step_of_[value]]);
  const LazyStep::Column& column = lazy_step.columns[column_of_[value]];
  source.overlay = &lazy_step.overlay;
  source.saved = lazy_step.kind == LazyStep::kSaved;
  source.at = column.at;
  source.difference = column.difference;
  return source;
}

LazyWork Lazy::work() const {
  std::shared_lock lock(mutex_);
  return work_;
}

size_t Lazy::overlay_bytes() const {
  std::shared_lock lock(mutex_);
  size_t total = 0;
  for (const LazyStep& lazy_step : lazy_steps_)
    total += lazy_step.kind == LazyStep::kSaved ? 0 : lazy_step.overlay.bytes();
  return total;
}

size_t Lazy::record_bytes() const {
  size_t total = 0;
  for (const LazyStep& lazy_step : lazy_steps_)
    total += lazy_step.kind == LazyStep::kSaved ? lazy_step.overlay.bytes() : 0;
  for (const EdgeRecord& record : edges_) total += record.bytes();
  return total;
}

bool Lazy::outgrown_by(const Delta& delta) const {
  size_t recorded = saved_features_, graph = 0;
  for (const auto& type : state_.graph.nodes) graph += type.ids.size();
  for (const NodeDelta& nodes : delta.nodes) recorded += nodes.featured.size();
  for (const EdgeRecord& record : edges_) recorded += record.size();
  for (size_t e = 0; e < delta.edges.size(); ++e) {
    const auto& type = state_.graph.edges[e];
    const size_t directions = type.spec.options.undirected ? 2 : 1;
    recorded += delta.edges[e].size() * directions;
    graph += type.store->num_edges() * directions;
  }
  return recorded > kMostOfSmallGraph + graph / kMostOfGraph;
}

// -- a batch

void Lazy::prepare(const BatchChanges& batch, LazyMarks* marks, Effects* effects) {
  const Program& program = state_.program;
  marks->before.resize(program.values.size());
  for (const LazyStep& lazy_step : lazy_steps_) {
    if (lazy_step.kind != LazyStep::kSaved) continue;
    const uint32_t value = lazy_step.columns[0].value;
    const Changes& changes = batch.of(value);
    Changes& before = marks->before[value];
    before.begin(program.values[value].width);
    float* rows = before.open(changes.size());
    for (uint32_t node : changes.nodes()) {
      if (lazy_step.overlay.covers(node)) continue;
      std::memcpy(rows, state_.stored_row(value, node), before.stride() * sizeof(float));
      rows += before.stride();
      before.add(node, static_cast<uint32_t>(before.size()));
    }
  }
  try {
    mark(batch, &marks->reached, effects);
  } catch (...) {
    reached_.clear();
    throw;
  }
  if (output_ != kNoIndex) {
    effects->changed = marks->reached[output_];
  } else {
    effects->changed = batch.of(program.output).nodes();
  }
  effects->affected = effects->changed.size();
}

// A stale node is marked again: what-if queries report what a batch may change, and this function reads nothing that a
// query may be writing.
void Lazy::mark(const BatchChanges& batch, std::vector<std::vector<uint32_t>>* all_reached, Effects* effects) {
  const Program& program = state_.program;
  reached_.cover(*batch.delta);
  all_reached->resize(lazy_steps_.size());
  const auto changed_of = [&](uint32_t value) -> const std::vector<uint32_t>& {
    const uint32_t lazy_step = lazy_step_of_[value];
    const bool eager = lazy_step == kNoIndex || lazy_steps_[lazy_step].kind == LazyStep::kSaved;
    return eager ? batch.of(value).nodes() : (*all_reached)[lazy_step];
  };
  for (size_t s = 0; s < lazy_steps_.size(); ++s) {
    const LazyStep& lazy_step = lazy_steps_[s];
    if (lazy_step.kind == LazyStep::kRows) {
      reach_rows(*batch.delta, *lazy_step.rows, changed_of, &reached_);
    } else if (lazy_step.kind == LazyStep::kPropagate) {
      const PropagateStep& step = program.propagations[lazy_step.propagation];
      const auto& changes = batch.edges[direction_of(state_.graph, step)];
      effects->edges_touched += reach_along(state_.graph, program, step, changes, changed_of, &reached_);
    }
    reached_.take(&(*all_reached)[s]);
  }
}

// Queries may run between this and the commit. They may allocate slots for rows that the commit makes stale, but they
// cover no new nodes, and there is room in the free list for every slot.
void Lazy::reserve(const Delta& delta, const BatchChanges& batch, const LazyMarks& marks) {
  std::unique_lock lock(mutex_);
  for (size_t s = 0; s < lazy_steps_.size(); ++s) {
    LazyStep& lazy_step = lazy_steps_[s];
    const bool saved = lazy_step.kind == LazyStep::kSaved;
    const size_t rows = saved ? marks.before[lazy_step.columns[0].value].size() : 0;
    lazy_step.overlay.reserve(delta.nodes[lazy_step.node_type].capacity, rows + marks.reached[s].size(), rows);
  }
  for (size_t e = 0; e < edges_.size(); ++e) {
    if (recorded_[e]) edges_[e].prepare(batch.edges[e]);
  }
  reserved_ = true;
}

void Lazy::release() noexcept {
  if (left_behind_) clear();
  for (LazyStep& lazy_step : lazy_steps_) lazy_step.overlay.settle();
  for (EdgeRecord& record : edges_) record.forget();
  reserved_ = false;
}

void Lazy::commit(const Delta& delta, const BatchChanges& batch, const LazyMarks& marks) noexcept {
  if (!reserved_) reserve(delta, batch, marks);
  reserved_ = false;
  for (LazyStep& lazy_step : lazy_steps_) lazy_step.overlay.resize(delta.nodes[lazy_step.node_type].capacity);
  for (LazyStep& lazy_step : lazy_steps_) {
    if (lazy_step.kind != LazyStep::kSaved) continue;
    const LazyStep::Column& column = lazy_step.columns[0];
    const Value& value = state_.program.values[column.value];
    const Changes& before = marks.before[column.value];
    const std::vector<uint32_t>& changed = batch.of(column.value).nodes();
    for (size_t i = 0; i < before.size(); ++i) {
      lazy_step.overlay.invalidate(before.nodes()[i]);
      lazy_step.overlay.place(before.nodes()[i]);
      std::memcpy(lazy_step.overlay.row(before.nodes()[i]), before.at(i), before.stride() * sizeof(float));
    }
    if (value.features) saved_features_ += before.size();
    const Rows now = state_.rows(column.value);
    writer_pool_.run(blocks_of(changed.size()), kMessageCost * static_cast<double>(changed.size()), [&](size_t block) {
      const size_t end = std::min(changed.size(), (block + 1) * kBlockRows);
      for (size_t i = block * kBlockRows; i < end; ++i) {
        float* row = lazy_step.overlay.row(changed[i]);
        kernels().subtract(before.stride(), now.row(changed[i]), row, row + column.difference);
      }
    });
  }
  for (size_t e = 0; e < edges_.size(); ++e) {
    if (recorded_[e]) edges_[e].merge();
  }
  for (size_t s = 0; s < lazy_steps_.size(); ++s) {
    for (uint32_t node : marks.reached[s]) lazy_steps_[s].overlay.invalidate(node);
  }
  if (output_ != kNoIndex) pending_.store(lazy_steps_[output_].overlay.num_stale(), std::memory_order_relaxed);
}

// -- settling

bool Lazy::covers_nothing() const {
  return std::all_of(lazy_steps_.begin(), lazy_steps_.end(),
                     [](const LazyStep& lazy_step) { return lazy_step.overlay.nodes().empty(); });
}

void Lazy::show_current() {
  if (shows_current_) return;
  if (covers_nothing()) {
    shows_current_ = true;
    return;
  }
  {
    // Without the graph's lock: no other thread commits, and functions of the user run.
    std::unique_lock lock(mutex_);
    for (size_t s = 0; s < lazy_steps_.size(); ++s) need_[s].reserve(lazy_steps_[s].overlay.num_stale());
    for (size_t s = 0; s < lazy_steps_.size(); ++s) {
      LazyStep& lazy_step = lazy_steps_[s];
      if (lazy_step.kind == LazyStep::kPropagate) {
        lazy_step.base_errors.resize(lazy_step.overlay.nodes().size() *
                                     rounding_.errors[lazy_step.propagation].width());
      }
      if (lazy_step.overlay.num_stale() == 0) continue;
      for (uint32_t node : lazy_step.overlay.nodes()) {
        if (!lazy_step.overlay.stale(node)) continue;
        need_[s].push_back(node);
        lazy_step.overlay.want(node);
      }
    }
    compute(true);
  }
  std::unique_lock alone(state_.graph.lock);
  exchange_rows();
  exchange_errors(true);
  shows_current_ = true;
}

void Lazy::show_base() noexcept {
  if (!shows_current_) return;
  if (!covers_nothing()) {
    std::unique_lock alone(state_.graph.lock);
    exchange_rows();
    exchange_errors(false);
    shows_current_ = false;  // before readers go on
  }
  shows_current_ = false;
}

void Lazy::exchange_rows() noexcept {
  for (LazyStep& lazy_step : lazy_steps_) {
    if (lazy_step.kind == LazyStep::kSaved) continue;
    const std::vector<uint32_t>& nodes = lazy_step.overlay.nodes();
    for (const LazyStep::Column& column : lazy_step.columns) {
      if (column.value == kNoIndex) continue;
      const Rows rows = state_.rows(column.value);
      writer_pool_.run(blocks_of(nodes.size()), kMessageCost * static_cast<double>(nodes.size()), [&](size_t block) {
        const size_t end = std::min(nodes.size(), (block + 1) * kBlockRows);
        for (size_t i = block * kBlockRows; i < end; ++i) {
          float* const row = lazy_step.overlay.row(nodes[i]) + column.at;
          std::swap_ranges(row, row + rows.width, rows.row(nodes[i]));
        }
      });
    }
  }
}

void Lazy::exchange_errors(bool current) noexcept {
  for (LazyStep& lazy_step : lazy_steps_) {
    if (lazy_step.kind != LazyStep::kPropagate) continue;
    Table& errors = rounding_.errors[lazy_step.propagation];
    const size_t width = errors.width();
    if (width == 0) continue;  // a maximum
    // Messages that read both ends were summed again, however many bounds they have.
    const bool anew = state_.program.propagations[lazy_step.propagation].message != kNoIndex;
    float* base = lazy_step.base_errors.data();
    for (uint32_t node : lazy_step.overlay.nodes()) {
      if (!current) {
        errors.write(node, base);
      } else {
        std::copy_n(errors.row(node), width, base);
        if (anew) {
          errors.clear_row(node);
        } else {
          errors.write(node, lazy_step.overlay.error(node));
        }
      }
      base += width;
    }
  }
}

// Nobody reads an overlay while current rows are shown, so this needs no lock of the graph.
void Lazy::clear() noexcept {
  {
    std::unique_lock lock(mutex_);
    for (LazyStep& lazy_step : lazy_steps_) {
      lazy_step.overlay.clear();
      lazy_step.base_errors = {};
    }
    for (EdgeRecord& record : edges_) record.clear();
    saved_features_ = 0;
    pending_.store(0, std::memory_order_relaxed);
  }
  left_behind_ = false;
  shows_current_ = false;
}

void Lazy::prepare_growth(const GraphGrowth& growth) {
  const size_t directions = 2 * (state_.graph.edges.size() + growth.edge_types.size());
  recorded_.reserve(directions);
  edges_.reserve(directions);
}

void Lazy::commit_growth() noexcept {
  add_directions(state_.graph, false, false, &recorded_);
  add_directions(state_.graph, EdgeRecord{}, EdgeRecord{}, &edges_);
}

}  // namespace livegnn
