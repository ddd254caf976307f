// Steps that go along edges: the frontier of a batch, sums and maxima over it, and contexts.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "engine_scratch.h"
#include "kernels.h"
#include "parallel.h"

namespace livegnn {
namespace {

constexpr float kUnit = 5.9604645e-8f;  // half the distance from 1 to the next float32
// A recomputed row reads its neighbours at random from memory, an added message lies in the cache.
constexpr size_t kRecomputeFactor = 2;

std::span<const DirectedChange> changes_of(const std::vector<DirectedChange>& changes, uint32_t target) {
  auto less = [](const DirectedChange& change, uint32_t t) { return change.target < t; };
  auto first = std::lower_bound(changes.begin(), changes.end(), target, less);
  auto last = first;
  while (last != changes.end() && last->target == target) ++last;
  return {first, last};
}

const DirectedChange* change_from(std::span<const DirectedChange> changes, uint32_t source) {
  auto less = [](const DirectedChange& change, uint32_t s) { return change.source < s; };
  auto found = std::lower_bound(changes.begin(), changes.end(), source, less);
  return found != changes.end() && found->source == source ? &*found : nullptr;
}

}  // namespace

void Engine::prepare_edges(const Delta& delta, Prepared* prepared) {
  prepared->edges.resize(graph_.edges.size());
  for (size_t e = 0; e < graph_.edges.size(); ++e) {
    auto& directed = prepared->edges[e];
    directed.clear();
    bool undirected = graph_.edges[e].spec.options.undirected;
    for (const EdgeChange& change : delta.edges[e]) {
      directed.push_back(
          {change.source, change.target, change.old_weight, change.new_weight, change.had, change.has});
      if (undirected && change.source != change.target) {
        directed.push_back(
            {change.target, change.source, change.old_weight, change.new_weight, change.had, change.has});
      }
    }
    std::sort(directed.begin(), directed.end(), [](const DirectedChange& a, const DirectedChange& b) {
      return a.target != b.target ? a.target < b.target : a.source < b.source;
    });
  }
}

// The in-neighbours of a node as they will be: `visit(source, weight)`.
template <class Visit>
void Engine::scan_new_in(uint32_t edge_type, uint32_t node, std::span<const DirectedChange> changes,
                         Visit&& visit) const {
  graph_.edges[edge_type].store->scan_in(node, [&](NeighborSpan span) {
    for (size_t i = 0; i < span.size; ++i) {
      const DirectedChange* change = changes.empty() ? nullptr : change_from(changes, span.ids[i]);
      if (change == nullptr) {
        visit(span.ids[i], span.weights == nullptr ? 1.0f : span.weights[i]);
      } else if (change->has) {
        visit(span.ids[i], change->new_weight);
      }
    }
  });
  for (const DirectedChange& change : changes) {
    if (!change.had && change.has) visit(change.source, change.new_weight);
  }
}

double Engine::context_sum(const ContextStep& step, uint32_t node, std::span<const DirectedChange> changes) const {
  double sum = 0;
  scan_new_in(step.edge_type, node, changes, [&](uint32_t, float weight) { sum += static_cast<double>(weight); });
  return sum;
}

void Engine::aggregate_all(const PropagateStep& step, uint32_t node, float* out) const {
  const Rows input = rows(step.input);
  const GraphStore& store = *graph_.edges[step.edge_type].store;
  const size_t width = input.width;
  if (step.aggregate == Aggregate::kSum) {
    std::memset(out, 0, width * sizeof(float));
    store.scan_in(node, [&](NeighborSpan span) {
      kernels().gather_rows(row_stride(width), span.size, input.data, input.stride, span.ids,
                            step.weighted ? span.weights : nullptr, out);
    });
    return;
  }
  if (store.degree_in(node) == 0) {
    std::memset(out, 0, width * sizeof(float));
    return;
  }
  std::fill(out, out + width, -std::numeric_limits<float>::infinity());
  store.scan_in(node, [&](NeighborSpan span) {
    for (size_t i = 0; i < span.size; ++i) {
      const float* row = input.row(span.ids[i]);
      uint32_t zero = 0;
      float weight = step.weighted && span.weights != nullptr ? span.weights[i] : 1.0f;
      kernels().max_rows(width, 1, &row, &zero, &weight, out);
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
    if (step.fill != 0) {
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
      row = static_cast<float>(count + (step.fill != 0 && !loop ? 1 : 0));
    } else {
      double old = fresh || node >= sums.size() ? 0.0 : sums[node];
      double moved = 0;
      sum = old;
      for (const DirectedChange& change : node_changes) {
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

// The messages of a batch, grouped by target, each group in the order of its sources and after them its changed edges.
// Fills targets, offsets, row_of, weight_of, rows and peaks of the scratch memory, and leaves `slots[1]` at the targets and
// `slots[0]` at the sources, for the caller to clear. Rows are worked on with their padding, which is zero everywhere.
void Engine::find_frontier(const PropagateStep& step, const Prepared& prepared) {
  Scratches& s = *scratches_;
  const Kernels& k = kernels();
  const GraphStore& store = *graph_.edges[step.edge_type].store;
  const auto& edges = prepared.edges[step.edge_type];
  const Changes& input = prepared.changes[step.input];
  const Rows stored = Engine::rows(step.input);
  const auto& removed = s.removed[program_.values[step.output].node_type];
  auto& sources = s.slots[0][program_.values[step.input].node_type];
  auto& slots = s.slots[1][program_.values[step.output].node_type];
  const size_t stride = input.stride;
  const size_t num_sources = input.nodes.size();

  // How many messages each source sends, so that every thread knows where its own go.
  constexpr size_t kAhead = 8;
  grow(&s.first, num_sources + 1);
  s.first[0] = 0;
  for (size_t i = 0; i < num_sources; ++i) {
    if (i + 2 * kAhead < num_sources) store.prefetch_out(input.nodes[i + 2 * kAhead]);
    if (i + kAhead < num_sources) store.prefetch_out_leaf(input.nodes[i + kAhead]);
    s.first[i + 1] = s.first[i] + store.degree_out(input.nodes[i]);
  }
  const size_t along_edges = s.first[num_sources];
  const size_t most = along_edges + edges.size();
  grow(&s.found_target, most);
  grow(&s.found_row, most);
  grow(&s.found_weight, step.weighted ? most : 0);
  grow(&s.rows, num_sources + edges.size());
  grow(&s.peaks, num_sources + edges.size());
  grow(&s.coefficients, num_sources + edges.size());
  float* differences = s.differences.reserve(num_sources * stride);

  // Messages that carry what changed in a source, along the edges that were there before.
  pool_->run((num_sources + kBlockRows - 1) / kBlockRows,
             kMessageCost * static_cast<double>(along_edges + 2 * num_sources), [&](size_t block) {
    const size_t end = std::min(num_sources, (block + 1) * kBlockRows);
    for (size_t i = block * kBlockRows; i < end; ++i) {
      if (i + kAhead / 2 < end && input.nodes[i + kAhead / 2] < stored.count) {
        const float* next = stored.row(input.nodes[i + kAhead / 2]);
        for (size_t c = 0; c < stride; c += 16) __builtin_prefetch(next + c);
      }
      const uint32_t node = input.nodes[i];
      float* difference = differences + i * stride;
      k.subtract(stride, input.row(i), node < stored.count ? stored.row(node) : zeros_.data(), difference);
      s.rows[i] = difference;
      s.peaks[i] = k.peak(stride, difference);
      s.coefficients[i] = 1;
      size_t at = s.first[i];
      store.scan_out(node, [&](NeighborSpan span) {
        std::memcpy(s.found_target.data() + at, span.ids, span.size * sizeof(uint32_t));
        std::fill_n(s.found_row.data() + at, span.size, static_cast<uint32_t>(i));
        if (step.weighted) std::memcpy(s.found_weight.data() + at, span.weights, span.size * sizeof(float));
        at += span.size;
      });
    }
  });

  s.targets.clear();
  s.counts.clear();
  // What later steps read of a target is fetched when the target is found, as long as all of it will stay in the cache.
  const bool fetch_early = most * companion_lines_[&step - program_.propagations.data()] < kEarlyLines;
  std::vector<Rows> companions;
  if (fetch_early) {
    for (uint32_t value : companions_[&step - program_.propagations.data()]) companions.push_back(Engine::rows(value));
  }
  // Turns the target of a message into its place among the targets; kNoIndex if it goes to a removed node.
  auto enter = [&](uint32_t* target) {
    uint32_t& slot = slots[*target];
    if (slot == kNoIndex) {
      if (removed[*target]) {
        *target = kNoIndex;
        return;
      }
      slot = static_cast<uint32_t>(s.targets.size());
      s.targets.push_back(*target);
      s.counts.push_back(0);
      for (const Rows& rows : companions) {
        if (*target >= rows.count) continue;
        for (size_t c = 0; c < rows.width; c += 16) __builtin_prefetch(rows.row(*target) + c);
      }
    }
    *target = slot;
    ++s.counts[slot];
  };
  for (size_t m = 0; m < along_edges; ++m) {
    if (m + 16 < along_edges) __builtin_prefetch(&slots[s.found_target[m + 16]]);
    enter(&s.found_target[m]);
  }
  // Messages of edges that changed carry the source as it is now; a source that is removed, and so not among the changed
  // nodes, carries its last row.
  size_t messages = along_edges, num_rows = num_sources;
  for (size_t i = 0; i < num_sources; ++i) sources[input.nodes[i]] = static_cast<uint32_t>(i);
  for (const DirectedChange& change : edges) {
    float now = change.has ? (step.weighted ? change.new_weight : 1.0f) : 0.0f;
    float before = change.had ? (step.weighted ? change.old_weight : 1.0f) : 0.0f;
    if (now == before) continue;
    uint32_t slot = sources[change.source];
    s.rows[num_rows] = slot == kNoIndex ? stored_row(step.input, change.source) : input.row(slot);
    for (size_t c = 0; c < stride; c += 16) __builtin_prefetch(s.rows[num_rows] + c);
    s.coefficients[num_rows] = now - before;
    s.found_target[messages] = change.target;
    s.found_row[messages] = static_cast<uint32_t>(num_rows++);
    if (step.weighted) s.found_weight[messages] = now - before;
    enter(&s.found_target[messages++]);
  }
  for (size_t r = num_sources; r < num_rows; ++r) s.peaks[r] = k.peak(stride, s.rows[r]);

  grow(&s.offsets, s.targets.size() + 1);
  s.offsets[0] = 0;
  for (size_t t = 0; t < s.targets.size(); ++t) {
    s.offsets[t + 1] = s.offsets[t] + s.counts[t];
    s.counts[t] = s.offsets[t];
  }
  grow(&s.row_of, messages);
  grow(&s.weight_of, messages);
  for (size_t m = 0; m < messages; ++m) {
    if (s.found_target[m] == kNoIndex) continue;
    uint32_t at = s.counts[s.found_target[m]]++;
    s.row_of[at] = s.found_row[m];
    s.weight_of[at] = step.weighted ? s.found_weight[m] : s.coefficients[s.found_row[m]];
  }
  s.num_messages = messages;
}

void Engine::prepare_sum(const PropagateStep& step, size_t propagation, Prepared* prepared) {
  Scratches& s = *scratches_;
  const Kernels& k = kernels();
  const GraphStore& store = *graph_.edges[step.edge_type].store;
  const auto& edges = prepared->edges[step.edge_type];
  const Changes& input = prepared->changes[step.input];
  auto& source_slots = s.slots[0][program_.values[step.input].node_type];
  auto& slots = s.slots[1][program_.values[step.output].node_type];
  const size_t stride = input.stride;
  if (input.nodes.empty() && edges.empty()) return;
  find_frontier(step, *prepared);

  Changes& output = prepared->changes[step.output];
  float* rows = output.rows.reserve(s.targets.size() * output.stride);
  output.errors.resize(s.targets.size());
  s.keep.assign(s.targets.size(), 0);
  const auto& errors = errors_[propagation];
  const float typical = typical_[propagation];
  const size_t blocks = (s.targets.size() + kBlockRows - 1) / kBlockRows;
  // A target is computed anew when that is cheaper or when its rounding has grown too large.
  static thread_local std::vector<uint8_t> anew;
  anew.assign(s.targets.size(), 0);
  uint8_t* recompute = anew.data();

  const Rows stored = Engine::rows(step.output);
  pool_->run(blocks, kMessageCost * static_cast<double>(s.num_messages + s.targets.size()), [&](size_t block) {
    static thread_local std::vector<float> sum;
    sum.resize(std::max(sum.size(), stride));
    size_t end = std::min(s.targets.size(), (block + 1) * kBlockRows);
    for (size_t t = block * kBlockRows; t < end; ++t) {
      constexpr size_t kNext = 6;
      if (t + kNext < end && s.targets[t + kNext] < stored.count) {
        const float* next = stored.row(s.targets[t + kNext]);
        for (size_t c = 0; c < stride; c += 16) __builtin_prefetch(next + c);
        __builtin_prefetch(&errors[s.targets[t + kNext]]);
      }
      const uint32_t node = s.targets[t];
      const size_t first = s.offsets[t], count = s.offsets[t + 1] - first;
      float reach = 0;
      for (size_t m = first; m < first + count; ++m) reach += std::fabs(s.weight_of[m]) * s.peaks[s.row_of[m]];
      std::memset(sum.data(), 0, stride * sizeof(float));
      k.add_rows(stride, count, s.rows.data(), s.row_of.data() + first, s.weight_of.data() + first, sum.data());
      float peak = 0;
      const float* old = node < stored.count ? stored.row(node) : zeros_.data();
      s.keep[t] = k.apply_delta(stride, old, sum.data(), rows + t * output.stride, &peak);
      float error = (node < errors.size() ? errors[node] : 0.0f) + kUnit * (peak + reach);
      output.errors[t] = error;
      bool drifted = error > kDriftTolerance * std::max(peak, typical);
      bool cheaper = count >= 4 && count > kRecomputeFactor * (store.degree_in(node) + 1);
      recompute[t] = drifted || cheaper;
    }
  });

  // A row whose neighbours changed may have lost its last one: nothing is summed, so nothing is left of it.
  size_t total = 0;
  for (const DirectedChange& change : edges) {
    uint32_t slot = slots[change.target];
    if (slot != kNoIndex && change.had && !change.has) recompute[slot] |= 2;
  }
  for (size_t t = 0; t < s.targets.size(); ++t) {
    if ((recompute[t] & 2) != 0) {
      int64_t degree = store.degree_in(s.targets[t]);
      for (const DirectedChange& change : changes_of(edges, s.targets[t])) degree += int{change.has} - int{change.had};
      recompute[t] = degree == 0 ? 1 : recompute[t] & 1;
    }
    total += recompute[t];
  }
  if (total > 0) {
    pool_->run(blocks, 1e4 * static_cast<double>(total), [&](size_t block) {
      static thread_local std::vector<const float*> neighbors;
      static thread_local std::vector<uint32_t> order;
      static thread_local std::vector<float> weights;
      size_t end = std::min(s.targets.size(), (block + 1) * kBlockRows);
      for (size_t t = block * kBlockRows; t < end; ++t) {
        if (!recompute[t]) continue;
        const uint32_t node = s.targets[t];
        neighbors.clear();
        order.clear();
        weights.clear();
        scan_new_in(step.edge_type, node, changes_of(edges, node), [&](uint32_t source, float weight) {
          uint32_t slot = source_slots[source];
          order.push_back(static_cast<uint32_t>(neighbors.size()));
          neighbors.push_back(slot == kNoIndex ? stored_row(step.input, source) : input.row(slot));
          weights.push_back(step.weighted ? weight : 1.0f);
        });
        float* row = rows + t * output.stride;
        std::memset(row, 0, output.stride * sizeof(float));
        k.add_rows(stride, neighbors.size(), neighbors.data(), order.data(), weights.data(), row);
        output.errors[t] = 0;
        s.keep[t] = 1;  // the error is new, even if the row is not
      }
    });
  }
  for (size_t i = 0; i < input.nodes.size(); ++i) source_slots[input.nodes[i]] = kNoIndex;
  for (uint32_t target : s.targets) slots[target] = kNoIndex;
  keep_changed(&output, s.targets, s.keep);
  prepared->edges_touched += s.num_messages;
  prepared->recomputed += total;
}

// Maxima have no inverse: a target whose maximum may have left is computed from all its neighbours (InkStream's case).
void Engine::prepare_max(const PropagateStep& step, Prepared* prepared) {
  Scratches& s = *scratches_;
  const Kernels& k = kernels();
  const GraphStore& store = *graph_.edges[step.edge_type].store;
  const auto& edges = prepared->edges[step.edge_type];
  const Changes& input = prepared->changes[step.input];
  const uint32_t source_type = program_.values[step.input].node_type;
  const uint32_t target_type = program_.values[step.output].node_type;
  const auto& removed = s.removed[target_type];
  auto& source_slots = s.slots[0][source_type];
  auto& slots = s.slots[1][target_type];
  const size_t width = program_.values[step.input].width;
  if (input.nodes.empty() && edges.empty()) return;

  // Each message is a source's old and new row, either of which may be missing, and the two weights.
  struct Message {
    const float *before, *after;
    float before_weight, after_weight;
  };
  std::vector<Message> found;
  std::vector<uint32_t> found_target;
  s.targets.clear();
  s.counts.clear();
  auto add = [&](uint32_t target, Message message) {
    if (removed[target]) return;
    uint32_t slot = slots[target];
    if (slot == kNoIndex) {
      slot = slots[target] = static_cast<uint32_t>(s.targets.size());
      s.targets.push_back(target);
      s.counts.push_back(0);
    }
    ++s.counts[slot];
    found_target.push_back(slot);
    found.push_back(message);
  };
  for (size_t i = 0; i < input.nodes.size(); ++i) source_slots[input.nodes[i]] = static_cast<uint32_t>(i);
  for (size_t i = 0; i < input.nodes.size(); ++i) {
    const float* before = stored_row(step.input, input.nodes[i]);
    store.scan_out(input.nodes[i], [&](NeighborSpan span) {
      for (size_t j = 0; j < span.size; ++j) {
        float weight = step.weighted && span.weights != nullptr ? span.weights[j] : 1.0f;
        const DirectedChange* change =
            edges.empty() ? nullptr : change_from(changes_of(edges, span.ids[j]), input.nodes[i]);
        if (change == nullptr) add(span.ids[j], {before, input.row(i), weight, weight});
      }
    });
  }
  for (const DirectedChange& change : edges) {
    uint32_t slot = source_slots[change.source];
    const float* before = change.had ? stored_row(step.input, change.source) : nullptr;
    const float* after = !change.has          ? nullptr
                         : slot == kNoIndex ? stored_row(step.input, change.source)
                                            : input.row(slot);
    add(change.target, {before, after, step.weighted ? change.old_weight : 1.0f,
                        step.weighted ? change.new_weight : 1.0f});
  }
  grow(&s.offsets, s.targets.size() + 1);
  s.offsets[0] = 0;
  for (size_t t = 0; t < s.targets.size(); ++t) {
    s.offsets[t + 1] = s.offsets[t] + s.counts[t];
    s.counts[t] = s.offsets[t];
  }
  grow(&s.row_of, found.size());
  for (size_t m = 0; m < found.size(); ++m) s.row_of[s.counts[found_target[m]]++] = static_cast<uint32_t>(m);

  Changes& output = prepared->changes[step.output];
  float* rows = output.rows.reserve(s.targets.size() * output.stride);
  s.keep.assign(s.targets.size(), 0);
  std::atomic<size_t> recomputed{0};
  pool_->run((s.targets.size() + kBlockRows - 1) / kBlockRows, kMessageCost * 4 * static_cast<double>(found.size()),
             [&](size_t block) {
    std::vector<float> best(width);
    size_t end = std::min(s.targets.size(), (block + 1) * kBlockRows);
    for (size_t t = block * kBlockRows; t < end; ++t) {
      const uint32_t node = s.targets[t];
      const float* old = stored_row(step.output, node);
      const bool had_any = store.degree_in(node) > 0;
      float* row = rows + t * output.stride;
      const uint32_t zero = 0;
      std::fill(best.begin(), best.end(), -std::numeric_limits<float>::infinity());
      for (size_t m = s.offsets[t]; m < s.offsets[t + 1]; ++m) {
        const Message& message = found[s.row_of[m]];
        if (message.after != nullptr) k.max_rows(width, 1, &message.after, &zero, &message.after_weight, best.data());
      }
      bool lost = false;
      for (size_t m = s.offsets[t]; m < s.offsets[t + 1] && !lost; ++m) {
        const Message& message = found[s.row_of[m]];
        if (message.before == nullptr) continue;
        for (size_t c = 0; c < width; ++c) {
          lost |= message.before_weight * message.before[c] >= old[c] && best[c] < old[c];
        }
      }
      if (!lost) {
        for (size_t c = 0; c < width; ++c) row[c] = had_any && old[c] > best[c] ? old[c] : best[c];
      } else {
        bool any = false;
        std::fill(row, row + width, -std::numeric_limits<float>::infinity());
        scan_new_in(step.edge_type, node, changes_of(edges, node), [&](uint32_t source, float weight) {
          any = true;
          uint32_t slot = source_slots[source];
          const float* neighbor = slot == kNoIndex ? stored_row(step.input, source) : input.row(slot);
          float coefficient = step.weighted ? weight : 1.0f;
          k.max_rows(width, 1, &neighbor, &zero, &coefficient, row);
        });
        if (!any) std::memset(row, 0, width * sizeof(float));
        recomputed.fetch_add(1, std::memory_order_relaxed);
      }
      s.keep[t] = k.differs(width, old, row);
    }
  });
  for (uint32_t node : input.nodes) source_slots[node] = kNoIndex;
  for (uint32_t target : s.targets) slots[target] = kNoIndex;
  keep_changed(&output, s.targets, s.keep);
  prepared->edges_touched += found.size();
  prepared->recomputed += recomputed.load();
}

}  // namespace livegnn
