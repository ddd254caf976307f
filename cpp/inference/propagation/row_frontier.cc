#include "inference/propagation/row_frontier.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "inference/edges/edge_view.h"
#include "inference/rows/stored_rows.h"
#include "program/kernels.h"
#include "threads/parallel.h"

namespace livegnn {
namespace {

class RowFrontierSearch {
 public:
  RowFrontierSearch(const RowState& state, const PropagateStep& step, const float* inverse, ThreadPool* pool,
                    PreparedBatch* prepared)
      : state_(state),
        step_(step),
        inverse_(inverse),
        pool_(*pool),
        prepared_(*prepared),
        s_(prepared->workspace->row_frontier),
        order_(s_.order),
        store_(view_of(state.graph, step)),
        edges_(prepared->changes.edges[direction_of(state.graph, step)]),
        by_key_(store_.keyed() && step.weighted),
        input_(prepared->of(step.input)),
        removed_(prepared->workspace->removed[state.program.values[step.output].node_type]),
        sources_(prepared->workspace->slots[0][state.program.values[step.input].node_type]),
        slots_(prepared->workspace->slots[1][state.program.values[step.output].node_type]) {}

  void run() {
    order_.sort(input_.nodes());
    const size_t along_edges = make_room();
    find_along_edges(along_edges);
    s_.targets.clear();
    s_.counts.clear();
    enter_along_edges(along_edges);
    size_t num_rows = input_.size();
    const size_t messages = enter_changed_edges(along_edges, &num_rows);
    enter_overdue();
    for (size_t r = input_.size(); r < num_rows; ++r) {
      s_.peaks[r] = kernels().scaled_peak(input_.stride(), s_.rows[r], inverse_);
    }
    group(along_edges, messages);
  }

 private:
  // Counts the messages of each source, so that every thread knows where to put its own. Returns their total number.
  size_t make_room() {
    constexpr size_t kAhead = 16;
    const size_t count = order_.size();
    grow(&s_.first, count + 1);
    s_.first[0] = 0;
    for (size_t i = 0; i < count; ++i) {
      if (i + kAhead < count) store_.prefetch_out(order_.node(i + kAhead));
      s_.first[i + 1] = s_.first[i] + store_.degree_out(order_.node(i));
    }
    const size_t along_edges = s_.first[count], most = along_edges + edges_.size();
    const size_t rows = count + edges_.size();
    grow(&s_.found_target, most);
    grow(&s_.found_row, most);
    grow(&s_.found_weight, step_.weighted ? most : 0);
    grow(&s_.found_key, by_key_ ? along_edges : 0);
    grow(&s_.rows, rows);
    grow(&s_.peaks, rows);
    grow(&s_.coefficients, rows);
    return along_edges;
  }

  // Finds messages that carry the change of a source, along the edges that existed before.
  void find_along_edges(size_t along_edges) {
    const size_t count = order_.size(), stride = input_.stride();
    const Rows stored = state_.rows(step_.input);
    float* const differences = s_.differences.reserve(count * stride);
    const double cost = kMessageCost * static_cast<double>(along_edges + 2 * count);
    pool_.run(blocks_of(count), cost, [&](size_t block) {
      const size_t begin = block * kBlockRows, end = std::min(count, begin + kBlockRows);
      uint32_t nodes[kBlockRows];
      for (size_t i = begin; i < end; ++i) {
        const uint32_t node = nodes[i - begin] = order_.node(i);
        const void* leaf = store_.out_leaf(node);
        if (leaf != nullptr) touch(static_cast<const float*>(leaf));
        if (node < stored.count) touch(stored.row(node));
      }
      for (size_t i = begin; i < end; ++i) fetch(stored, nodes[i - begin]);
      subtract_block({nodes, end - begin}, begin, differences);
      for (size_t i = begin; i < end; ++i) copy_targets(nodes[i - begin], i);
    });
  }

  // How much the rows of some sources change, those from place `first` of the order on.
  void subtract_block(std::span<const uint32_t> nodes, size_t first, float* differences) {
    const Kernels& k = kernels();
    const size_t stride = input_.stride();
    static thread_local RowArena arena;
    arena.clear();
    const float* before[kBlockRows];
    stored_rows(state_, step_.input, nodes, &arena, before);
    for (size_t i = 0; i < nodes.size(); ++i) {
      float* const difference = differences + (first + i) * stride;
      k.subtract(stride, input_.row(order_.place(first + i)), before[i], difference);
      s_.rows[first + i] = difference;
      s_.peaks[first + i] = k.scaled_peak(stride, difference, inverse_);
      s_.coefficients[first + i] = 1;
    }
  }

  void copy_targets(uint32_t node, size_t row) {
    size_t at = s_.first[row];
    store_.scan_out(node, [&](NeighborSpan span) {
      std::memcpy(s_.found_target.data() + at, span.ids, span.size * sizeof(uint32_t));
      std::fill_n(s_.found_row.data() + at, span.size, static_cast<uint32_t>(row));
      if (step_.weighted) std::memcpy(s_.found_weight.data() + at, span.weights, span.size * sizeof(float));
      if (by_key_) std::memcpy(s_.found_key.data() + at, span.keys, span.size * sizeof(uint32_t));
      at += span.size;
    });
  }

  // Replaces the target of a message by its place among the targets; kNoIndex if the batch removes the target, or if
  // another part owns it.
  void enter(uint32_t* target) {
    uint32_t& slot = slots_[*target];
    if (slot == kNoIndex) {
      if (removed_[*target]) {
        foreign_ += removed_[*target] / Workspace::kForeign;
        *target = kNoIndex;
        return;
      }
      slot = static_cast<uint32_t>(s_.targets.size());
      s_.targets.push_back(*target);
      s_.counts.push_back(0);
    }
    *target = slot;
    ++s_.counts[slot];
  }

  void enter_along_edges(size_t along_edges) {
    for (size_t m = 0; m < along_edges; ++m) {
      if (m + 16 < along_edges) __builtin_prefetch(&slots_[s_.found_target[m + 16]]);
      if (step_.skip_loops && s_.found_target[m] == order_.node(s_.found_row[m])) {
        s_.found_target[m] = kNoIndex;
        continue;
      }
      enter(&s_.found_target[m]);
    }
  }

  // Messages of changed edges carry the current row of the source; a removed source, which is not among the changed
  // nodes, carries its last row.
  size_t enter_changed_edges(size_t messages, size_t* num_rows) {
    const std::vector<uint32_t>& nodes = input_.nodes();
    for (size_t i = 0; i < nodes.size(); ++i) sources_[nodes[i]] = static_cast<uint32_t>(i);
    find_edge_sources(state_, step_, &pool_, &prepared_);
    for (size_t e = 0; e < edges_.size(); ++e) {
      const DirectedChange& change = edges_[e];
      const bool skipped = step_.skip_loops && change.source == change.target;
      const float now = change.has && !skipped ? (step_.weighted ? change.new_weight : 1.0f) : 0.0f;
      const float before = change.had && !skipped ? (step_.weighted ? change.old_weight : 1.0f) : 0.0f;
      // A node that becomes or stops being a resident is always computed, whatever its edges' weights.
      if (now == before && state_.keep_degree == 0) continue;
      const uint32_t slot = sources_[change.source];
      const float* const row = slot == kNoIndex ? s_.edge_sources[e] : input_.row(slot);
      for (size_t c = 0; c < input_.stride(); c += 16) __builtin_prefetch(row + c);
      s_.rows[*num_rows] = row;
      s_.coefficients[*num_rows] = now - before;
      s_.found_target[messages] = change.target;
      s_.found_row[messages] = static_cast<uint32_t>((*num_rows)++);
      if (step_.weighted) s_.found_weight[messages] = now - before;
      enter(&s_.found_target[messages++]);
    }
    return messages;
  }

  void enter_overdue() {
    const auto propagation = static_cast<size_t>(&step_ - state_.program.propagations.data());
    for (uint32_t node : prepared_.scales.of(propagation).overdue) {
      if (slots_[node] != kNoIndex || removed_[node]) continue;
      slots_[node] = static_cast<uint32_t>(s_.targets.size());
      s_.targets.push_back(node);
      s_.counts.push_back(0);
    }
  }

  void group(size_t along_edges, size_t messages) {
    count_offsets(&s_.counts, s_.targets.size(), &s_.offsets);
    grow(&s_.row_of, messages);
    grow(&s_.weight_of, messages);
    if (by_key_) {
      grow(&s_.key_of, messages);
      place_by_keys(along_edges);
    } else {
      place(0, along_edges);
    }
    place(along_edges, messages);
    s_.num_messages = messages - foreign_;
  }

  void place(size_t first, size_t end) {
    for (size_t m = first; m < end; ++m) {
      if (s_.found_target[m] == kNoIndex) continue;
      const uint32_t at = s_.counts[s_.found_target[m]]++;
      s_.row_of[at] = s_.found_row[m];
      s_.weight_of[at] = step_.weighted ? s_.found_weight[m] : s_.coefficients[s_.found_row[m]];
    }
  }

  // The same for messages of changed sources if edges are parallel. Those have the same row, but other weights.
  void place_by_keys(size_t end) {
    uint32_t *const rows = s_.row_of.data(), *const keys = s_.key_of.data();
    float* const weights = s_.weight_of.data();
    for (size_t m = 0; m < end; ++m) {
      const uint32_t target = s_.found_target[m];
      if (target == kNoIndex) continue;
      const uint32_t row = s_.found_row[m], key = s_.found_key[m], first = s_.offsets[target];
      uint32_t at = s_.counts[target]++;
      rows[at] = row;
      // One branch for all conditions: whether two edges are parallel follows no pattern, but their keys nearly always
      // ascend.
      while ((at > first) & (rows[at - (at > first)] == row) & (keys[at - (at > first)] > key)) {
        keys[at] = keys[at - 1];
        weights[at] = weights[at - 1];
        --at;
      }
      keys[at] = key;
      weights[at] = s_.found_weight[m];
    }
  }

  const RowState& state_;
  const PropagateStep& step_;
  const float* const inverse_;
  ThreadPool& pool_;
  PreparedBatch& prepared_;
  RowFrontier& s_;
  SourceOrder& order_;
  const EdgeView store_;
  const std::vector<DirectedChange>& edges_;
  const bool by_key_;
  const Changes& input_;
  const std::vector<uint8_t>& removed_;
  std::vector<uint32_t>&sources_, &slots_;
  size_t foreign_ = 0;  // messages to nodes of other parts, which are not added here
};

}  // namespace

void find_row_frontier(const RowState& state, const PropagateStep& step, const float* inverse, ThreadPool* pool,
                       PreparedBatch* prepared) {
  RowFrontierSearch(state, step, inverse, pool, prepared).run();
}

void find_edge_sources(const RowState& state, const PropagateStep& step, ThreadPool* pool, PreparedBatch* prepared) {
  RowFrontier& s = prepared->workspace->row_frontier;
  const auto& edges = prepared->changes.edges[direction_of(state.graph, step)];
  const auto& slots = prepared->workspace->slots[0][state.program.values[step.input].node_type];
  grow(&s.edge_sources, edges.size());
  if (state.is_stored(step.input)) {
    for (size_t e = 0; e < edges.size(); ++e) s.edge_sources[e] = state.stored_row(step.input, edges[e].source);
    return;
  }
  s.edge_nodes.clear();
  for (const DirectedChange& change : edges) {
    if (slots[change.source] == kNoIndex) s.edge_nodes.push_back(change.source);
  }
  std::sort(s.edge_nodes.begin(), s.edge_nodes.end());
  s.edge_nodes.erase(std::unique(s.edge_nodes.begin(), s.edge_nodes.end()), s.edge_nodes.end());
  stored_rows_of_many(state, step.input, s.edge_nodes, pool, &s.edge_memory, &s.edge_rows);
  for (size_t e = 0; e < edges.size(); ++e) {
    if (slots[edges[e].source] != kNoIndex) continue;
    const auto found = std::lower_bound(s.edge_nodes.begin(), s.edge_nodes.end(), edges[e].source);
    s.edge_sources[e] = s.edge_rows[static_cast<size_t>(found - s.edge_nodes.begin())];
  }
}

}  // namespace livegnn
