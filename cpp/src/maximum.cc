// Maxima along edges.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>

#include "directed_changes.h"
#include "engine_scratch.h"
#include "kernels.h"
#include "parallel.h"

namespace livegnn {

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
  find_edge_sources(step, *prepared);
  std::vector<const float*> olds;
  stored_rows_of_many(step.input, input.nodes, &s.differences, &olds);
  for (size_t i = 0; i < input.nodes.size(); ++i) {
    const float* before = olds[i];
    store.scan_out(input.nodes[i], [&](NeighborSpan span) {
      for (size_t j = 0; j < span.size; ++j) {
        float weight = step.weighted && span.weights != nullptr ? span.weights[j] : 1.0f;
        const DirectedChange* change =
            edges.empty() ? nullptr : change_from(changes_of(edges, span.ids[j]), input.nodes[i]);
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
  float* rows = output.rows.reserve(s.targets.size() * output.stride);
  s.keep.assign(s.targets.size(), 0);
  std::atomic<size_t> recomputed{0};
  pool_->run((s.targets.size() + kBlockRows - 1) / kBlockRows, kMessageCost * 4 * static_cast<double>(found.size()),
             [&](size_t block) {
               static thread_local RowArena arena;
               std::vector<float> best(width);
               size_t end = std::min(s.targets.size(), (block + 1) * kBlockRows);
               for (size_t t = block * kBlockRows; t < end; ++t) {
                 const uint32_t node = s.targets[t];
                 const bool known = partial_[step.output] < 0 || stays(step, *prepared, node);
                 const float* old = zeros_.data();
                 if (known) {
                   const Rows kept = kept_rows(step.output);
                   const uint32_t slot = slot_of(step.output, node);
                   if (slot < kept.count) old = kept.row(slot);
                 }
                 const bool had_any = store.degree_in(node) > 0;
                 float* row = rows + t * output.stride;
                 const uint32_t zero = 0;
                 std::fill(best.begin(), best.end(), -std::numeric_limits<float>::infinity());
                 for (size_t m = s.offsets[t]; m < s.offsets[t + 1]; ++m) {
                   const Message& message = found[s.row_of[m]];
                   if (message.after != nullptr)
                     k.max_rows(width, 1, &message.after, &zero, &message.after_weight, best.data());
                 }
                 bool lost = !known;
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
                   scan_new_in(store, node, changes_of(edges, node), [&](uint32_t source, float weight) {
                     any = true;
                     uint32_t slot = source_slots[source];
                     const float* neighbor = slot == kNoIndex ? nullptr : input.row(slot);
                     if (neighbor == nullptr) {
                       arena.clear();
                       stored_rows(step.input, {&source, 1}, &arena, &neighbor);
                     }
                     float coefficient = step.weighted ? weight : 1.0f;
                     k.max_rows(width, 1, &neighbor, &zero, &coefficient, row);
                   });
                   if (!any) std::memset(row, 0, width * sizeof(float));
                   recomputed.fetch_add(1, std::memory_order_relaxed);
                 }
                 s.keep[t] = !known || k.differs(width, old, row);
               }
             });
  for (uint32_t node : input.nodes) source_slots[node] = kNoIndex;
  for (uint32_t target : s.targets) slots[target] = kNoIndex;
  keep_changed(&output, s.targets, s.keep);
  prepared->edges_touched += found.size();
  prepared->recomputed += recomputed.load();
}

}  // namespace livegnn
