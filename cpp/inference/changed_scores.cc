#include "inference/changed_scores.h"

#include <tsl/robin_map.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <tuple>

#include "hashing/mix_hash.h"
#include "inference/edges/directed_changes.h"
#include "inference/evaluation/edge_scores.h"

namespace livegnn {
namespace {

constexpr size_t kEdgesAtOnce = 512;

const BatchChanges& changes_in(const Prepared& prepared) {
  return static_cast<const Preparation&>(prepared).batch.changes;
}

// Nodes, sorted, whose rows of an output may change, those that the batch adds included.
std::vector<uint32_t> changed_nodes(const Program& program, const BatchChanges& changes, size_t output) {
  const NodeDelta& delta = changes.delta->nodes[program.output_type(output)];
  std::vector<uint32_t> nodes;
  for (size_t i = 0; i < delta.added.size(); ++i) {
    if (delta.added_ids[i] != kNoId) nodes.push_back(delta.added[i]);
  }
  const auto take = [&](uint32_t value) {
    const std::vector<uint32_t>& changed = changes.of(value).nodes();
    nodes.insert(nodes.end(), changed.begin(), changed.end());
  };
  const auto [kept, position] = program.output_at(output);
  if (kept) {
    take(position);
  } else {
    for (uint32_t value : program.on_demand[position].sources) take(value);
  }
  std::sort(nodes.begin(), nodes.end());
  nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
  return nodes;
}

// Rows of the outputs that an edge output reads, after the batch. Those that may change are computed once.
class RowsAfter {
 public:
  RowsAfter(const Engine& engine, const Prepared& prepared, const EdgeOutput& edge_output) : engine_(engine) {
    const Program& program = engine.program();
    fresh_.resize(program.others.size() + 1);
    for (const auto& [side, output] : edge_output.sources) {
      if (side != MessageSource::kSource && side != MessageSource::kTarget) continue;
      Fresh& fresh = fresh_[output];
      if (fresh.width > 0) continue;
      fresh.width = program.output_width(output);
      fresh.nodes = changed_nodes(program, changes_in(prepared), output);
      fresh.rows.resize(fresh.nodes.size() * fresh.width);
      engine.predict_prepared(prepared, fresh.nodes, fresh.rows.data(), output);
      fresh.places.reserve(fresh.nodes.size());
      for (uint32_t i = 0; i < fresh.nodes.size(); ++i) fresh.places.emplace(fresh.nodes[i], i);
    }
  }

  void read(std::span<const uint32_t> nodes, size_t output, float* out) const {
    const Fresh& fresh = fresh_[output];
    std::vector<uint32_t> others;
    std::vector<float*> to;
    for (uint32_t node : nodes) {
      const auto place = fresh.places.find(node);
      if (place == fresh.places.end()) {
        others.push_back(node);
        to.push_back(out);
      } else {
        std::copy_n(fresh.rows.data() + place->second * fresh.width, fresh.width, out);
      }
      out += fresh.width;
    }
    std::vector<float> rows(others.size() * fresh.width);
    engine_.predict(others, rows.data(), output);
    for (size_t i = 0; i < others.size(); ++i) std::copy_n(rows.data() + i * fresh.width, fresh.width, to[i]);
  }

  // The nodes, sorted, at one end of edges: those with a row that may change and that the edge output reads there.
  std::vector<uint32_t> nodes_at(MessageSource::Side end, const EdgeOutput& edge_output) const {
    std::vector<uint32_t> nodes;
    for (const auto& [side, output] : edge_output.sources) {
      if (side == end) nodes.insert(nodes.end(), fresh_[output].nodes.begin(), fresh_[output].nodes.end());
    }
    std::sort(nodes.begin(), nodes.end());
    nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
    return nodes;
  }

 private:
  struct Fresh {
    size_t width = 0;
    std::vector<uint32_t> nodes;
    std::vector<float> rows;
    tsl::robin_map<uint32_t, uint32_t, MixHash> places;
  };

  const Engine& engine_;
  std::vector<Fresh> fresh_;  // by output; empty ones are not read
};

// The ids of nodes, those that the batch adds included.
class NodeIds {
 public:
  NodeIds(const Graph& graph, const Delta& delta, uint32_t node_type)
      : ids_(graph.nodes[node_type].ids), added_ids_(delta.nodes[node_type].added_ids) {
    const NodeDelta& nodes = delta.nodes[node_type];
    for (uint32_t i = 0; i < nodes.added.size(); ++i) added_.emplace(nodes.added[i], i);
  }

  int64_t of(uint32_t node) const {
    const auto found = added_.find(node);
    return found == added_.end() ? ids_.id_of(node) : added_ids_[found->second];
  }

 private:
  const IdMap& ids_;
  const std::vector<int64_t>& added_ids_;
  tsl::robin_map<uint32_t, uint32_t, MixHash> added_;
};

class Comparison {
 public:
  Comparison(const Engine& engine, const Prepared& prepared, size_t edge_output)
      : engine_(engine),
        edge_output_(edge_output),
        output_(engine.program().edge_outputs[edge_output]),
        width_(edge_output_width(engine.program(), edge_output)),
        store_(*engine.graph().edges[output_.edge_type].store),
        table_(engine.graph().edges[output_.edge_type].features.table()),
        delta_(*changes_in(prepared).delta),
        changes_(changes_in(prepared).edges[output_.edge_type]),
        after_(engine, prepared, output_),
        sources_(after_.nodes_at(MessageSource::kSource, output_)),
        targets_(after_.nodes_at(MessageSource::kTarget, output_)),
        source_ids_(engine.graph(), delta_, output_.source_type),
        target_ids_(engine.graph(), delta_, output_.target_type) {}

  ChangedScores run(size_t most) {
    count();
    if (found_.reached > most) {
      found_.complete = false;
      return std::move(found_);
    }
    for (uint32_t source : sources_) {
      if (source >= store_.num_sources()) continue;  // added
      store_.scan_out(source, [&](const NeighborSpan& span) {
        for (size_t i = 0; i < span.size; ++i) add_unchanged(source, span.ids[i], span, i);
      });
    }
    for (uint32_t target : targets_) {
      if (target >= store_.num_targets()) continue;
      store_.scan_in(target, [&](const NeighborSpan& span) {
        for (size_t i = 0; i < span.size; ++i) {
          if (!std::binary_search(sources_.begin(), sources_.end(), span.ids[i])) {
            add_unchanged(span.ids[i], target, span, i);
          }
        }
      });
    }
    for (const DirectedChange& change : changes_) {
      if (change.had && change.has) add(change);
    }
    flush(true);
    for (const DirectedChange& change : changes_) {
      if (!change.had && change.has) add(change);
      if (!change.had && change.has && size() == kEdgesAtOnce) flush(false);
    }
    flush(false);
    list_removed();
    return std::move(found_);
  }

 private:
  void count() {
    found_.reached = changes_.size();
    for (uint32_t source : sources_) {
      if (source < store_.num_sources()) found_.reached += store_.degree_out(source);
    }
    for (uint32_t target : targets_) {
      if (target < store_.num_targets()) found_.reached += store_.degree_in(target);
    }
  }

  size_t size() const { return keys_.size(); }

  void add_unchanged(uint32_t source, uint32_t target, const NeighborSpan& span, size_t i) {
    const uint32_t key = key_at(span, i);
    if (!changes_.empty() && change_from(changes_of(changes_, target), source, key) != nullptr) return;
    const float weight = span.weights == nullptr ? 1.0f : span.weights[i];
    const float* const features = table_.width() == 0 ? nullptr : table_.row(span.rows[i]);
    append(source, target, key, {weight, features}, {weight, features});
    if (size() == kEdgesAtOnce) flush(true);
  }

  void add(const DirectedChange& change) {
    append(change.source, change.target, change.key, {change.old_weight, change.old_features},
           {change.new_weight, change.new_features});
    if (change.had && size() == kEdgesAtOnce) flush(true);
  }

  struct Columns {
    std::vector<float> weights, features;
  };

  void append(uint32_t source, uint32_t target, uint32_t key, std::pair<float, const float*> old,
              std::pair<float, const float*> now) {
    pairs_[0].push_back(source);
    pairs_[1].push_back(target);
    keys_.push_back(key);
    for (const auto& [columns, values] : {std::pair(&old_, old), std::pair(&new_, now)}) {
      columns->weights.push_back(values.first);
      columns->features.insert(columns->features.end(), values.second, values.second + table_.width());
    }
  }

  // Scores the edges that were appended. compare: lists only those whose score was another; they are not new.
  void flush(bool compare) {
    std::vector<float> before(compare ? size() * width_ : 0), after(size() * width_);
    score_pairs(
        engine_.program(), edge_output_, {pairs_[0], pairs_[1], new_.features.data(), new_.weights.data()},
        [&](std::span<const uint32_t> nodes, size_t output, float* out) { after_.read(nodes, output, out); },
        after.data());
    if (compare) {
      score_pairs(
          engine_.program(), edge_output_, {pairs_[0], pairs_[1], old_.features.data(), old_.weights.data()},
          [&](std::span<const uint32_t> nodes, size_t output, float* out) { engine_.predict(nodes, out, output); },
          before.data());
    }
    for (size_t i = 0; i < size(); ++i) {
      const float* const row = after.data() + i * width_;
      if (compare && std::memcmp(before.data() + i * width_, row, width_ * sizeof(float)) == 0) continue;
      name(pairs_[0][i], pairs_[1][i], keys_[i], &found_.edges);
      found_.rows.insert(found_.rows.end(), row, row + width_);
    }
    pairs_[0].clear();
    pairs_[1].clear();
    keys_.clear();
    for (Columns* columns : {&old_, &new_}) {
      columns->weights.clear();
      columns->features.clear();
    }
  }

  void list_removed() {
    const auto empty = [&](uint32_t type) { return delta_.nodes[type].removed.empty(); };
    std::set<std::tuple<int64_t, int64_t, uint32_t>> added;
    if (!empty(output_.source_type) || !empty(output_.target_type)) {
      for (const DirectedChange& change : changes_) {
        if (change.had || !change.has) continue;
        added.insert({source_ids_.of(change.source), target_ids_.of(change.target), change.key});
      }
    }
    for (const DirectedChange& change : changes_) {
      if (!change.had || change.has) continue;
      if (!added.empty() &&
          added.count({source_ids_.of(change.source), target_ids_.of(change.target), change.key}) > 0) {
        continue;
      }
      name(change.source, change.target, change.key, &found_.removed);
    }
  }

  void name(uint32_t source, uint32_t target, uint32_t key, EdgeIds* edges) const {
    edges->sources.push_back(source_ids_.of(source));
    edges->targets.push_back(target_ids_.of(target));
    edges->keys.push_back(key);
  }

  const Engine& engine_;
  const size_t edge_output_;
  const EdgeOutput& output_;
  const size_t width_;
  const GraphStore& store_;
  const Table& table_;
  const Delta& delta_;
  const std::vector<DirectedChange>& changes_;
  const RowsAfter after_;
  const std::vector<uint32_t> sources_, targets_;
  const NodeIds source_ids_, target_ids_;
  std::vector<uint32_t> pairs_[2], keys_;  // edges that wait for `flush`
  Columns old_, new_;
  ChangedScores found_;
};

}  // namespace

ChangedScores changed_scores(const Engine& engine, const Prepared& prepared, size_t edge_output, size_t most) {
  return Comparison(engine, prepared, edge_output).run(most);
}

}  // namespace livegnn
