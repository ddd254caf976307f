#include "inference/edges/directed_changes.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "store/graph_model.h"
#include "testing/testing.h"

namespace livegnn::directed_changes_test {

using namespace testing;

namespace {

using Edges = std::vector<std::pair<uint64_t, float>>;  // of one target: by source and key

Edges sorted(Edges edges) {
  std::sort(edges.begin(), edges.end());
  return edges;
}

Edges in_edges(const EdgeView& view, uint32_t node) {
  Edges edges;
  view.scan_in(node, [&](NeighborSpan span) {
    for (size_t i = 0; i < span.size; ++i) {
      edges.emplace_back((uint64_t{span.ids[i]} << 32) | key_at(span, i), span.weights[i]);
    }
  });
  return edges;
}

// The changes of a delta of one type, from all targets, as they are after it.
std::vector<DirectedChange> directed(const Delta& delta, bool undirected, bool reversed) {
  std::vector<DirectedChange> changes;
  for (const EdgeChange& change : delta.edges[0]) {
    auto add = [&](uint32_t source, uint32_t target) {
      changes.push_back(
          {source, target, change.old_weight, change.new_weight, change.had, change.has, change.key, nullptr, nullptr});
    };
    reversed ? add(change.target, change.source) : add(change.source, change.target);
    if (undirected && change.source != change.target) {
      reversed ? add(change.source, change.target) : add(change.target, change.source);
    }
  }
  std::sort(changes.begin(), changes.end(), [](const DirectedChange& a, const DirectedChange& b) {
    return std::pair(a.target, a.order()) < std::pair(b.target, b.order());
  });
  return changes;
}

struct RandomEdges {
  Graph graph;
  Random random;

  explicit RandomEdges(const EdgeOptions& options) : graph({0}, {{0, 0, options}}) {
    Stage stage(graph);
    for (int64_t id = 0; id < 8; ++id) add_node(stage, id);
    apply_delta(stage.finish(), &graph);
  }
  Delta next() {
    Stage stage(graph);
    for (size_t i = random.below(20); i > 0; --i) {
      const int64_t source = static_cast<int64_t>(random.below(8)), target = static_cast<int64_t>(random.below(8));
      const float weight = static_cast<float>(random.below(4));
      if (random.chance(0.6)) {
        stage.add_edges(0, &source, &target, &weight, nullptr, nullptr, 0, 1);
      } else {
        stage.remove_edges(0, &source, &target, 1);
      }
    }
    return stage.finish();
  }
};

constexpr EdgeOptions options_of(bool undirected, bool keyed) {
  EdgeOptions options{{true, false}, undirected, false};
  options.keyed = keyed;
  return options;
}

}  // namespace

// In-edges as they will be, seen before the commit, are those that there are afterwards.
TEST(directed_changes_show_in_edges_as_they_will_be) {
  for (bool undirected : {false, true}) {
    for (bool keyed : {false, true}) {
      for (bool reversed : {false, true}) {
        RandomEdges stream(options_of(undirected, keyed));
        const EdgeView view(*stream.graph.edges[0].store, reversed);
        for (int batch = 0; batch < 100; ++batch) {
          const Delta delta = stream.next();
          const std::vector<DirectedChange> all = directed(delta, undirected, reversed);
          std::vector<std::vector<float>> expected(8), seen(8);
          std::vector<std::optional<OwnLoop>> loops(8);
          for (uint32_t node = 0; node < 8; ++node) {
            const auto changes = changes_of(all, node);
            for (const DirectedChange& change : changes) {
              CHECK_EQ(change.target, node);
              CHECK_EQ(change_from(changes, change.source, change.key), &change);
            }
            CHECK(change_from(changes, 99, 0) == nullptr);
            scan_new_in(view, node, changes, [&](uint32_t, float weight) { seen[node].push_back(weight); });
            loops[node] = own_loop(view, node, changes);
          }
          apply_delta(delta, &stream.graph);
          for (uint32_t node = 0; node < 8; ++node) {
            for (const auto& [order, weight] : in_edges(view, node)) expected[node].push_back(weight);
            std::sort(expected[node].begin(), expected[node].end());
            std::sort(seen[node].begin(), seen[node].end());
            CHECK(seen[node] == expected[node]);
            const std::optional<OwnLoop> loop = own_loop(view, node, {});
            CHECK_EQ(loop.has_value(), loops[node].has_value());
            if (loop) CHECK_EQ(loop->key, loops[node]->key);
          }
        }
      }
    }
  }
}

// Of all in-edges: all of them, all but loops, or the loop with the greatest key.
TEST(directed_changes_scan_the_messages_of_a_step) {
  for (bool keyed : {false, true}) {
    RandomEdges stream(options_of(false, keyed));
    const EdgeView view(*stream.graph.edges[0].store, false);
    for (int batch = 0; batch < 100; ++batch) {
      apply_delta(stream.next(), &stream.graph);
      for (uint32_t node = 0; node < 8; ++node) {
        const Edges all = sorted(in_edges(view, node));
        for (int kind = 0; kind < 3; ++kind) {
          PropagateStep step{0, 0, 0, Aggregate::kSum, true};
          step.skip_loops = kind == 1;
          step.only_loops = kind == 2;
          Edges expected, seen;
          for (const auto& edge : all) {
            const bool loop = edge.first >> 32 == node;
            if (kind == 2 && loop) expected = {edge};
            if (kind == 0 || (kind == 1 && !loop)) expected.push_back(edge);
          }
          scan_messages(view, step, node, [&](NeighborSpan span) {
            for (size_t i = 0; i < span.size; ++i) {
              seen.emplace_back((uint64_t{span.ids[i]} << 32) | key_at(span, i), span.weights[i]);
            }
          });
          CHECK(sorted(seen) == expected);
        }
      }
    }
  }
}

}  // namespace livegnn::directed_changes_test
