// Maxima along edges.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>

#include "inference/directed_changes.h"
#include "inference/engine_scratch.h"
#include "program/kernels.h"
#include "threads/parallel.h"

namespace livegnn {

// A maximum goes on from how many messages equal it (see engine.h); only a target that is left with none of them, and
// gets none as large, is computed from all its neighbours.
void Engine::prepare_max(const PropagateStep& step, Prepared* prepared) {
  Scratches& s = *scratches_;
  const Kernels& k = kernels();
  const EdgeView store = view_of(graph_, step);
  const auto& edges = prepared->edges[direction_of(graph_, step)];
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
  find_edge_sources(step, *prepared);
  std::vector<const float*> olds;
  stored_rows_of_many(step.input, input.nodes, &s.differences, &olds);
  for (size_t i = 0; i < input.nodes.size(); ++i) {
    const float* before = olds[i];
    store.scan_out(input.nodes[i], [&](NeighborSpan span) {
      for (size_t j = 0; j < span.size; ++j) {
        float weight = step.weighted && span.weights != nullptr ? span.weights[j] : 1.0f;
        const DirectedChange* change =
            edges.empty() ? nullptr : change_from(changes_of(edges, span.ids[j]), input.nodes[i], key_at(span, j));
        if (change == nullptr) add(span.ids[j], {before, input.row(i), weight, weight});
      }
    });
  }
  for (size_t e = 0; e < edges.size(); ++e) {
    const DirectedChange& change = edges[e];
    uint32_t slot = source_slots[change.source];
    const float* was = slot == kNoIndex ? s.edge_sources[e] : olds[slot];
    const float* before = change.had ? was : nullptr;
    const float* after = !change.has ? nullptr : slot == kNoIndex ? was : input.row(slot);
    add(change.target,
        {before, after, step.weighted ? change.old_weight : 1.0f, step.weighted ? change.new_weight : 1.0f});
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
  Changes& counts = prepared->changes[step.counts];
  float* const rows = output.rows.reserve(s.targets.size() * output.stride);
  float* const count_rows = counts.rows.reserve(s.targets.size() * counts.stride);
  s.keep.assign(s.targets.size(), 0);
  s.recounted.assign(s.targets.size(), 0);
  constexpr float kNothing = -std::numeric_limits<float>::infinity();
  const uint32_t zero = 0;
  std::atomic<size_t> recomputed{0};
  auto recompute = [&](uint32_t node, float* row, uint32_t* ties) {
    static thread_local RowArena arena;
    std::fill(row, row + width, kNothing);
    std::fill(ties, ties + width, 0);
    scan_new_in(store, node, changes_of(edges, node), [&](uint32_t source, float weight) {
      const uint32_t slot = source_slots[source];
      const float* neighbor = slot == kNoIndex ? nullptr : input.row(slot);
      if (neighbor == nullptr) {
        arena.clear();
        stored_rows(step.input, {&source, 1}, &arena, &neighbor);
      }
      const float coefficient = step.weighted ? weight : 1.0f;
      k.max_rows(width, 1, &neighbor, &zero, &coefficient, row, ties);
    });
    recomputed.fetch_add(1, std::memory_order_relaxed);
  };
  const bool partial = partial_[step.output] >= 0;
  const Rows kept = kept_rows(step.output), kept_counts = kept_rows(step.counts);
  auto aggregate = [&](size_t t) {
    // By channel: how many messages equal the old maximum, how many of those leave, the largest message that comes and
    // how many equal it. A message that changes leaves and comes; where it stays as it was, the two make up for it.
    static thread_local std::vector<uint32_t> ties, left, gained;
    static thread_local std::vector<float> best;
    ties.resize(width);
    left.assign(width, 0);
    gained.assign(width, 0);
    best.assign(width, kNothing);
    const uint32_t node = s.targets[t];
    // What a row was that is not kept, and how many messages equalled it, is not known.
    const bool known = !partial || stays(step, *prepared, node);
    const uint32_t slot = !known ? kNoIndex : partial ? slot_of(step.output, node) : node;
    const float* old = slot < kept.count ? kept.row(slot) : zeros_.data();
    const float* old_counts = slot < kept_counts.count ? kept_counts.row(slot) : zeros_.data();
    float* const row = rows + t * output.stride;
    std::memcpy(ties.data(), old_counts, width * sizeof(uint32_t));
    auto degree = static_cast<int64_t>(store.degree_in(node));
    for (size_t m = s.offsets[t]; m < s.offsets[t + 1]; ++m) {
      const Message& message = found[s.row_of[m]];
      if (message.before != nullptr) {
        k.count_equal(width, message.before, message.before_weight, old, left.data());
        --degree;
      }
      if (message.after != nullptr) {
        k.max_rows(width, 1, &message.after, &zero, &message.after_weight, best.data(), gained.data());
        ++degree;
      }
    }
    bool lost = !known;
    for (size_t c = 0; c < width; ++c) {
      // Without in-edges there were no ties, and the 0 that stands in the row is nobody's message.
      const uint32_t survivors = ties[c] - left[c];
      const float held = survivors > 0 ? old[c] : kNothing;
      lost |= survivors == 0 && (gained[c] == 0 || (ties[c] > 0 && best[c] < old[c]));
      lost |= old[c] != old[c] || best[c] != best[c];  // what is not a number is no maximum of anything
      row[c] = best[c] > held ? best[c] : held;
      ties[c] = (best[c] < held ? 0 : gained[c]) + (best[c] > held ? 0 : survivors);
    }
    if (degree == 0) {
      std::memset(row, 0, width * sizeof(float));
      std::fill(ties.begin(), ties.end(), 0);
    } else if (lost) {
      recompute(node, row, ties.data());
    }
    std::memcpy(count_rows + t * counts.stride, ties.data(), width * sizeof(uint32_t));
    s.keep[t] = !known || k.differs(width, old, row);
    if (s.keep[t] && !k.finite(width, row)) lose_row(step.output, node);
    s.recounted[t] = !known || k.differs(width, old_counts, count_rows + t * counts.stride);
  };
  pool_->run(blocks_of(s.targets.size()), kMessageCost * 4 * static_cast<double>(found.size()), [&](size_t block) {
    const size_t end = std::min(s.targets.size(), (block + 1) * kBlockRows);
    for (size_t t = block * kBlockRows; t < end; ++t) aggregate(t);
  });
  for (uint32_t node : input.nodes) source_slots[node] = kNoIndex;
  for (uint32_t target : s.targets) slots[target] = kNoIndex;
  keep_changed(&output, s.targets, s.keep);
  keep_changed(&counts, s.targets, s.recounted);
  prepared->edges_touched += found.size();
  prepared->recomputed += recomputed.load();
}

}  // namespace livegnn
