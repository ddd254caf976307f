#include "inference/propagation/max_propagation.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>

#include "inference/edges/directed_changes.h"
#include "inference/propagation/row_frontier.h"
#include "program/kernels.h"
#include "threads/parallel.h"

namespace livegnn {
namespace {

constexpr float kNothing = -std::numeric_limits<float>::infinity();

}  // namespace

struct MaxPropagation::Batch {
  PreparedBatch& prepared;
  RowFrontier& frontier;
  const Changes& input;
  Changes &output, &counts;
  const EdgeView store;
  const std::vector<DirectedChange>& edges;
  const std::vector<uint8_t>& removed;
  std::vector<uint32_t>&source_slots, &slots;
  const Rows kept, kept_counts;
  std::vector<const float*> olds;  // by changed source: its old row
  std::vector<Message> found;
  std::vector<uint32_t> found_target;
  std::atomic<size_t> recomputed{0};
};

void MaxPropagation::add(uint32_t target, const Message& message, Batch* batch) const {
  RowFrontier& s = batch->frontier;
  if (batch->removed[target]) return;
  uint32_t slot = batch->slots[target];
  if (slot == kNoIndex) {
    slot = batch->slots[target] = static_cast<uint32_t>(s.targets.size());
    s.targets.push_back(target);
    s.counts.push_back(0);
  }
  ++s.counts[slot];
  batch->found_target.push_back(slot);
  batch->found.push_back(message);
}

void MaxPropagation::find_messages(Batch* batch) const {
  RowFrontier& s = batch->frontier;
  const Changes& input = batch->input;
  const std::vector<uint32_t>& nodes = input.nodes();
  s.order.sort(nodes);
  s.targets.clear();
  s.counts.clear();
  for (size_t i = 0; i < nodes.size(); ++i) batch->source_slots[nodes[i]] = static_cast<uint32_t>(i);
  find_edge_sources(state_, step_, &pool_, &batch->prepared);
  stored_rows_of_many(state_, step_.input, nodes, &pool_, &s.differences, &batch->olds);
  grow(&s.first, nodes.size() + 1);
  for (size_t i = 0; i < nodes.size(); ++i) {
    const uint32_t source = s.order.node(i), slot = s.order.place(i);
    s.first[i] = static_cast<uint32_t>(batch->found.size());
    batch->store.scan_out(source, [&](NeighborSpan span) {
      for (size_t j = 0; j < span.size; ++j) {
        const float weight = step_.weighted && span.weights != nullptr ? span.weights[j] : 1.0f;
        const DirectedChange* change =
            batch->edges.empty() ? nullptr
                                 : change_from(changes_of(batch->edges, span.ids[j]), source, key_at(span, j));
        if (change != nullptr) continue;
        add(span.ids[j], {batch->olds[slot], input.row(slot), weight, weight, key_at(span, j)}, batch);
      }
    });
  }
  s.first[nodes.size()] = static_cast<uint32_t>(batch->found.size());
  for (size_t e = 0; e < batch->edges.size(); ++e) {
    const DirectedChange& change = batch->edges[e];
    const uint32_t slot = batch->source_slots[change.source];
    const float* const was = slot == kNoIndex ? s.edge_sources[e] : batch->olds[slot];
    const float* const before = change.had ? was : nullptr;
    const float* const after = !change.has ? nullptr : slot == kNoIndex ? was : input.row(slot);
    const float before_weight = step_.weighted ? change.old_weight : 1.0f;
    const float after_weight = step_.weighted ? change.new_weight : 1.0f;
    add(change.target, {before, after, before_weight, after_weight, change.key}, batch);
  }
  group(batch);
}

// Groups messages by target, in the order of source_order.h: the first one decides whether a zero is negative.
void MaxPropagation::group(Batch* batch) const {
  RowFrontier& s = batch->frontier;
  const std::vector<Message>& found = batch->found;
  count_offsets(&s.counts, s.targets.size(), &s.offsets);
  grow(&s.row_of, found.size());
  const auto place = [&](uint32_t first, uint32_t end, bool by_key) {
    for (uint32_t m = first; m < end; ++m) {
      const uint32_t target = batch->found_target[m], begin = s.offsets[target];
      uint32_t* const messages = s.row_of.data() + begin;
      const uint32_t count = s.counts[target]++ - begin;
      const auto follows = [&](size_t i) {
        return by_key && messages[i] >= first && found[messages[i]].key > found[m].key;
      };
      messages[place_by_key(count, follows, [&](size_t from, size_t to) { messages[to] = messages[from]; })] = m;
    }
  };
  const size_t sources = batch->input.size();
  for (size_t i = 0; i < sources; ++i) place(s.first[i], s.first[i + 1], batch->store.keyed());
  place(s.first[sources], static_cast<uint32_t>(found.size()), false);
}

void MaxPropagation::recompute(Batch* batch, uint32_t node, float* row, uint32_t* ties) const {
  const size_t width = state_.program.values[step_.input].width;
  const uint32_t zero = 0;
  static thread_local RowArena arena;
  std::fill(row, row + width, kNothing);
  std::fill(ties, ties + width, 0);
  scan_new_in(batch->store, node, changes_of(batch->edges, node), [&](uint32_t source, float weight) {
    const uint32_t slot = batch->source_slots[source];
    const float* neighbor = slot == kNoIndex ? nullptr : batch->input.row(slot);
    if (neighbor == nullptr) {
      arena.clear();
      stored_rows(state_, step_.input, {&source, 1}, &arena, &neighbor);
    }
    const float coefficient = step_.weighted ? weight : 1.0f;
    kernels().max_rows(width, 1, &neighbor, &zero, &coefficient, row, ties);
  });
  batch->recomputed.fetch_add(1, std::memory_order_relaxed);
}

void MaxPropagation::update(Batch* batch, size_t t) const {
  // By channel: how many messages equal the old maximum, how many of those are removed, the largest added message and
  // how many equal it. A changed message is removed and added; if its value stays the same, the two cancel out.
  static thread_local std::vector<uint32_t> ties, left, gained;
  static thread_local std::vector<float> best;
  const Kernels& k = kernels();
  RowFrontier& s = batch->frontier;
  const uint32_t node = s.targets[t], zero = 0;
  const size_t width = state_.program.values[step_.input].width;
  ties.resize(width);
  left.assign(width, 0);
  gained.assign(width, 0);
  best.assign(width, kNothing);
  // The old row, and the number of messages that equalled it, are unknown if they were not kept.
  const bool known = !is_partial() || stays(batch->prepared, node);
  const uint32_t slot = !known ? kNoIndex : state_.slot_of(step_.output, node);
  const float* const zeros = state_.zeros.data();
  const float* const old = slot < batch->kept.count ? batch->kept.row(slot) : zeros;
  const float* const old_counts = slot < batch->kept_counts.count ? batch->kept_counts.row(slot) : zeros;
  float *const row = batch->output.row_to_write(t), *const count_row = batch->counts.row_to_write(t);
  std::memcpy(ties.data(), old_counts, width * sizeof(uint32_t));
  auto degree = static_cast<int64_t>(batch->store.degree_in(node));
  for (size_t m = s.offsets[t]; m < s.offsets[t + 1]; ++m) {
    const Message& message = batch->found[s.row_of[m]];
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
    // Without in-edges there were no ties, and the 0 in the row is not a message.
    const uint32_t survivors = ties[c] - left[c];
    const float held = survivors > 0 ? old[c] : kNothing;
    lost |= survivors == 0 && (gained[c] == 0 || (ties[c] > 0 && best[c] < old[c]));
    lost |= old[c] != old[c] || best[c] != best[c];  // NaN is not a maximum
    row[c] = best[c] > held ? best[c] : held;
    ties[c] = (best[c] < held ? 0 : gained[c]) + (best[c] > held ? 0 : survivors);
  }
  if (degree == 0) {
    std::memset(row, 0, width * sizeof(float));
    std::fill(ties.begin(), ties.end(), 0);
  } else if (lost) {
    recompute(batch, node, row, ties.data());
  }
  std::memcpy(count_row, ties.data(), width * sizeof(uint32_t));
  s.keep[t] = !known || k.differs(width, old, row);
  if (s.keep[t] && !k.finite(width, row)) batch->prepared.lose_row(state_, step_.output, node);
  s.recounted[t] = !known || k.differs(width, old_counts, count_row);
}

void MaxPropagation::prepare(const NodeRows* /*reader*/, PreparedBatch* prepared) const {
  Workspace& workspace = *prepared->workspace;
  RowFrontier& s = workspace.row_frontier;
  Batch batch{*prepared,
              s,
              prepared->of(step_.input),
              prepared->changes.rows[step_.output],
              prepared->changes.rows[step_.counts],
              view_of(state_.graph, step_),
              changes(*prepared),
              workspace.removed[target_type()],
              workspace.slots[0][state_.program.values[step_.input].node_type],
              workspace.slots[1][target_type()],
              state_.kept_rows(step_.output),
              state_.kept_rows(step_.counts),
              {},
              {},
              {}};
  if (batch.input.nodes().empty() && batch.edges.empty()) return;
  find_messages(&batch);
  const size_t num_targets = s.targets.size();
  batch.output.open(num_targets);
  batch.counts.open(num_targets);
  s.keep.assign(num_targets, 0);
  s.recounted.assign(num_targets, 0);
  pool_.run(blocks_of(num_targets), kMessageCost * 4 * static_cast<double>(batch.found.size()), [&](size_t block) {
    const size_t end = std::min(num_targets, (block + 1) * kBlockRows);
    for (size_t t = block * kBlockRows; t < end; ++t) update(&batch, t);
  });
  for (uint32_t node : batch.input.nodes()) batch.source_slots[node] = kNoIndex;
  for (uint32_t target : s.targets) batch.slots[target] = kNoIndex;
  batch.output.keep(s.targets, s.keep);
  batch.counts.keep(s.targets, s.recounted);
  prepared->effects.edges_touched += batch.found.size();
  prepared->effects.recomputed += batch.recomputed.load();
}

}  // namespace livegnn
