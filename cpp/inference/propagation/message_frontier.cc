#include "inference/propagation/message_frontier.h"

#include <algorithm>

#include "inference/edges/edge_view.h"
#include "threads/parallel.h"

namespace livegnn {
namespace {

class MessageFrontierSearch {
 public:
  MessageFrontierSearch(const RowState& state, const PropagateStep& step, ThreadPool* pool, PreparedBatch* prepared)
      : state_(state),
        step_(step),
        program_(state.program.messages[step.message]),
        pool_(*pool),
        prepared_(*prepared),
        s_(prepared->workspace->message_frontier),
        store_(view_of(state.graph, step)),
        changes_(prepared->changes.edges[direction_of(state.graph, step)]),
        removed_(prepared->workspace->removed[state.program.values[step.output].node_type]),
        slots_(prepared->workspace->slots[1][state.program.values[step.output].node_type]) {}

  void run() {
    s_.sources.clear();
    s_.targets.clear();
    s_.source_slots = nullptr;
    s_.positions.resize(std::max(s_.positions.size(), program_.sources.size()));
    enter_sources();
    s_.constrained = s_.targets.size();
    for (const DirectedChange& change : changes_) {
      if (!step_.only_loops || change.source == change.target) enter(change.target);
    }
    num_changed_ = s_.targets.size();
    const auto propagation = static_cast<size_t>(&step_ - state_.program.propagations.data());
    for (uint32_t node : prepared_.scales.of(propagation).overdue) enter(node);
    // Subtracting a single message is not worthwhile.
    if (step_.only_loops) s_.constrained = s_.targets.size();
    const size_t along_edges = find_along_edges();
    group(along_edges, find_changed_edges(along_edges));
    find_positions();
  }

 private:
  // The place of a target; kNoIndex if the batch removes it.
  uint32_t enter(uint32_t node) {
    if (removed_[node]) return kNoIndex;
    if (slots_[node] == kNoIndex) {
      slots_[node] = static_cast<uint32_t>(s_.targets.size());
      s_.targets.push_back(node);
    }
    return slots_[node];
  }

  // Enters the sources of messages: the union of the changes in the rows that messages read of them. Also enters the
  // targets whose own rows, as messages read them, change.
  void enter_sources() {
    for (const MessageSource& source : program_.sources) {
      if (source.side == MessageSource::kSource) {
        s_.source_slots = &prepared_.workspace->slots[0][state_.program.values[source.value].node_type];
        for (uint32_t node : prepared_.of(source.value).nodes()) {
          if ((*s_.source_slots)[node] != kNoIndex) continue;
          (*s_.source_slots)[node] = 0;
          s_.sources.push_back(node);
          if (step_.only_loops) enter(node);
        }
      } else if (source.side == MessageSource::kTarget) {
        for (uint32_t node : prepared_.of(source.value).nodes()) enter(node);
      }
    }
    s_.order.sort(s_.sources);
    for (size_t i = 0; i < s_.sources.size(); ++i) {
      s_.sources[i] = s_.order.node(i);
      (*s_.source_slots)[s_.sources[i]] = static_cast<uint32_t>(i);
    }
  }

  // Finds messages of changed sources, along the edges that existed before and stay unchanged. Returns the number of
  // places that were allocated.
  size_t find_along_edges() {
    grow(&s_.first, s_.sources.size() + 1);
    s_.first[0] = 0;
    for (size_t i = 0; i < s_.sources.size(); ++i) {
      s_.first[i + 1] = s_.first[i] + (step_.only_loops ? 0 : store_.degree_out(s_.sources[i]));
    }
    const size_t along_edges = s_.first[s_.sources.size()];
    grow(&s_.found, along_edges + changes_.size());
    grow(&s_.found_target, along_edges + changes_.size());
    if (step_.only_loops) return along_edges;
    const double cost = kMessageCost * static_cast<double>(along_edges);
    pool_.run(blocks_of(s_.sources.size()), cost, [&](size_t block) {
      const size_t begin = block * kBlockRows, end = std::min(s_.sources.size(), begin + kBlockRows);
      for (size_t i = begin; i < end; ++i) find_from(i);
    });
    return along_edges;
  }

  void find_from(size_t i) {
    const Table& features = state_.graph.edges[step_.edge_type].features.table();
    const uint32_t source = s_.sources[i];
    size_t at = s_.first[i];
    store_.scan_out(source, [&](NeighborSpan span) {
      for (size_t j = 0; j < span.size; ++j, ++at) {
        const uint32_t target = span.ids[j], slot = slots_[target];
        const float weight = span.weights == nullptr ? 1.0f : span.weights[j];
        const float* row = span.rows == nullptr ? nullptr : features.row(span.rows[j]);
        const uint32_t key = key_at(span, j);
        s_.found[at] = {source, static_cast<uint32_t>(i), weight, weight, row, row, true, true, key};
        const bool elsewhere = (slot != kNoIndex && slot < s_.constrained) || (step_.skip_loops && target == source) ||
                               (!changes_.empty() && slot != kNoIndex && slot < num_changed_ &&
                                change_from(changes_of(changes_, target), source, key) != nullptr);
        s_.found_target[at] = elsewhere ? kNoIndex : target;
      }
    });
  }

  size_t find_changed_edges(size_t found) {
    for (const DirectedChange& change : changes_) {
      const uint32_t slot = slots_[change.target];
      if (slot == kNoIndex || slot < s_.constrained || (step_.skip_loops && change.source == change.target)) continue;
      if (!change.had && !change.has) continue;
      const uint32_t source = s_.source_slots == nullptr ? kNoIndex : (*s_.source_slots)[change.source];
      s_.found[found] = {change.source,       source,     change.old_weight, change.new_weight, change.old_features,
                         change.new_features, change.had, change.has,        change.key};
      s_.found_target[found++] = change.target;
    }
    return found;
  }

  void group(size_t along_edges, size_t found) {
    s_.counts.assign(s_.targets.size(), 0);
    for (size_t m = 0; m < found; ++m) {
      if (s_.found_target[m] == kNoIndex) continue;
      const uint32_t slot = s_.found_target[m] = enter(s_.found_target[m]);
      if (slot == kNoIndex) continue;
      if (slot == s_.counts.size()) s_.counts.push_back(0);
      ++s_.counts[slot];
    }
    count_offsets(&s_.counts, s_.targets.size(), &s_.offsets);
    grow(&s_.terms, s_.offsets[s_.targets.size()]);
    const size_t by_key = store_.keyed() ? along_edges : 0;  // others are in order already
    for (size_t m = 0; m < found; ++m) {
      const uint32_t target = s_.found_target[m];
      if (target == kNoIndex) continue;
      MessageFrontier::Term* const terms = s_.terms.data() + s_.offsets[target];
      const MessageFrontier::Term& term = s_.found[m];
      const size_t count = s_.counts[target]++ - s_.offsets[target];
      const auto follows = [&](size_t i) {
        return m < by_key && terms[i].source == term.source && terms[i].key > term.key;
      };
      terms[place_by_key(count, follows, [&](size_t from, size_t to) { terms[to] = terms[from]; })] = term;
    }
  }

  void find_positions() {
    for (size_t i = 0; i < program_.sources.size(); ++i) {
      const MessageSource& source = program_.sources[i];
      auto& positions = s_.positions[i];
      positions.clear();
      if (source.side != MessageSource::kSource && source.side != MessageSource::kTarget) continue;
      const bool of_source = source.side == MessageSource::kSource;
      positions.assign(of_source ? s_.sources.size() : s_.targets.size(), kNoIndex);
      const auto& places = of_source ? *s_.source_slots : slots_;
      const Changes& changed = prepared_.of(source.value);
      for (size_t n = 0; n < changed.size(); ++n) {
        const uint32_t slot = places[changed.nodes()[n]];
        if (slot != kNoIndex) positions[slot] = changed.position(n);
      }
    }
  }

  const RowState& state_;
  const PropagateStep& step_;
  const MessageProgram& program_;
  ThreadPool& pool_;
  PreparedBatch& prepared_;
  MessageFrontier& s_;
  const EdgeView store_;
  const std::vector<DirectedChange>& changes_;
  const std::vector<uint8_t>& removed_;
  std::vector<uint32_t>& slots_;
  size_t num_changed_ = 0;  // targets past these have no changed edges
};

}  // namespace

void find_message_frontier(const RowState& state, const PropagateStep& step, ThreadPool* pool,
                           PreparedBatch* prepared) {
  MessageFrontierSearch(state, step, pool, prepared).run();
}

}  // namespace livegnn
