#include "livegnn/engine.h"

#include <algorithm>
#include <cstring>

#include "engine_scratch.h"
#include "kernels.h"
#include "parallel.h"

namespace livegnn {

Engine::Engine(const Graph& graph, Program program, size_t threads)
    : graph_(graph),
      program_(std::move(program)),
      errors_(program_.propagations.size()),
      sums_(program_.contexts.size()),
      typical_(program_.propagations.size()),
      pool_(std::make_unique<ThreadPool>(threads)),
      scratches_(std::make_unique<Scratches>()) {
  size_t widest = 1;
  for (const Value& value : program_.values) {
    tables_.emplace_back(value.width);
    widest = std::max(widest, tables_.back().stride());
  }
  zeros_.assign(widest, 0.0f);
  for (auto& slots : scratches_->slots) slots.resize(graph.nodes.size());
  scratches_->removed.resize(graph.nodes.size());
}

Engine::~Engine() = default;

const Table& Engine::table(uint32_t value) const {
  const Value& spec = program_.values[value];
  return spec.features ? graph_.nodes[spec.node_type].features : tables_[value];
}

const float* Engine::stored_row(uint32_t value, uint32_t node) const {
  const Table& rows = table(value);
  return node < rows.rows() ? rows.row(node) : zeros_.data();
}

void Engine::initialize() {
  for (size_t v = 0; v < program_.values.size(); ++v) {
    if (!program_.values[v].features) {
      tables_[v].resize(0);
      tables_[v].resize(graph_.nodes[program_.values[v].node_type].ids.capacity());
    }
  }
  for (const Step& step : program_.order) {
    if (step.kind == Step::kContext) {
      const ContextStep& context = program_.contexts[step.position];
      const IdMap& ids = graph_.nodes[program_.values[context.output].node_type].ids;
      Table& out = tables_[context.output];
      auto& sums = sums_[step.position];
      sums.assign(context.kind == ContextKind::kSum ? ids.capacity() : 0, 0.0);
      const GraphStore& store = *graph_.edges[context.edge_type].store;
      pool_->run((ids.capacity() + kBlockRows - 1) / kBlockRows, [&](size_t block) {
        size_t end = std::min(ids.capacity(), (block + 1) * kBlockRows);
        for (auto node = static_cast<uint32_t>(block * kBlockRows); node < end; ++node) {
          if (!ids.in_use(node)) continue;
          bool loop = context.fill != 0 && store.find(node, node).has_value();
          if (context.kind == ContextKind::kCount) {
            *out.row(node) = static_cast<float>(store.degree_in(node) + (context.fill != 0 && !loop ? 1 : 0));
          } else if (context.kind == ContextKind::kLoop) {
            *out.row(node) = loop ? 0.0f : context.fill;
          } else {
            sums[node] = context_sum(context, node, {});
            *out.row(node) = static_cast<float>(sums[node] + (loop ? 0.0f : context.fill));
          }
        }
      });
    } else if (step.kind == Step::kPropagate) {
      const PropagateStep& propagate = program_.propagations[step.position];
      const IdMap& ids = graph_.nodes[program_.values[propagate.output].node_type].ids;
      Table& out = tables_[propagate.output];
      size_t blocks = (ids.capacity() + kBlockRows - 1) / kBlockRows;
      std::vector<double> peaks(blocks);
      pool_->run(blocks, [&](size_t block) {
        size_t end = std::min(ids.capacity(), (block + 1) * kBlockRows);
        for (auto node = static_cast<uint32_t>(block * kBlockRows); node < end; ++node) {
          if (!ids.in_use(node)) continue;
          aggregate_all(propagate, node, out.row(node));
          peaks[block] += kernels().peak(out.width(), out.row(node));
        }
      });
      double total = 0;
      for (double peak : peaks) total += peak;
      typical_[step.position] = static_cast<float>(total / static_cast<double>(std::max<size_t>(1, ids.size())));
      errors_[step.position].assign(propagate.aggregate == Aggregate::kSum ? ids.capacity() : 0, 0.0f);
    } else {
      const RowsStep& rows = program_.rows[step.position];
      const IdMap& ids = graph_.nodes[rows.node_type].ids;
      pool_->run((ids.capacity() + kBlockRows - 1) / kBlockRows, [&](size_t block) {
        size_t first = block * kBlockRows, count = std::min(kBlockRows, ids.capacity() - first);
        static thread_local std::vector<Scratch> memory;
        memory.resize(std::max(memory.size(), rows.buffers.size()));
        std::vector<float*> buffers;
        for (size_t b = 0; b < rows.buffers.size(); ++b) {
          // Sources are only read: run_rows writes to the buffers of its own results.
          buffers.push_back(b < rows.sources.size() ? const_cast<float*>(table(rows.sources[b]).row(first))
                                                    : memory[b].reserve(kBlockRows * row_stride(rows.buffers[b])));
        }
        run_rows(rows, count, buffers.data());
        for (const Sink& sink : rows.sinks) {
          const Register& reg = rows.registers[sink.reg];
          for (size_t i = 0; i < count; ++i) {
            if (!ids.in_use(static_cast<uint32_t>(first + i))) continue;
            tables_[sink.value].write(first + i,
                                      buffers[reg.buffer] + i * row_stride(rows.buffers[reg.buffer]) + reg.column);
          }
        }
      });
    }
  }
}

void Engine::prepare(const Delta& delta, Prepared* prepared) {
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
    changes.external = nullptr;
    changes.stride = table(static_cast<uint32_t>(v)).stride();
  }
  prepared->affected = prepared->edges_touched = prepared->recomputed = 0;

  prepare_features(delta, prepared);
  prepare_edges(delta, prepared);
  for (const Step& step : program_.order) {
    if (step.kind == Step::kContext) {
      prepare_context(program_.contexts[step.position], step.position, delta, prepared);
    } else if (step.kind == Step::kRows) {
      prepare_rows(program_.rows[step.position], delta, prepared);
    } else if (program_.propagations[step.position].aggregate == Aggregate::kSum) {
      prepare_sum(program_.propagations[step.position], step.position, prepared);
    } else {
      prepare_max(program_.propagations[step.position], prepared);
    }
  }
  for (size_t n = 0; n < graph_.nodes.size(); ++n) {
    for (uint32_t node : delta.nodes[n].removed) scratch.removed[n][node] = 0;
  }
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
    Table& out = tables_[v];
    const NodeDelta& nodes = delta.nodes[value.node_type];
    if (out.rows() < nodes.capacity) out.resize(nodes.capacity);
    for (uint32_t node : nodes.removed) out.clear_row(node);
    const Changes& changes = prepared.changes[v];
    pool_->run((changes.nodes.size() + 4 * kBlockRows - 1) / (4 * kBlockRows), [&](size_t block) {
      size_t end = std::min(changes.nodes.size(), (block + 1) * 4 * kBlockRows);
      for (size_t i = block * 4 * kBlockRows; i < end; ++i) out.write(changes.nodes[i], changes.row(i));
    });
  }
  for (size_t p = 0; p < program_.propagations.size(); ++p) {
    const PropagateStep& step = program_.propagations[p];
    if (step.aggregate != Aggregate::kSum) continue;
    const NodeDelta& nodes = delta.nodes[program_.values[step.output].node_type];
    errors_[p].resize(std::max(errors_[p].size(), nodes.capacity));
    for (uint32_t node : nodes.removed) errors_[p][node] = 0;
    const Changes& changes = prepared.changes[step.output];
    for (size_t i = 0; i < changes.nodes.size(); ++i) {
      errors_[p][changes.nodes[i]] = changes.errors[changes.positions[i]];
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
}

void Engine::evaluate(size_t on_demand, float* out) {
  const RowsStep& step = program_.on_demand[on_demand];
  const Register& reg = step.registers[step.sinks[0].reg];
  size_t rows = graph_.nodes[step.node_type].ids.capacity();
  pool_->run((rows + kBlockRows - 1) / kBlockRows, [&](size_t block) {
    size_t first = block * kBlockRows, count = std::min(kBlockRows, rows - first);
    static thread_local std::vector<Scratch> memory;
    memory.resize(std::max(memory.size(), step.buffers.size()));
    std::vector<float*> buffers;
    for (size_t b = 0; b < step.buffers.size(); ++b) {
      buffers.push_back(b < step.sources.size() ? const_cast<float*>(table(step.sources[b]).row(first))
                                                : memory[b].reserve(kBlockRows * row_stride(step.buffers[b])));
    }
    run_rows(step, count, buffers.data());
    for (size_t i = 0; i < count; ++i) {
      std::memcpy(out + (first + i) * reg.width,
                  buffers[reg.buffer] + i * row_stride(step.buffers[reg.buffer]) + reg.column,
                  reg.width * sizeof(float));
    }
  });
}

double Engine::scrub(size_t propagation, std::span<const uint32_t> nodes) {
  const PropagateStep& step = program_.propagations[propagation];
  const Table& kept = tables_[step.output];
  std::vector<float> row(kept.stride());
  double worst = 0;
  for (uint32_t node : nodes) {
    if (!graph_.nodes[program_.values[step.output].node_type].ids.in_use(node)) continue;
    aggregate_all(step, node, row.data());
    float scale = std::max(typical_[propagation], kernels().peak(kept.width(), row.data()));
    kernels().subtract(kept.width(), row.data(), kept.row(node), row.data());
    float difference = kernels().peak(kept.width(), row.data());
    if (difference > 0) worst = std::max(worst, static_cast<double>(difference / scale));
  }
  return worst;
}

size_t Engine::bytes() const {
  size_t total = 0;
  for (const Table& table : tables_) total += table.bytes();
  for (const auto& errors : errors_) total += errors.capacity() * sizeof(float);
  for (const auto& sums : sums_) total += sums.capacity() * sizeof(double);
  return total;
}

}  // namespace livegnn
