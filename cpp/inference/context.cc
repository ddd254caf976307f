// Contexts: what a node knows of its in-edges without any features (NeutronRT, section IV.A, nbr_ctx).
#include <cmath>

#include "inference/directed_changes.h"
#include "inference/engine_scratch.h"
#include "threads/parallel.h"

namespace livegnn {
namespace {

// Weights are float32, so most of their sums are exact in a double; but not that of 1e16 and 10. A sum from which large
// weights have gone keeps what they rounded off, however many steps they took, so the bound is carried along.
constexpr double kDoubleUnit = 1.1102230246251565e-16;
constexpr double kSumTolerance = 1e-9;

// Whether every node has one loop, and of parallel ones only the last is read: sums are taken of the other edges alone,
// since a loop that counts for nothing may be larger than all that counts.
bool takes_last_loop(const ContextStep& step, const EdgeView& store) {
  return store.keyed() && step.fill && !step.skip_loops;
}

// The loops of a node as they will be.
struct Loops {
  uint32_t count = 0, last_key = 0;
  float last = 0;  // weight of the one with the greatest key

  void add(uint32_t key, float weight) {
    if (count++ == 0 || key > last_key) last_key = key, last = weight;
  }
  // What a sum along edges lacks where every node has one loop.
  double missing(const ContextStep& step, const EdgeView& store) const {
    if (count == 0) return static_cast<double>(step.fill.value_or(0));
    if (!takes_last_loop(step, store)) return 0;
    return step.weighted || step.kind == ContextKind::kSum ? static_cast<double>(last) : 1.0;
  }
};

Loops loops_of(const EdgeView& store, uint32_t node, std::span<const DirectedChange> changes) {
  Loops loops;
  store.scan_loops(node, [&](uint32_t key, const EdgeValue& value) {
    const DirectedChange* change = changes.empty() ? nullptr : change_from(changes, node, key);
    if (change == nullptr) {
      loops.add(key, value.weight);
    } else if (change->has) {
      loops.add(key, change->new_weight);
    }
  });
  for (const DirectedChange& change : changes) {
    if (change.source == node && !change.had && change.has) loops.add(change.key, change.new_weight);
  }
  return loops;
}

}  // namespace

double Engine::context_sum(const ContextStep& step, uint32_t node, std::span<const DirectedChange> changes) const {
  double sum = 0;
  const EdgeView store = view_of(graph_, step);
  const bool skip_loops = step.skip_loops || takes_last_loop(step, store);
  scan_new_in(store, node, changes, [&](uint32_t source, float weight) {
    if (!skip_loops || source != node) sum += static_cast<double>(weight);
  });
  return sum;
}

void Engine::compute_context(const ContextStep& step, uint32_t node, float* row, double* sum) const {
  const EdgeView store = view_of(graph_, step);
  const Loops loops = step.fill || step.skip_loops ? loops_of(store, node, {}) : Loops{};
  if (step.kind == ContextKind::kCount) {
    *row = static_cast<float>(store.degree_in(node) - loops.count + (step.fill ? 1 : 0));
  } else if (step.kind == ContextKind::kLoop) {
    *row = static_cast<float>(loops.missing(step, store));
  } else {
    *sum = context_sum(step, node, {});
    *row = static_cast<float>(*sum + loops.missing(step, store));
  }
}

void Engine::initialize_context(size_t position) {
  const ContextStep& context = program_.contexts[position];
  const IdMap& ids = graph_.nodes[program_.values[context.output].node_type].ids;
  Rows out = rows(context.output);
  auto& sums = sums_[position];
  sums.assign(context.kind == ContextKind::kSum ? ids.capacity() : 0, 0.0);
  sum_errors_[position].assign(sums.size(), 0.0);
  pool_->run(blocks_of(ids.capacity()), kLong, [&](size_t block) {
    size_t end = std::min(ids.capacity(), (block + 1) * kBlockRows);
    for (auto node = static_cast<uint32_t>(block * kBlockRows); node < end; ++node) {
      if (!ids.in_use(node)) continue;
      double sum = 0;
      compute_context(context, node, out.row(node), &sum);
      if (!sums.empty()) sums[node] = sum;
    }
  });
}

void Engine::prepare_context(const ContextStep& step, size_t context, const Delta& delta, Prepared* prepared) {
  const auto& edges = prepared->edges[direction_of(graph_, step)];
  const EdgeView store = view_of(graph_, step);
  uint32_t node_type = program_.values[step.output].node_type;
  const NodeDelta& node_delta = delta.nodes[node_type];
  const auto& removed = scratches_->removed[node_type];
  Changes& changes = prepared->changes[step.output];
  auto& sums = sums_[context];
  const auto& sum_errors = sum_errors_[context];
  const bool skip_loops = step.skip_loops || takes_last_loop(step, store);
  changes.sums.clear();
  changes.sum_errors.clear();
  float* rows = changes.rows.reserve((edges.size() + node_delta.added.size()) * changes.stride);

  auto write = [&](uint32_t node, std::span<const DirectedChange> node_changes, bool fresh) {
    const Loops loops = step.fill || step.skip_loops ? loops_of(store, node, node_changes) : Loops{};
    float row = 0;
    double sum = 0, error = 0;
    if (step.kind == ContextKind::kLoop) {
      row = static_cast<float>(loops.missing(step, store));
    } else if (step.kind == ContextKind::kCount) {
      int64_t count = store.degree_in(node);
      for (const DirectedChange& change : node_changes) count += int{change.has} - int{change.had};
      row = static_cast<float>(count - loops.count + (step.fill ? 1 : 0));
    } else {
      const bool known = !fresh && node < sums.size();
      sum = known ? sums[node] : 0.0;
      error = known ? sum_errors[node] : 0.0;
      for (const DirectedChange& change : node_changes) {
        if (skip_loops && change.source == node) continue;
        double difference = (change.has ? change.new_weight : 0.0) - (change.had ? change.old_weight : 0.0);
        if (difference == 0) continue;
        sum += difference;
        error += kDoubleUnit * (std::fabs(difference) + std::fabs(sum));
      }
      if (!(error <= kSumTolerance * std::fabs(sum))) {
        sum = context_sum(step, node, node_changes);
        error = 0;
      }
      row = static_cast<float>(sum + loops.missing(step, store));
    }
    if (!fresh && row == *stored_row(step.output, node)) {
      if (step.kind != ContextKind::kSum || (sum == sums[node] && error == sum_errors[node])) return;
    }
    if (!std::isfinite(row)) lose_row(step.output, node);
    rows[changes.nodes.size()] = row;
    changes.positions.push_back(static_cast<uint32_t>(changes.nodes.size()));
    changes.nodes.push_back(node);
    changes.sums.push_back(sum);
    changes.sum_errors.push_back(error);
  };

  auto& slots = scratches_->slots[0][node_type];
  for (size_t i = 0; i < node_delta.added.size(); ++i) {
    if (node_delta.added_ids[i] == kNoId) continue;
    slots[node_delta.added[i]] = 0;
    write(node_delta.added[i], changes_of(edges, node_delta.added[i]), true);
  }
  for (size_t i = 0; i < edges.size();) {
    size_t end = i;
    while (end < edges.size() && edges[end].target == edges[i].target) ++end;
    uint32_t node = edges[i].target;
    if (!removed[node] && slots[node] == kNoIndex) write(node, {edges.data() + i, end - i}, false);
    i = end;
  }
  for (uint32_t node : node_delta.added) slots[node] = kNoIndex;
}

}  // namespace livegnn
