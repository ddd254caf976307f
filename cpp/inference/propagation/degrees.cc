#include "inference/propagation/degrees.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <stdexcept>
#include <string>

#include "inference/edges/directed_changes.h"
#include "threads/parallel.h"

namespace livegnn {
namespace {

// Weights are float32, so most of their sums are exact in a double; but not, for example, that of 1e16 and 10. A sum
// from which large weights were removed keeps their rounding errors, even after many steps, so the bound is updated
// with it.
constexpr double kDoubleUnit = 1.1102230246251565e-16;
constexpr double kSumTolerance = 1e-9;
// Of the magnitudes of all weights of a node. A sum that has followed changes differs from one of the edges by its
// rounding: the tolerance above, times the root of how many terms were there. What another graph had differs by more.
constexpr double kLoadTolerance = 1e-5;

// Whether every node counts as having one loop, and only the last of parallel loops is read. Then sums are taken over
// the other edges only, because an ignored loop may be larger than everything that counts.
bool takes_last_loop(const ContextStep& step, const EdgeView& store) {
  return store.keyed() && step.fill && !step.skip_loops;
}

// The loops of a node after the batch.
struct Loops {
  uint32_t count = 0, last_key = 0;
  float last = 0;  // weight of the loop with the greatest key

  void add(uint32_t key, float weight) {
    if (count++ == 0 || key > last_key) last_key = key, last = weight;
  }
  // The term that a sum along edges lacks if every node counts as having one loop.
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

void DegreeSums::reserve(const Program& program, const Delta& delta) {
  for (size_t c = 0; c < sums.size(); ++c) {
    if (program.contexts[c].kind != ContextKind::kSum) continue;
    const size_t needed = delta.nodes[program.values[program.contexts[c].output].node_type].capacity;
    // Only the one writer reads these.
    for (std::vector<double>* each : {&sums[c], &errors[c]}) {
      if (needed > each->capacity()) each->reserve(needed + needed / 2);
    }
  }
}

void DegreeSums::commit(const Program& program, const Delta& delta, const BatchChanges& batch) noexcept {
  for (size_t c = 0; c < program.contexts.size(); ++c) {
    const ContextStep& step = program.contexts[c];
    if (step.kind != ContextKind::kSum) continue;
    const NodeDelta& nodes = delta.nodes[program.values[step.output].node_type];
    sums[c].resize(std::max(sums[c].size(), nodes.capacity));
    errors[c].resize(sums[c].size());
    for (uint32_t node : nodes.removed) sums[c][node] = errors[c][node] = 0;
    const Changes& changes = batch.of(step.output);
    for (size_t i = 0; i < changes.size(); ++i) {
      sums[c][changes.nodes()[i]] = changes.sums[changes.position(i)];
      errors[c][changes.nodes()[i]] = changes.sum_errors[changes.position(i)];
    }
  }
}

double Degrees::sum_weights(uint32_t node, std::span<const DirectedChange> changes) const {
  double sum = 0;
  const EdgeView store = view_of(state_.graph, step_);
  const bool skip_loops = step_.skip_loops || takes_last_loop(step_, store);
  scan_new_in(store, node, changes, [&](uint32_t source, float weight) {
    if (!skip_loops || source != node) sum += static_cast<double>(weight);
  });
  return sum;
}

Degrees::Row Degrees::compute(uint32_t node) const {
  const EdgeView store = view_of(state_.graph, step_);
  const Loops loops = step_.fill || step_.skip_loops ? loops_of(store, node, {}) : Loops{};
  Row out;
  if (step_.kind == ContextKind::kCount) {
    out.row = static_cast<float>(store.degree_in(node) - loops.count + (step_.fill ? 1 : 0));
  } else if (step_.kind == ContextKind::kLoop) {
    out.row = static_cast<float>(loops.missing(step_, store));
  } else {
    out.sum = sum_weights(node, {});
    out.row = static_cast<float>(out.sum + loops.missing(step_, store));
  }
  return out;
}

Degrees::Row Degrees::update(uint32_t node, std::span<const DirectedChange> changes, bool fresh) const {
  const EdgeView store = view_of(state_.graph, step_);
  const bool skip_loops = step_.skip_loops || takes_last_loop(step_, store);
  const Loops loops = step_.fill || step_.skip_loops ? loops_of(store, node, changes) : Loops{};
  Row out;
  if (step_.kind == ContextKind::kLoop) {
    out.row = static_cast<float>(loops.missing(step_, store));
    return out;
  }
  if (step_.kind == ContextKind::kCount) {
    int64_t count = store.degree_in(node);
    for (const DirectedChange& change : changes) count += int{change.has} - int{change.had};
    out.row = static_cast<float>(count - loops.count + (step_.fill ? 1 : 0));
    return out;
  }
  const auto& sums = sums_.sums[position_];
  if (!fresh && node < sums.size()) {
    out.sum = sums[node];
    out.error = sums_.errors[position_][node];
  }
  for (const DirectedChange& change : changes) {
    if (skip_loops && change.source == node) continue;
    const double difference = (change.has ? change.new_weight : 0.0) - (change.had ? change.old_weight : 0.0);
    if (difference == 0) continue;
    out.sum += difference;
    out.error += kDoubleUnit * (std::fabs(difference) + std::fabs(out.sum));
  }
  if (!(out.error <= kSumTolerance * std::fabs(out.sum))) {
    out.sum = sum_weights(node, changes);
    out.error = 0;
  }
  out.row = static_cast<float>(out.sum + loops.missing(step_, store));
  return out;
}

void Degrees::initialize(RowState* state, DegreeSums* kept, ThreadPool* pool) const {
  const uint32_t node_type = state->program.values[step_.output].node_type;
  const IdMap& ids = state->graph.nodes[node_type].ids;
  const Rows out = state->rows(step_.output);
  auto& sums = kept->sums[position_];
  sums.assign(step_.kind == ContextKind::kSum ? ids.capacity() : 0, 0.0);
  kept->errors[position_].assign(sums.size(), 0.0);
  pool->run(blocks_of(ids.capacity()), kLong, [&](size_t block) {
    const size_t end = std::min(ids.capacity(), (block + 1) * kBlockRows);
    for (auto node = static_cast<uint32_t>(block * kBlockRows); node < end; ++node) {
      if (!state->computes(node_type, node)) continue;
      const Row computed = compute(node);
      *out.row(node) = computed.row;
      if (!sums.empty()) sums[node] = computed.sum;
    }
  });
}

void Degrees::prepare(PreparedBatch* prepared) const {
  const auto& edges = prepared->changes.edges[direction_of(state_.graph, step_)];
  const uint32_t node_type = state_.program.values[step_.output].node_type;
  const NodeDelta& nodes = prepared->changes.delta->nodes[node_type];
  const auto& removed = prepared->workspace->removed[node_type];
  Changes& changes = prepared->changes.rows[step_.output];
  changes.sums.clear();
  changes.sum_errors.clear();
  float* rows = changes.open(edges.size() + nodes.added.size());

  auto write = [&](uint32_t node, std::span<const DirectedChange> node_changes, bool fresh) {
    const Row now = update(node, node_changes, fresh);
    if (!fresh && now.row == *state_.stored_row(step_.output, node)) {
      if (step_.kind != ContextKind::kSum) return;
      if (now.sum == sums_.sums[position_][node] && now.error == sums_.errors[position_][node]) return;
    }
    if (!std::isfinite(now.row)) prepared->lose_row(state_, step_.output, node);
    rows[changes.size()] = now.row;
    changes.add(node, static_cast<uint32_t>(changes.size()));
    changes.sums.push_back(now.sum);
    changes.sum_errors.push_back(now.error);
  };

  auto& slots = prepared->workspace->slots[0][node_type];
  for (size_t i = 0; i < nodes.added.size(); ++i) {
    if (nodes.added_ids[i] == kNoId || removed[nodes.added[i]] != 0) continue;
    slots[nodes.added[i]] = 0;
    write(nodes.added[i], changes_of(edges, nodes.added[i]), true);
  }
  for (size_t i = 0; i < edges.size();) {
    size_t end = i;
    while (end < edges.size() && edges[end].target == edges[i].target) ++end;
    const uint32_t node = edges[i].target;
    if (!removed[node] && slots[node] == kNoIndex) write(node, {edges.data() + i, end - i}, false);
    i = end;
  }
  for (uint32_t node : nodes.added) slots[node] = kNoIndex;
}

Scrubbed Degrees::scrub(std::span<const uint32_t> nodes) const {
  const Rows kept = state_.rows(step_.output);
  Scrubbed seen;
  for (uint32_t node : nodes) {
    if (!state_.graph.nodes[state_.program.values[step_.output].node_type].ids.in_use(node)) continue;
    const Row anew = compute(node);
    seen.not_finite += std::isfinite(*kept.row(node)) ? 0 : 1;
    seen.difference = std::max(seen.difference, part_of(*kept.row(node), anew.row, std::fabs(anew.row)));
    if (step_.kind != ContextKind::kSum) continue;
    const double sum = sums_.sums[position_][node];
    seen.difference = std::max(seen.difference, part_of(sum, anew.sum, std::fabs(anew.sum)));
  }
  return seen;
}

// The sum of the magnitudes of all weights, and of a loop that every node counts as having.
double Degrees::reach_of(uint32_t node) const {
  double reach = std::fabs(static_cast<double>(step_.fill.value_or(0)));
  view_of(state_.graph, step_).scan_in(node, [&](const NeighborSpan& span) {
    for (size_t i = 0; i < span.size; ++i) reach += span.weights == nullptr ? 1.0 : std::fabs(double{span.weights[i]});
  });
  return reach;
}

bool Degrees::fits(uint32_t node, const Row& expected) const {
  const float row = *state_.stored_row(step_.output, node);
  if (step_.kind != ContextKind::kSum) return row == expected.row;
  const double sum = sums_.sums[position_][node];
  if (row == expected.row && sum == expected.sum) return true;
  const double most = kLoadTolerance * reach_of(node);
  return std::fabs(double{row} - double{expected.row}) <= most && std::fabs(sum - expected.sum) <= most;
}

void Degrees::check(ThreadPool* pool) const {
  const uint32_t node_type = state_.program.values[step_.output].node_type;
  const IdMap& ids = state_.graph.nodes[node_type].ids;
  std::atomic<uint32_t> first{kNoIndex};
  pool->run(blocks_of(ids.capacity()), kLong, [&](size_t block) {
    const size_t end = std::min(ids.capacity(), (block + 1) * kBlockRows);
    for (auto node = static_cast<uint32_t>(block * kBlockRows); node < end; ++node) {
      if (!state_.computes(node_type, node) || fits(node, compute(node))) continue;
      uint32_t before = first.load();
      while (node < before && !first.compare_exchange_weak(before, node)) continue;
      return;
    }
  });
  const uint32_t node = first;
  if (node == kNoIndex) return;
  const Row expected = compute(node);
  std::string names = "rows/" + std::to_string(step_.output);
  std::string got = std::to_string(*state_.stored_row(step_.output, node));
  if (step_.kind == ContextKind::kSum) {
    names += " and sums/" + std::to_string(position_);
    got += " and " + std::to_string(sums_.sums[position_][node]);
  }
  throw std::runtime_error(names + ": expected " + std::to_string(expected.row) +
                           ", from the edges of the node with the index " + std::to_string(node) + ", got " + got);
}

}  // namespace livegnn
