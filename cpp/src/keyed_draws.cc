#include "keyed_draws.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "choice.h"

namespace livegnn {
namespace {

// The edges of one node that may be drawn, in the order of their ends and keys.
struct Pool {
  struct Edge {
    uint64_t id;
    EdgeValue value;
  };
  std::vector<Edge> edges;
  std::vector<float> weights;
  std::vector<double> times;
  std::vector<uint32_t> places;

  void fill(const NeighborDraws::Task& task, uint32_t node, double until) {
    const EdgeColumns columns = task.keyed->columns();
    edges.clear();
    task.keyed->scan(node, [&](const BasicNeighborSpan<uint64_t>& span) {
      for (size_t i = 0; i < span.size; ++i) {
        const EdgeValue value{columns.weighted ? span.weights[i] : 1.0f, columns.timed ? span.times[i] : 0.0,
                              columns.featured ? span.rows[i] : kNoRow};
        if (columns.timed && !(value.time <= until)) continue;
        if (task.law.by == SampleBy::kWeight && !(value.weight > 0)) continue;
        edges.push_back({span.ids[i], value});
      }
    });
    std::sort(edges.begin(), edges.end(), [](const Edge& a, const Edge& b) { return a.id < b.id; });
    weights.clear();
    times.clear();
    for (const Edge& edge : edges) {
      weights.push_back(edge.value.weight);
      times.push_back(edge.value.time);
    }
    places.resize(edges.size());
    std::iota(places.begin(), places.end(), 0);
  }
};

void emit(const NeighborDraws::Task& task, uint64_t id, const EdgeValue& value, NeighborColumns* to) {
  to->ids.push_back(static_cast<uint32_t>(id >> 32));
  if (task.wanted.weighted) to->weights.push_back(value.weight);
  if (task.wanted.timed) to->times.push_back(value.time);
  if (task.wanted.featured) to->rows.push_back(value.row);
}

}  // namespace

void draw_keyed(const NeighborDraws::Task& task, std::span<const uint32_t> nodes, std::span<const double> until,
                uint64_t first_place, NeighborColumns* to) {
  static thread_local Pool pool;
  static thread_local Choice choice;
  static thread_local std::vector<uint32_t> chosen;
  const auto& trees = *task.keyed;
  const NeighborLaw law = task.law;
  const bool all = law.count == NeighborLaw::kAll;
  const size_t count = all ? 0 : static_cast<size_t>(law.count);
  to->clear();
  for (size_t i = 0; i < nodes.size(); ++i) {
    RandomStream random(task.seed, task.purpose, first_place + i);
    const SamtreeRoot root = trees.root(nodes[i]);
    const size_t before = to->ids.size();
    chosen.clear();
    if (root.degree == 0 || (!all && count == 0)) {
      to->counts.push_back(0);
      continue;
    }
    const bool few = !all && (law.replace || !draws_a_large_share(root.degree, count));
    if (law.by == SampleBy::kUniform && until.empty() && few) {
      choice.uniform(root.degree, count, law.replace, &random, &chosen);
      for (uint32_t at : chosen) {
        const LeafView<uint64_t> view = trees.leaf_of(root, &at);
        emit(task, view.id(trees.columns(), at), view.value(trees.columns(), at), to);
      }
    } else {
      const double bound = until.empty() ? std::numeric_limits<double>::infinity() : until[until.size() > 1 ? i : 0];
      pool.fill(task, nodes[i], bound);
      const size_t size = pool.edges.size(), some = all ? size : count;
      if (law.by == SampleBy::kLatest) {
        choice.latest(pool.times, pool.places, some, &chosen);
      } else if (all || (!law.replace && size <= count)) {
        chosen = pool.places;
      } else if (law.by == SampleBy::kWeight) {
        choice.by_weight(std::span<const float>(pool.weights), some, law.replace, &random, &chosen);
      } else {
        choice.uniform(size, some, law.replace, &random, &chosen);
      }
      for (uint32_t at : chosen) emit(task, pool.edges[at].id, pool.edges[at].value, to);
    }
    to->counts.push_back(static_cast<uint32_t>(to->ids.size() - before));
  }
}

}  // namespace livegnn
