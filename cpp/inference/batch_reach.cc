#include "inference/batch_reach.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "inference/edges/directed_changes.h"
#include "inference/edges/edge_view.h"

namespace livegnn {
namespace {

class Walk {
 public:
  Walk(const Graph& graph, const Program& program, const Delta& delta)
      : graph_(graph),
        program_(program),
        delta_(delta),
        reached_(program.values.size()),
        edges_(2 * graph.edges.size()) {
    size_t nodes = 0;
    for (const NodeDelta& one : delta.nodes) nodes = std::max(nodes, one.capacity);
    seen_.resize(nodes);
    for (size_t type = 0; type < graph.edges.size(); ++type) {
      direct_changes(graph, delta, type, nullptr, &edges_[type]);
      reverse_changes(edges_[type], &edges_[type + graph.edges.size()]);
    }
    for (size_t value = 0; value < program.values.size(); ++value) {
      if (program.values[value].features) reached_[value] = delta.nodes[program.values[value].node_type].featured;
    }
  }

  BatchReach run() {
    for (const Step& step : program_.order) {
      if (step.kind == Step::kRows) take_rows(program_.rows[step.position]);
      if (step.kind == Step::kContext) take_context(program_.contexts[step.position]);
      if (step.kind == Step::kPropagate) take_messages(program_.propagations[step.position]);
    }
    if (program_.output_kept) {
      reach_.predictions = reached_[program_.output].size();
    } else {
      reach_.predictions = rows_of(program_.on_demand[program_.output]).size();
    }
    return reach_;
  }

 private:
  using Nodes = std::vector<uint32_t>;

  void reach(uint32_t node) {
    if (seen_[node] != 0) return;
    seen_[node] = 1;
    found_.push_back(node);
  }
  Nodes take_found() {
    for (uint32_t node : found_) seen_[node] = 0;
    return std::exchange(found_, {});
  }
  void show(uint32_t value, Nodes nodes) {
    reach_.rows += nodes.size();
    reached_[value] = std::move(nodes);
  }

  Nodes rows_of(const RowsStep& step) {
    const NodeDelta& nodes = delta_.nodes[step.node_type];
    for (size_t i = 0; i < nodes.added.size(); ++i) {
      if (nodes.added_ids[i] != kNoId) reach(nodes.added[i]);
    }
    for (uint32_t source : step.sources) {
      for (uint32_t node : reached_[source]) reach(node);
    }
    return take_found();
  }

  void take_rows(const RowsStep& step) {
    const Nodes nodes = rows_of(step);
    for (const Sink& sink : step.sinks) show(sink.value, nodes);
  }

  void take_context(const ContextStep& step) {
    for (const DirectedChange& change : edges_[direction_of(graph_, step)]) reach(change.target);
    show(step.output, take_found());
  }

  // Along the edges that are there before the batch, removed ones included.
  void scan(const PropagateStep& step, const Nodes& sources) {
    constexpr size_t kAhead = 16;
    const EdgeView store = view_of(graph_, step);
    for (size_t i = 0; i < sources.size(); ++i) {
      if (step.only_loops) {
        reach(sources[i]);
        continue;
      }
      if (i + kAhead < sources.size()) store.prefetch_out(sources[i + kAhead]);
      if (i + kAhead / 2 < sources.size()) store.prefetch_out_leaf(sources[i + kAhead / 2]);
      store.scan_out(sources[i], [&](NeighborSpan span) {
        reach_.edges += span.size;
        for (size_t j = 0; j < span.size; ++j) reach(span.ids[j]);
      });
    }
  }

  // The nodes of which a message program reads changed rows at this end of an edge, each once.
  Nodes read_at(const PropagateStep& step, MessageSource::Side side) const {
    Nodes nodes;
    for (const MessageSource& source : program_.messages[step.message].sources) {
      if (source.side == side) nodes.insert(nodes.end(), reached_[source.value].begin(), reached_[source.value].end());
    }
    std::sort(nodes.begin(), nodes.end());
    nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
    return nodes;
  }

  void take_messages(const PropagateStep& step) {
    if (step.message == kNoIndex) {
      scan(step, reached_[step.input]);
    } else {
      scan(step, read_at(step, MessageSource::kSource));
      for (uint32_t node : read_at(step, MessageSource::kTarget)) reach(node);
    }
    for (const DirectedChange& change : edges_[direction_of(graph_, step)]) {
      if (step.message == kNoIndex && same_messages(change, step.weighted)) continue;
      if (step.only_loops && change.source != change.target) continue;
      ++reach_.edges;
      reach(change.target);
    }
    const Nodes nodes = take_found();
    show(step.output, nodes);
    if (step.context != kNoIndex) show(step.context, nodes);
    if (step.counts != kNoIndex) show(step.counts, nodes);
  }

  const Graph& graph_;
  const Program& program_;
  const Delta& delta_;
  std::vector<Nodes> reached_;                      // by value
  std::vector<std::vector<DirectedChange>> edges_;  // by direction
  std::vector<uint8_t> seen_;
  Nodes found_;
  BatchReach reach_;
};

}  // namespace

BatchReach reach_of(const Graph& graph, const Program& program, const Delta& delta) {
  return Walk(graph, program, delta).run();
}

}  // namespace livegnn
