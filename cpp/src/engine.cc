#include "livegnn/engine.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>

#include "engine_scratch.h"
#include "kernels.h"
#include "lazy.h"
#include "parallel.h"

namespace livegnn {
namespace {

uint64_t next_serial() {
  static std::atomic<uint64_t> last{0};
  return ++last;
}

}  // namespace

Engine::Engine(const Graph& graph, Program program, size_t threads)
    : graph_(graph),
      program_(std::move(program)),
      errors_(program_.propagations.size()),
      sums_(program_.contexts.size()),
      pool_(std::make_unique<ThreadPool>(threads)),
      scratches_(std::make_unique<Scratches>()),
      serial_(next_serial()) {
  for (PropagateStep& step : program_.propagations) {
    if (step.aggregate != Aggregate::kMax || step.message != kNoIndex) continue;
    Value counts = program_.values[step.output];  // beside the maxima, since they are read together
    step.counts = static_cast<uint32_t>(program_.values.size());
    program_.values.push_back(counts);
  }
  std::vector<size_t> widths;
  for (const Value& value : program_.values) {
    widths.resize(std::max<size_t>(widths.size(), value.features ? 0 : value.slab + 1));
    columns_.push_back(value.features ? 0 : static_cast<uint32_t>(widths[value.slab]));
    if (!value.features) widths[value.slab] += row_stride(value.width);
    zeros_.resize(std::max(zeros_.size(), row_stride(2 * value.width)));
  }
  for (const Graph::EdgeType& edges : graph.edges) {
    zeros_.resize(std::max(zeros_.size(), edges.features.table().stride()));
  }
  for (size_t width : widths) slabs_.emplace_back(width);
  for (const RowsStep& step : program_.rows) {
    double cost = kRowCost;
    for (const Op& op : step.ops) {
      if (op.kind != OpKind::kLinear) continue;
      cost += 2.0 * kFlopCost * step.registers[op.inputs[0]].width * step.registers[op.output].width;
    }
    row_costs_.push_back(cost);
  }
  for (auto& slots : scratches_->slots) slots.resize(graph.nodes.size());
  scratches_->removed.resize(graph.nodes.size());
}

Engine::~Engine() = default;

Rows Engine::rows(uint32_t value) const {
  const Value& spec = program_.values[value];
  const Table& table = spec.features ? graph_.nodes[spec.node_type].features : slabs_[spec.slab];
  return {const_cast<float*>(table.row(0)) + columns_[value], table.stride(), spec.width, table.rows()};
}

const float* Engine::stored_row(uint32_t value, uint32_t node) const {
  Rows all = rows(value);
  return node < all.count ? all.row(node) : zeros_.data();
}

// One block of a step over all rows, where they lie.
void Engine::run_all(const RowsStep& step, size_t block, std::vector<float*>* buffers) const {
  static thread_local std::vector<Scratch> memory;
  static thread_local std::vector<const float*> sources;
  const size_t capacity = graph_.nodes[step.node_type].ids.capacity();
  const size_t first = block * kBlockRows, count = std::min(kBlockRows, capacity - first);
  memory.resize(std::max(memory.size(), step.buffers.size()));
  buffers->clear();
  for (size_t b = 0; b < step.buffers.size(); ++b) {
    buffers->push_back(memory[b].reserve(kBlockRows * row_stride(step.buffers[b])));
  }
  sources.clear();
  for (uint32_t source : step.sources) {
    Rows from = rows(source);
    for (size_t i = 0; i < kBlockRows; ++i) sources.push_back(from.row(std::min(first + i, first + count - 1)));
  }
  run_rows(step, count, sources.data(), buffers->data());
}

void Engine::initialize() {
  if (lazy_ != nullptr) lazy_->clear();
  for (size_t v = 0; v < program_.values.size(); ++v) {
    const Value& value = program_.values[v];
    if (value.features) continue;
    slabs_[value.slab].resize(0);
    slabs_[value.slab].resize(graph_.nodes[value.node_type].ids.capacity());
  }
  for (const Step& step : program_.order) {
    if (step.kind == Step::kContext) {
      initialize_context(step.position);
    } else if (step.kind == Step::kPropagate) {
      if (program_.propagations[step.position].message != kNoIndex) {
        initialize_messages(step.position);
      } else {
        initialize_propagation(step.position);
      }
    } else {
      const RowsStep& rows_step = program_.rows[step.position];
      const IdMap& ids = graph_.nodes[rows_step.node_type].ids;
      pool_->run(blocks_of(ids.capacity()), kLong, [&](size_t block) {
        static thread_local std::vector<float*> buffers;
        run_all(rows_step, block, &buffers);
        size_t first = block * kBlockRows, count = std::min(kBlockRows, ids.capacity() - first);
        for (const Sink& sink : rows_step.sinks) {
          const Register& reg = rows_step.registers[sink.reg];
          Rows out = rows(sink.value);
          for (size_t i = 0; i < count; ++i) {
            if (!ids.in_use(static_cast<uint32_t>(first + i))) continue;
            const float* from = buffers[reg.buffer] + i * row_stride(rows_step.buffers[reg.buffer]) + reg.column;
            std::memcpy(out.row(first + i), from, reg.width * sizeof(float));
          }
        }
      });
    }
  }
}

void Engine::initialize_propagation(size_t position) {
  const PropagateStep& propagate = program_.propagations[position];
  const IdMap& ids = graph_.nodes[program_.values[propagate.output].node_type].ids;
  Rows out = rows(propagate.output);
  const Rows input = rows(propagate.input);
  const bool counted = propagate.aggregate == Aggregate::kMax;
  const Rows counts = rows(counted ? propagate.counts : propagate.output);
  const GraphStore& store = *graph_.edges[propagate.edge_type].store;
  // Lists are short, so what to fetch next lies in the lists of later nodes.
  auto fetch = [&](uint32_t node) {
    store.scan_in(node, [&](NeighborSpan span) {
      for (size_t i = 0; i < std::min<size_t>(span.size, 8); ++i) {
        const float* row = input.row(span.ids[i]);
        for (size_t c = 0; c < input.width; c += 16) __builtin_prefetch(row + c);
      }
    });
  };
  pool_->run(blocks_of(ids.capacity()), kLong, [&](size_t block) {
    size_t end = std::min(ids.capacity(), (block + 1) * kBlockRows);
    for (auto node = static_cast<uint32_t>(block * kBlockRows); node < end; ++node) {
      store.prefetch_in(node + 12);
      store.prefetch_in_leaf(node + 8);
      if (node + 2 < end) fetch(node + 2);
      if (!ids.in_use(node)) continue;
      aggregate_all(propagate, node, out.row(node), counted ? counts.row(node) : nullptr);
    }
  });
  errors_[position].assign(propagate.aggregate == Aggregate::kSum ? ids.capacity() : 0, 0.0f);
}

void Engine::prepare(const Delta& delta, Prepared* prepared) { prepare_steps(delta, program_.order.size(), prepared); }

void Engine::prepare_steps(const Delta& delta, size_t steps, Prepared* prepared) {
  Scratches& scratch = *scratches_;
  for (size_t n = 0; n < graph_.nodes.size(); ++n) {
    for (auto& slots : scratch.slots) {
      if (slots[n].size() < delta.nodes[n].capacity) slots[n].resize(delta.nodes[n].capacity, kNoIndex);
    }
    if (scratch.removed[n].size() < delta.nodes[n].capacity) scratch.removed[n].resize(delta.nodes[n].capacity, 0);
    for (uint32_t node : delta.nodes[n].removed) scratch.removed[n][node] = 1;
  }
  prepared->changes.resize(program_.values.size());
  for (size_t v = 0; v < program_.values.size(); ++v) {
    Changes& changes = prepared->changes[v];
    changes.nodes.clear();
    changes.positions.clear();
    changes.reached.clear();
    changes.external = nullptr;
    changes.stride = row_stride(program_.values[v].width);
  }
  prepared->marked = false;
  prepared->changed.clear();
  prepared->affected = prepared->edges_touched = prepared->nodes_touched = prepared->recomputed = 0;

  prepare_features(delta, prepared);
  prepare_edges(delta, prepared);
  bool output_done = false;
  for (size_t i = 0; i < steps; ++i) {
    const Step step = program_.order[i];
    if (step.kind == Step::kContext) {
      prepare_context(program_.contexts[step.position], step.position, delta, prepared);
    } else if (step.kind == Step::kRows) {
      prepare_rows(program_.rows[step.position], false, row_costs_[step.position], delta, prepared);
    } else if (program_.propagations[step.position].message != kNoIndex) {
      prepare_messages(program_.propagations[step.position], step.position, prepared);
    } else if (program_.propagations[step.position].aggregate == Aggregate::kMax) {
      prepare_max(program_.propagations[step.position], prepared);
    } else {
      const Reader reader = i + 1 < steps || steps == program_.order.size() ? reader_of(i) : Reader{};
      prepare_sum(program_.propagations[step.position], step.position, reader, delta, prepared);
      if (reader.step == nullptr) continue;
      if (reader.output) {
        output_done = true;
      } else {
        ++i;
      }
    }
  }
  if (steps < program_.order.size()) {
    // What comes of the prediction, nobody knows yet.
  } else if (program_.output_kept) {
    prepared->changed = prepared->changes[program_.output].nodes;
  } else if (!output_done) {
    prepare_rows(program_.on_demand[program_.output], true, kRowCost, delta, prepared);
  }
  for (size_t n = 0; n < graph_.nodes.size(); ++n) {
    for (uint32_t node : delta.nodes[n].removed) scratch.removed[n][node] = 0;
  }
}

// The rows step that follows a propagation, if it reads what comes out of it.
Engine::Reader Engine::reader_of(size_t position) const {
  const uint32_t aggregate = program_.propagations[program_.order[position].position].output;
  Reader reader;
  if (position + 1 == program_.order.size()) {
    if (program_.output_kept) return {};
    reader = {&program_.on_demand[program_.output], true, kRowCost};
  } else if (program_.order[position + 1].kind == Step::kRows) {
    const uint32_t next = program_.order[position + 1].position;
    reader = {&program_.rows[next], false, row_costs_[next]};
  } else {
    return {};
  }
  const auto& sources = reader.step->sources;
  return std::find(sources.begin(), sources.end(), aggregate) == sources.end() ? Reader{} : reader;
}

void Engine::prepare_features(const Delta& delta, Prepared* prepared) {
  for (size_t v = 0; v < program_.values.size(); ++v) {
    const Value& value = program_.values[v];
    if (!value.features) continue;
    const NodeDelta& nodes = delta.nodes[value.node_type];
    Changes& changes = prepared->changes[v];
    changes.external = nodes.features.data();
    for (size_t i = 0; i < nodes.featured.size(); ++i) {
      const float* row = nodes.features.data() + i * changes.stride;
      if (!kernels().differs(value.width, stored_row(static_cast<uint32_t>(v), nodes.featured[i]), row)) continue;
      changes.nodes.push_back(nodes.featured[i]);
      changes.positions.push_back(static_cast<uint32_t>(i));
    }
  }
}

// Leaves out what came out as it was; the rows stay where they are.
void Engine::keep_changed(Changes* changes, const std::vector<uint32_t>& nodes, const std::vector<uint8_t>& keep) {
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (!keep[i]) continue;
    changes->nodes.push_back(nodes[i]);
    changes->positions.push_back(static_cast<uint32_t>(i));
  }
}

void Engine::commit(const Delta& delta, const Prepared& prepared) {
  for (size_t v = 0; v < program_.values.size(); ++v) {
    const Value& value = program_.values[v];
    if (value.features) continue;
    const NodeDelta& nodes = delta.nodes[value.node_type];
    Table& slab = slabs_[value.slab];
    if (slab.rows() < nodes.capacity) slab.resize(nodes.capacity);
    Rows out = rows(static_cast<uint32_t>(v));
    for (uint32_t node : nodes.removed) std::memset(out.row(node), 0, out.width * sizeof(float));
    const Changes& changes = prepared.changes[v];
    const size_t count = changes.nodes.size();
    pool_->run(blocks_of(count), kMessageCost * static_cast<double>(count), [&](size_t block) {
      const size_t first = block * kBlockRows, end = std::min(count, first + kBlockRows);
      for (size_t i = first; i < end; ++i) touch(out.row(changes.nodes[i]));
      for (size_t i = first; i < end; ++i) {
        std::memcpy(out.row(changes.nodes[i]), changes.row(i), out.width * sizeof(float));
      }
    });
  }
  for (size_t p = 0; p < program_.propagations.size(); ++p) {
    const PropagateStep& step = program_.propagations[p];
    if (step.aggregate != Aggregate::kSum) continue;
    const NodeDelta& nodes = delta.nodes[program_.values[step.output].node_type];
    const size_t width = error_width(step);
    auto at = [&](size_t row) { return errors_[p].begin() + static_cast<ptrdiff_t>(row * width); };
    errors_[p].resize(std::max(errors_[p].size(), nodes.capacity * width));
    for (uint32_t node : nodes.removed) std::fill_n(at(node), width, 0.0f);
    const Changes& changes = prepared.changes[step.output];
    for (size_t i = 0; i < changes.reached.size(); ++i) {
      std::copy_n(changes.errors.begin() + static_cast<ptrdiff_t>(i * width), width, at(changes.reached[i]));
    }
  }
  for (size_t c = 0; c < program_.contexts.size(); ++c) {
    const ContextStep& step = program_.contexts[c];
    if (step.kind != ContextKind::kSum) continue;
    const NodeDelta& nodes = delta.nodes[program_.values[step.output].node_type];
    sums_[c].resize(std::max(sums_[c].size(), nodes.capacity));
    for (uint32_t node : nodes.removed) sums_[c][node] = 0;
    const Changes& changes = prepared.changes[step.output];
    for (size_t i = 0; i < changes.nodes.size(); ++i) {
      sums_[c][changes.nodes[i]] = changes.sums[changes.positions[i]];
    }
  }
  if (prepared.marked) lazy_->commit(delta, prepared);
}

void Engine::evaluate(size_t on_demand, float* out) {
  const RowsStep& step = program_.on_demand[on_demand];
  const Register& reg = step.registers[step.sinks[0].reg];
  const size_t capacity = graph_.nodes[step.node_type].ids.capacity();
  pool_->run(blocks_of(capacity), kLong, [&](size_t block) {
    static thread_local std::vector<float*> buffers;
    run_all(step, block, &buffers);
    size_t first = block * kBlockRows, count = std::min(kBlockRows, capacity - first);
    for (size_t i = 0; i < count; ++i) {
      const float* from = buffers[reg.buffer] + i * row_stride(step.buffers[reg.buffer]) + reg.column;
      std::memcpy(out + (first + i) * reg.width, from, reg.width * sizeof(float));
    }
  });
}

bool Engine::load(uint32_t value, const float* from, size_t count, size_t width) {
  const Value& spec = program_.values[value];
  if (width != spec.width || count != graph_.nodes[spec.node_type].ids.capacity()) return false;
  slabs_[spec.slab].resize(count);
  Rows out = rows(value);
  for (size_t i = 0; i < count; ++i) std::memcpy(out.row(i), from + i * width, width * sizeof(float));
  return true;
}

double Engine::scrub(size_t propagation, std::span<const uint32_t> nodes) {
  const PropagateStep& step = program_.propagations[propagation];
  if (step.message != kNoIndex) return scrub_messages(step, nodes);
  const Rows kept = rows(step.output), input = rows(step.input);
  const GraphStore& store = *graph_.edges[step.edge_type].store;
  const bool counted = step.aggregate == Aggregate::kMax;
  std::vector<float> row(row_stride(kept.width)), counts(counted ? kept.width : 0);
  double worst = 0;
  for (uint32_t node : nodes) {
    if (!graph_.nodes[program_.values[step.output].node_type].ids.in_use(node)) continue;
    aggregate_all(step, node, row.data(), counted ? counts.data() : nullptr);
    // Nobody sees a wrong count, until the maximum that it should have let go is wrong altogether.
    if (counted && kernels().differs(kept.width, counts.data(), rows(step.counts).row(node)))
      worst = std::max(worst, 1.0);
    double reach = 0;
    store.scan_in(node, [&](NeighborSpan span) {
      for (size_t i = 0; i < span.size; ++i) {
        const float weight = step.weighted && span.weights != nullptr ? span.weights[i] : 1.0f;
        reach += std::fabs(weight) * kernels().peak(input.width, input.row(span.ids[i]));
      }
    });
    const double mean = reach / static_cast<double>(std::max<int64_t>(1, store.degree_in(node)));
    const double scale = std::max<double>(mean, kernels().peak(kept.width, row.data()));
    kernels().subtract(kept.width, row.data(), kept.row(node), row.data());
    float difference = kernels().peak(kept.width, row.data());
    if (difference > 0) worst = std::max(worst, difference / scale);
  }
  return worst;
}

size_t Engine::bytes() const {
  size_t total = 0;
  for (const Table& slab : slabs_) total += slab.bytes();
  for (const auto& errors : errors_) total += errors.capacity() * sizeof(float);
  for (const auto& sums : sums_) total += sums.capacity() * sizeof(double);
  return total;
}

}  // namespace livegnn
