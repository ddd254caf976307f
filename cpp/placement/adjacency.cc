#include "placement/adjacency.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace livegnn {
namespace {

template <class Visit>
void for_each_end(std::span<const ListedEdges> edges, const Visit& visit) {
  for (const ListedEdges& of : edges) {
    for (size_t i = 0; i < of.sources.size(); ++i) {
      const size_t source = of.source_offset + of.sources[i], target = of.target_offset + of.targets[i];
      if (source == target) continue;
      visit(source, target);
      visit(target, source);
    }
  }
}

void check_edges(size_t nodes, std::span<const ListedEdges> edges) {
  for (const ListedEdges& of : edges) {
    if (of.sources.size() != of.targets.size()) throw std::invalid_argument("edges have as many sources as targets");
    for (size_t i = 0; i < of.sources.size(); ++i) {
      if (of.source_offset + of.sources[i] >= nodes || of.target_offset + of.targets[i] >= nodes) {
        throw std::invalid_argument("edge " + std::to_string(i) + " has an end that is none of " +
                                    std::to_string(nodes) + " nodes");
      }
    }
  }
}

}  // namespace

Adjacency join_edges(size_t nodes, std::span<const ListedEdges> edges) {
  check_edges(nodes, edges);
  Adjacency joined;
  joined.starts.resize(nodes + 1);
  for_each_end(edges, [&](size_t node, size_t) { ++joined.starts[node + 1]; });
  for (size_t node = 0; node < nodes; ++node) joined.starts[node + 1] += joined.starts[node];
  joined.neighbors.resize(joined.starts[nodes]);
  std::vector<int64_t> next(joined.starts.begin(), joined.starts.end() - 1);
  for_each_end(edges, [&](size_t node, size_t other) { joined.neighbors[next[node]++] = static_cast<int64_t>(other); });
  std::vector<int64_t>().swap(next);
  // Lists are sorted, and what is there several times becomes a weight; all move to the front.
  joined.weights.reserve(joined.neighbors.size());
  int64_t begin = 0, filled = 0;
  for (size_t node = 0; node < nodes; ++node) {
    const int64_t end = joined.starts[node + 1], first = filled;
    std::sort(joined.neighbors.begin() + begin, joined.neighbors.begin() + end);
    for (int64_t at = begin; at < end; ++at) {
      if (filled > first && joined.neighbors[filled - 1] == joined.neighbors[at]) {
        ++joined.weights.back();
      } else {
        joined.neighbors[filled++] = joined.neighbors[at];
        joined.weights.push_back(1);
      }
    }
    begin = end;
    joined.starts[node + 1] = filled;
  }
  joined.neighbors.resize(filled);
  return joined;
}

void check_adjacency(const AdjacencyView& of, size_t nodes) {
  const auto listed = static_cast<int64_t>(of.neighbors.size());
  if (of.starts.size() != nodes + 1 || of.starts[0] != 0 || of.starts[nodes] != listed ||
      !std::is_sorted(of.starts.begin(), of.starts.end()) || of.weights.size() != of.neighbors.size()) {
    throw std::invalid_argument("expected the lists of " + std::to_string(nodes) + " nodes");
  }
  for (int64_t neighbor : of.neighbors) {
    if (neighbor < 0 || static_cast<size_t>(neighbor) >= nodes) {
      throw std::invalid_argument("neighbor " + std::to_string(neighbor) + " is none of " + std::to_string(nodes) +
                                  " nodes");
    }
  }
}

Cut cut_of(const AdjacencyView& of, std::span<const uint16_t> owners) {
  Cut cut;
  for (size_t node = 0; node < of.num_nodes(); ++node) {
    of.for_each(node, [&](size_t neighbor, int64_t weight) {
      cut.all += weight;
      if (owners[neighbor] != owners[node]) cut.between += weight;
    });
  }
  return {cut.between / 2, cut.all / 2};
}

}  // namespace livegnn
