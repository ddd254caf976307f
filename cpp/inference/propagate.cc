// Sums along edges: the frontier of a batch, and what it adds to the aggregates that it reaches.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "inference/directed_changes.h"
#include "inference/engine_scratch.h"
#include "inference/rounding.h"
#include "program/kernels.h"
#include "program/row_sum.h"
#include "threads/parallel.h"

namespace livegnn {
namespace {

// A recomputed row reads its neighbours at random from memory, an added message lies in the cache.
constexpr size_t kRecomputeFactor = 2;

std::vector<uint32_t> ascending(size_t count) {
  std::vector<uint32_t> numbers(count);
  std::iota(numbers.begin(), numbers.end(), 0u);
  return numbers;
}

}  // namespace

void Engine::prepare_edges(const Delta& delta, Prepared* prepared) {
  const auto in_order = [](const DirectedChange& a, const DirectedChange& b) {
    return a.target != b.target ? a.target < b.target : a.order() < b.order();
  };
  prepared->edges.resize(has_direction_.size());
  for (size_t e = 0; e < graph_.edges.size(); ++e) {
    auto& directed = prepared->edges[e];
    directed.clear();
    const Graph::EdgeType& edges = graph_.edges[e];
    const EdgeFeaturesDelta& features = delta.edge_features[e];
    const Table& table = edges.features.table();
    size_t featured = 0;
    for (size_t i = 0; i < delta.edges[e].size(); ++i) {
      const EdgeChange& change = delta.edges[e][i];
      const float *before = nullptr, *after = nullptr;
      if (table.width() > 0) {
        before = change.had ? table.row(change.row) : zeros_.data();
        after = change.had ? before : zeros_.data();
        if (featured < features.featured.size() && features.featured[featured] == i) {
          after = features.features.data() + featured++ * table.stride();
        }
      }
      directed.push_back({change.source, change.target, change.old_weight, change.new_weight, change.had, change.has,
                          change.key, before, after});
      if (edges.spec.options.undirected && change.source != change.target) {
        directed.push_back({change.target, change.source, change.old_weight, change.new_weight, change.had, change.has,
                            change.key, before, after});
      }
    }
    std::sort(directed.begin(), directed.end(), in_order);
    if (!has_direction_[graph_.edges.size() + e]) continue;
    auto& reversed = prepared->edges[graph_.edges.size() + e];
    reversed = directed;
    for (DirectedChange& change : reversed) std::swap(change.source, change.target);
    std::sort(reversed.begin(), reversed.end(), in_order);
  }
}

void Engine::aggregate_all(const PropagateStep& step, const Rows& input, uint32_t node, float* out,
                           float* counts) const {
  if (input.count == 0) return aggregate_computed(step, node, out, counts);
  const EdgeView store = view_of(graph_, step);
  const size_t width = input.width;
  if (step.aggregate == Aggregate::kSum) {
    static thread_local RowSum total;
    for (const bool widely : {false, true}) {
      total.open(row_stride(width), out, widely);
      scan_messages(store, step, node, [&](NeighborSpan span) {
        total.gather(span.size, input.data, input.stride, span.ids, step.weighted ? span.weights : nullptr);
      });
      total.close();
      if (kernels().finite(width, out)) break;
    }
    return;
  }
  static thread_local std::vector<uint32_t> ties;
  ties.assign(width, 0);
  if (store.degree_in(node) == 0) {
    std::memset(out, 0, width * sizeof(float));
    std::memset(counts, 0, width * sizeof(float));
    return;
  }
  std::fill(out, out + width, -std::numeric_limits<float>::infinity());
  store.scan_in(node, [&](NeighborSpan span) {
    for (size_t i = 0; i < span.size; ++i) {
      const float* row = input.row(span.ids[i]);
      uint32_t zero = 0;
      float weight = step.weighted && span.weights != nullptr ? span.weights[i] : 1.0f;
      kernels().max_rows(width, 1, &row, &zero, &weight, out, ties.data());
    }
  });
  std::memcpy(counts, ties.data(), width * sizeof(float));
}

// The same bits from rows that are not kept.
void Engine::aggregate_computed(const PropagateStep& step, uint32_t node, float* out, float* counts) const {
  static thread_local RowArena arena;
  static thread_local std::vector<const float*> rows;
  static thread_local std::vector<uint32_t> order;
  static thread_local std::vector<float> ones;
  static thread_local std::vector<uint32_t> ties;
  static thread_local RowSum total;
  const Kernels& k = kernels();
  const EdgeView store = view_of(graph_, step);
  const size_t width = program_.values[step.input].width;
  const bool sum = step.aggregate == Aggregate::kSum;
  std::fill_n(out, row_stride(width), 0.0f);
  ties.assign(sum ? 0 : width, 0);
  if (!sum && store.degree_in(node) > 0) std::fill(out, out + width, -std::numeric_limits<float>::infinity());
  for (const bool widely : {false, true}) {
    if (sum) total.open(row_stride(width), out, widely);
    scan_messages(store, step, node, [&](NeighborSpan span) {
      arena.clear();
      rows.resize(span.size);
      while (order.size() < span.size) order.push_back(static_cast<uint32_t>(order.size()));
      ones.resize(std::max(ones.size(), span.size), 1.0f);
      stored_rows(step.input, {span.ids, span.size}, &arena, rows.data());
      const float* weights = step.weighted && span.weights != nullptr ? span.weights : ones.data();
      if (sum) {
        total.add(span.size, rows.data(), order.data(), weights);
      } else {
        k.max_rows(width, span.size, rows.data(), order.data(), weights, out, ties.data());
      }
    });
    if (!sum) break;
    total.close();
    if (k.finite(width, out)) break;
  }
  if (!sum && counts != nullptr) std::memcpy(counts, ties.data(), width * sizeof(float));
}

// The messages of a batch, grouped by target, each group in the order of its sources and after them its changed edges.
// Fills targets, offsets, row_of, weight_of, rows and peaks of the scratch memory, and leaves `slots[1]` at the targets
// and `slots[0]` at the sources, for the caller to clear. Rows are worked on with their padding, which is zero
// everywhere.
void Engine::find_frontier(const PropagateStep& step, size_t propagation, const Prepared& prepared) {
  Scratches& s = *scratches_;
  const Kernels& k = kernels();
  const EdgeView store = view_of(graph_, step);
  const auto& edges = prepared.edges[direction_of(graph_, step)];
  const Changes& input = prepared.changes[step.input];
  const Rows stored = Engine::rows(step.input);
  const auto& removed = s.removed[program_.values[step.output].node_type];
  auto& sources = s.slots[0][program_.values[step.input].node_type];
  auto& slots = s.slots[1][program_.values[step.output].node_type];
  const size_t stride = input.stride;
  const size_t num_sources = input.nodes.size();
  const float* const inverse = inverses_[propagation].data();

  // How many messages each source sends, so that every thread knows where its own go.
  constexpr size_t kAhead = 16;
  grow(&s.first, num_sources + 1);
  s.first[0] = 0;
  for (size_t i = 0; i < num_sources; ++i) {
    if (i + kAhead < num_sources) store.prefetch_out(input.nodes[i + kAhead]);
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
               const size_t begin = block * kBlockRows, end = std::min(num_sources, begin + kBlockRows);
               for (size_t i = begin; i < end; ++i) {
                 const void* leaf = store.out_leaf(input.nodes[i]);
                 if (leaf != nullptr) touch(static_cast<const float*>(leaf));
                 if (input.nodes[i] < stored.count) touch(stored.row(input.nodes[i]));
               }
               for (size_t i = begin; i < end; ++i) fetch(stored, input.nodes[i]);
               static thread_local RowArena arena;
               arena.clear();
               const float* before[kBlockRows];
               stored_rows(step.input, {input.nodes.data() + begin, end - begin}, &arena, before);
               for (size_t i = begin; i < end; ++i) {
                 const uint32_t node = input.nodes[i];
                 float* difference = differences + i * stride;
                 k.subtract(stride, input.row(i), before[i - begin], difference);
                 s.rows[i] = difference;
                 s.peaks[i] = k.scaled_peak(stride, difference, inverse);
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
    }
    *target = slot;
    ++s.counts[slot];
  };
  for (size_t m = 0; m < along_edges; ++m) {
    if (m + 16 < along_edges) __builtin_prefetch(&slots[s.found_target[m + 16]]);
    if (step.skip_loops && s.found_target[m] == input.nodes[s.found_row[m]]) {
      s.found_target[m] = kNoIndex;
      continue;
    }
    enter(&s.found_target[m]);
  }
  // Messages of edges that changed carry the source as it is now; a source that is removed, and so not among the
  // changed nodes, carries its last row.
  size_t messages = along_edges, num_rows = num_sources;
  for (size_t i = 0; i < num_sources; ++i) sources[input.nodes[i]] = static_cast<uint32_t>(i);
  find_edge_sources(step, prepared);
  for (size_t e = 0; e < edges.size(); ++e) {
    const DirectedChange& change = edges[e];
    const bool skipped = step.skip_loops && change.source == change.target;
    float now = change.has && !skipped ? (step.weighted ? change.new_weight : 1.0f) : 0.0f;
    float before = change.had && !skipped ? (step.weighted ? change.old_weight : 1.0f) : 0.0f;
    // A node that becomes a resident, or is one no longer, is computed whatever its edges weigh.
    if (now == before && keep_degree_ == 0) continue;
    uint32_t slot = sources[change.source];
    s.rows[num_rows] = slot == kNoIndex ? s.edge_sources[e] : input.row(slot);
    for (size_t c = 0; c < stride; c += 16) __builtin_prefetch(s.rows[num_rows] + c);
    s.coefficients[num_rows] = now - before;
    s.found_target[messages] = change.target;
    s.found_row[messages] = static_cast<uint32_t>(num_rows++);
    if (step.weighted) s.found_weight[messages] = now - before;
    enter(&s.found_target[messages++]);
  }
  for (uint32_t node : prepared.units[propagation].overdue) {
    if (slots[node] != kNoIndex || removed[node]) continue;
    slots[node] = static_cast<uint32_t>(s.targets.size());
    s.targets.push_back(node);
    s.counts.push_back(0);
  }
  for (size_t r = num_sources; r < num_rows; ++r) s.peaks[r] = k.scaled_peak(stride, s.rows[r], inverse);

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

void Engine::prepare_sum(const PropagateStep& step, size_t propagation, const Reader& reader, const Delta& delta,
                         Prepared* prepared) {
  Scratches& s = *scratches_;
  const Kernels& k = kernels();
  const EdgeView store = view_of(graph_, step);
  const auto& edges = prepared->edges[direction_of(graph_, step)];
  const Changes& input = prepared->changes[step.input];
  const auto& source_slots = s.slots[0][program_.values[step.input].node_type];
  auto& slots = s.slots[1][program_.values[step.output].node_type];
  const size_t stride = input.stride;
  find_frontier(step, propagation, *prepared);
  const size_t num_targets = s.targets.size();

  Changes& output = prepared->changes[step.output];
  float* const rows = output.rows.reserve(num_targets * output.stride);
  grow(&output.errors, num_targets * kRowBounds);
  s.keep.assign(num_targets, 0);
  // A row that lost its last neighbour is nothing, not what rounding left of it.
  s.orphaned.assign(num_targets, 0);
  for (size_t i = 0; i < edges.size();) {
    size_t end = i;
    int64_t lost = 0;
    for (; end < edges.size() && edges[end].target == edges[i].target; ++end) {
      lost += int{edges[end].had} - int{edges[end].has};
    }
    const uint32_t slot = slots[edges[i].target];
    if (slot != kNoIndex && lost > 0 && store.degree_in(edges[i].target) == lost) s.orphaned[slot] = 1;
    i = end;
  }
  const Table& errors = errors_[propagation];
  const float* const inverse = inverses_[propagation].data();
  const float shrunk = shrunk_[propagation], mean = means_[propagation];
  const Rows stored = Engine::rows(step.output);
  const Rows kept = kept_rows(step.output);
  const bool partial = partial_[step.output] >= 0;
  std::atomic<size_t> recomputed{0}, read{0};

  // Where they are kept.
  const Rows sources = is_stored(step.input) ? Engine::rows(step.input) : Rows{};
  auto recompute = [&](uint32_t node, float* row, float* cell) {
    size_t terms = 0;
    static thread_local std::vector<const float*> neighbors;
    static thread_local std::vector<float> weights;
    static thread_local std::vector<uint32_t> unchanged;
    static thread_local RowArena arena;
    static thread_local RowSum total;
    neighbors.clear();
    weights.clear();
    // In pieces, since rows that are not kept lie in memory of their own meanwhile.
    constexpr size_t kPiece = 1024;
    static const std::vector<uint32_t> order = ascending(kPiece);
    static const std::vector<float> ones(kPiece, 1.0f);
    auto add_piece = [&] {
      const float* from[kPiece];
      read.fetch_add(neighbors.size(), std::memory_order_relaxed);
      if (!unchanged.empty()) {
        arena.clear();
        stored_rows(step.input, unchanged, &arena, from);
        for (size_t n = 0, next = 0; n < neighbors.size(); ++n) {
          if (neighbors[n] == nullptr) neighbors[n] = from[next++];
        }
      }
      total.add(neighbors.size(), neighbors.data(), order.data(), step.weighted ? weights.data() : ones.data());
      neighbors.clear();
      weights.clear();
      unchanged.clear();
    };
    auto add = [&](uint32_t source, float weight) {
      if (step.skip_loops && source == node) return;
      ++terms;
      const uint32_t slot = source_slots[source];
      if (slot != kNoIndex) {
        neighbors.push_back(input.row(slot));
      } else if (source < sources.count) {
        neighbors.push_back(sources.row(source));
      } else {
        neighbors.push_back(nullptr);
        unchanged.push_back(source);
      }
      if (step.weighted) weights.push_back(weight);
      if (neighbors.size() == kPiece) add_piece();
    };
    for (const bool widely : {false, true}) {
      total.open(stride, row, widely);
      terms = 0;
      if (keep_degree_ == 0) {
        scan_new_in(store, node, changes_of(edges, node), add);
      } else {
        // As `pull` would.
        static thread_local std::vector<std::pair<uint32_t, float>> sorted;
        const Trimmed trimmed(&sorted);
        sorted.clear();
        scan_new_in(store, node, changes_of(edges, node),
                    [&](uint32_t source, float weight) { sorted.emplace_back(source, weight); });
        std::sort(sorted.begin(), sorted.end());
        for (const auto& [source, weight] : sorted) add(source, weight);
      }
      add_piece();
      total.close();
      if (k.finite(stride, row)) break;
    }
    if (!k.finite(stride, row)) lose_row(step.output, node);
    begin_bounds(k.scaled_peak(stride, row, inverse), terms, cell);
    recomputed.fetch_add(1, std::memory_order_relaxed);
  };
  // What a block reads of its targets is fetched before it begins.
  auto fetch_block = [&](size_t begin, size_t end) {
    for (size_t t = begin; t < end; ++t) {
      const uint32_t node = s.targets[t];
      if (node >= stored.count) continue;
      touch(stored.row(node));
      __builtin_prefetch(errors.row(node));
      store.prefetch_in(node);
    }
    for (size_t t = begin; t < end; ++t) fetch(stored, s.targets[t]);
  };
  auto aggregate_block = [&](size_t begin, size_t end) {
    // Aligned, so that what is written to it can be read again without a detour through the cache.
    static thread_local Scratch memory;
    float* const sum = memory.reserve(stride);
    for (size_t t = begin; t < end; ++t) {
      const uint32_t node = s.targets[t];
      const size_t first = s.offsets[t], count = s.offsets[t + 1] - first;
      // What a row was that is not kept is not known.
      if (recompute_all_ || (partial && !stays(step, *prepared, node))) {
        recompute(node, rows + t * output.stride, output.errors.data() + t * kRowBounds);
        s.keep[t] = 1;
        continue;
      }
      const uint32_t slot = partial ? slot_of(step.output, node) : node;
      float* const cell = output.errors.data() + t * kRowBounds;
      float reach = 0;
      for (size_t m = first; m < first + count; ++m) reach += std::fabs(s.weight_of[m]) * s.peaks[s.row_of[m]];
      sum_rows(stride, count, s.rows.data(), s.row_of.data() + first, s.weight_of.data() + first, sum);
      float peak = 0;
      const float* old = slot < kept.count ? kept.row(slot) : zeros_.data();
      float* const row = rows + t * output.stride;
      s.keep[t] = k.apply_delta(stride, old, sum, inverse, row, &peak);
      const float* const before = slot < errors.rows() ? errors.row(slot) : zeros_.data();
      const Bounds bounds = touch_bounds(before, shrunk, peak, reach, count, cell);
      // Anew when rounding has grown too large, or when that is cheaper.
      const bool drifted = !is_good(bounds, peak, mean, [&] { return store.degree_in(node); });
      const bool cheaper = count >= 4 && count > kRecomputeFactor * (store.degree_in(node) + 1);
      if (drifted || cheaper || s.orphaned[t]) {
        recompute(node, row, cell);
        s.keep[t] = k.differs(stride, old, row);
      }
    }
  };

  if (reader.step == nullptr) {
    for (uint32_t target : s.targets) slots[target] = kNoIndex;
  } else {
    find_reach(*reader.step, delta, *prepared, step.output);
    open_rows(*reader.step, reader.output, prepared);
  }
  const size_t total = reader.step == nullptr ? num_targets : s.reach.nodes.size();
  const double cost =
      kMessageCost * static_cast<double>(s.num_messages + num_targets) + reader.row_cost * static_cast<double>(total);
  pool_->run(blocks_of(total), cost, [&](size_t block) {
    const size_t first = block * kBlockRows, end = std::min(total, first + kBlockRows);
    fetch_block(std::min(first, num_targets), std::min(end, num_targets));
    aggregate_block(std::min(first, num_targets), std::min(end, num_targets));
    if (reader.step == nullptr) return;
    if (reader.output) {
      run_output_block(*reader.step, first, end - first, *prepared);
    } else {
      run_rows_block(*reader.step, first, end - first, prepared);
    }
  });
  if (reader.step != nullptr) close_rows(*reader.step, reader.output, prepared);
  for (uint32_t node : input.nodes) s.slots[0][program_.values[step.input].node_type][node] = kNoIndex;
  output.reached = s.targets;
  keep_changed(&output, s.targets, s.keep);
  // Messages that were found but not added, all being computed anew, do not count.
  const size_t added = recompute_all_ ? 0 : s.num_messages;
  prepared->edges_touched += added + read.load();
  prepared->nodes_touched += added + read.load() + num_targets;
  prepared->recomputed += recomputed.load();
}

}  // namespace livegnn
