// All values of a program, computed from the graph alone.
#include <algorithm>
#include <cstring>
#include <vector>

#include "inference/edge_view.h"
#include "inference/engine.h"
#include "inference/engine_scratch.h"
#include "inference/lazy.h"
#include "threads/parallel.h"

namespace livegnn {

// One block of a step over all rows, where they lie.
void Engine::run_all(const RowsStep& step, size_t block, const Whole* whole, std::vector<float*>* buffers) const {
  static thread_local std::vector<Scratch> memory;
  static thread_local std::vector<const float*> sources;
  const size_t capacity = graph_.nodes[step.node_type].ids.capacity();
  const size_t first = block * kBlockRows, count = std::min(kBlockRows, capacity - first);
  memory.resize(std::max(memory.size(), step.buffers.size()));
  buffers->clear();
  for (size_t b = 0; b < step.buffers.size(); ++b) {
    buffers->push_back(memory[b].reserve(kBlockRows * row_stride(step.buffers[b])));
  }
  static thread_local RowArena arena;
  arena.clear();
  arena.whole = whole;
  uint32_t nodes[kBlockRows];
  for (size_t i = 0; i < kBlockRows; ++i) nodes[i] = static_cast<uint32_t>(first + std::min(i, count - 1));
  sources.resize(step.sources.size() * kBlockRows);
  for (size_t s = 0; s < step.sources.size(); ++s) {
    stored_rows(step.sources[s], nodes, &arena, sources.data() + s * kBlockRows);
  }
  run_rows(step, count, sources.data(), buffers->data());
}

void Engine::initialize() {
  if (lazy_ != nullptr) lazy_->clear();
  initialize_residents();
  Whole whole(program_.values.size());
  std::vector<Table> tables;
  for (size_t v = 0; v < program_.values.size(); ++v) {
    const Value& value = program_.values[v];
    if (value.features || !is_stored(static_cast<uint32_t>(v))) continue;
    slabs_[value.slab].resize(0);
    slabs_[value.slab].resize(graph_.nodes[value.node_type].ids.capacity());
  }
  for (const Step& step : program_.order) {
    if (step.kind == Step::kContext) {
      initialize_context(step.position);
    } else if (step.kind == Step::kPropagate) {
      if (program_.propagations[step.position].message != kNoIndex) {
        initialize_messages(step.position);
        continue;
      }
      const uint32_t output = program_.propagations[step.position].output;
      if (partial_[output] >= 0) {
        tables.emplace_back(program_.values[output].width);
        tables.back().resize(graph_.nodes[program_.values[output].node_type].ids.capacity());
        whole[output] = {tables.back().row(0), tables.back().stride(), tables.back().width(), tables.back().rows()};
      }
      initialize_propagation(step.position, &whole);
    } else {
      const RowsStep& rows_step = program_.rows[step.position];
      const IdMap& ids = graph_.nodes[rows_step.node_type].ids;
      const auto kept = [&](const Sink& sink) { return is_stored(sink.value); };
      if (std::none_of(rows_step.sinks.begin(), rows_step.sinks.end(), kept)) continue;
      pool_->run(blocks_of(ids.capacity()), kLong, [&](size_t block) {
        static thread_local std::vector<float*> buffers;
        run_all(rows_step, block, &whole, &buffers);
        size_t first = block * kBlockRows, count = std::min(kBlockRows, ids.capacity() - first);
        for (const Sink& sink : rows_step.sinks) {
          if (!is_stored(sink.value)) continue;
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
  batches_ = measured_ = touched_ = 0;
  measure_first();
}

void Engine::initialize_propagation(size_t position, Whole* whole) {
  const PropagateStep& propagate = program_.propagations[position];
  const IdMap& ids = graph_.nodes[program_.values[propagate.output].node_type].ids;
  const bool partial = partial_[propagate.output] >= 0, sum = propagate.aggregate == Aggregate::kSum;
  const GrowingArray<uint32_t>& residents = residents_[direction_of(graph_, propagate)].nodes;
  const size_t kept = partial ? residents.size() : ids.capacity();
  if (partial) {
    // With room for those who will come: growth by half would undo much of what is saved.
    Table& slab = slabs_[program_.values[propagate.output].slab];
    slab.resize(0);
    slab.resize(kept + kept / 8);
    slab.resize(kept);
  }
  errors_[position].resize(0);
  errors_[position].resize(sum ? kept : 0);
  Rows out = partial ? (*whole)[propagate.output] : rows(propagate.output);
  const Rows counts = sum ? Rows{} : kept_rows(propagate.counts);
  Table table;
  const Rows input = all_stored_rows(propagate.input, whole, &table);
  const EdgeView store = view_of(graph_, propagate);
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
      const uint32_t slot = slot_of(propagate.output, node);
      float* const count_row = sum || slot == kNoIndex ? nullptr : counts.row(slot);
      if (partial) {
        aggregate_in_order(propagate, input, node, out.row(node), count_row);
      } else {
        aggregate_all(propagate, input, node, out.row(node), count_row);
      }
    }
  });
  if (!partial) return;
  const Rows rows = kept_rows(propagate.output);
  for (size_t slot = 0; slot < kept; ++slot) {
    std::memcpy(rows.row(slot), out.row(residents[slot]), rows.width * sizeof(float));
  }
}

}  // namespace livegnn
