// Contexts: what a node knows of its in-edges without any features (NeutronRT, section IV.A, nbr_ctx).
#include <cmath>

#include "directed_changes.h"
#include "engine_scratch.h"
#include "parallel.h"

namespace livegnn {

double Engine::context_sum(const ContextStep& step, uint32_t node, std::span<const DirectedChange> changes) const {
  double sum = 0;
  scan_new_in(*graph_.edges[step.edge_type].store, node, changes, [&](uint32_t source, float weight) {
    if (!step.skip_loops || source != node) sum += static_cast<double>(weight);
  });
  return sum;
}

void Engine::initialize_context(size_t position) {
  const ContextStep& context = program_.contexts[position];
  const IdMap& ids = graph_.nodes[program_.values[context.output].node_type].ids;
  const GraphStore& store = *graph_.edges[context.edge_type].store;
  Rows out = rows(context.output);
  auto& sums = sums_[position];
  sums.assign(context.kind == ContextKind::kSum ? ids.capacity() : 0, 0.0);
  pool_->run(blocks_of(ids.capacity()), kLong, [&](size_t block) {
    size_t end = std::min(ids.capacity(), (block + 1) * kBlockRows);
    for (auto node = static_cast<uint32_t>(block * kBlockRows); node < end; ++node) {
      if (!ids.in_use(node)) continue;
      bool loop = (context.fill != 0 || context.skip_loops) && store.find(node, node).has_value();
      if (context.kind == ContextKind::kCount) {
        *out.row(node) = static_cast<float>(store.degree_in(node) + (context.fill != 0 && !loop ? 1 : 0) -
                                            (context.skip_loops && loop ? 1 : 0));
      } else if (context.kind == ContextKind::kLoop) {
        *out.row(node) = loop ? 0.0f : context.fill;
      } else {
        sums[node] = context_sum(context, node, {});
        *out.row(node) = static_cast<float>(sums[node] + (loop ? 0.0f : context.fill));
      }
    }
  });
}

void Engine::prepare_context(const ContextStep& step, size_t context, const Delta& delta, Prepared* prepared) {
  const auto& edges = prepared->edges[step.edge_type];
  const GraphStore& store = *graph_.edges[step.edge_type].store;
  uint32_t node_type = program_.values[step.output].node_type;
  const NodeDelta& node_delta = delta.nodes[node_type];
  const auto& removed = scratches_->removed[node_type];
  Changes& changes = prepared->changes[step.output];
  auto& sums = sums_[context];
  changes.sums.clear();
  float* rows = changes.rows.reserve((edges.size() + node_delta.added.size()) * changes.stride);

  auto write = [&](uint32_t node, std::span<const DirectedChange> node_changes, bool fresh) {
    bool loop = false;
    if (step.fill != 0 || step.skip_loops) {
      const DirectedChange* own = change_from(node_changes, node);
      loop = own != nullptr ? own->has : store.find(node, node).has_value();
    }
    float row = 0;
    double sum = 0;
    if (step.kind == ContextKind::kLoop) {
      row = loop ? 0.0f : step.fill;
    } else if (step.kind == ContextKind::kCount) {
      int64_t count = store.degree_in(node);
      for (const DirectedChange& change : node_changes) count += int{change.has} - int{change.had};
      row = static_cast<float>(count + (step.fill != 0 && !loop ? 1 : 0) - (step.skip_loops && loop ? 1 : 0));
    } else {
      double old = fresh || node >= sums.size() ? 0.0 : sums[node];
      double moved = 0;
      sum = old;
      for (const DirectedChange& change : node_changes) {
        if (step.skip_loops && change.source == node) continue;
        double difference = (change.has ? change.new_weight : 0.0) - (change.had ? change.old_weight : 0.0);
        sum += difference;
        moved += std::fabs(difference);
      }
      // What is left of a sum that was much larger is mostly rounding.
      if (std::fabs(sum) < 1e-6 * (std::fabs(old) + moved)) sum = context_sum(step, node, node_changes);
      row = static_cast<float>(sum + (loop ? 0.0 : static_cast<double>(step.fill)));
    }
    if (!fresh && row == *stored_row(step.output, node)) {
      if (step.kind != ContextKind::kSum || sum == sums[node]) return;
    }
    rows[changes.nodes.size()] = row;
    changes.positions.push_back(static_cast<uint32_t>(changes.nodes.size()));
    changes.nodes.push_back(node);
    changes.sums.push_back(sum);
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
