// For the tests of forward passes: a whole graph as a sample, and random samples.
#pragma once

#include <algorithm>
#include <cstring>
#include <vector>

#include "inference/engine_model.h"
#include "inference/forward/forward.h"
#include "inference/plain_steps_model.h"

namespace livegnn::testing {

// A sample with the arrays that it reads.
struct OwnedSample {
  Floats x, weight, features;
  std::vector<int64_t> row, col;
  SampledGraph graph;

  OwnedSample() = default;
  OwnedSample(const OwnedSample&) = delete;

  // Points the sample, of one type of each kind, to the arrays.
  void finish(size_t nodes, bool weighted, bool featured) {
    graph.nodes = {{nodes, x.data()}};
    graph.edges = {
        {row.size(), row.data(), col.data(), weighted ? weight.data() : nullptr, featured ? features.data() : nullptr}};
  }
};

// All nodes and edges of an engine's graph; node i is the node with index i. The edges of a node are in the order of
// their sources and keys.
inline void read_whole(const Engine& engine, OwnedSample* sample) {
  const Graph& graph = engine.graph();
  const Graph::EdgeType& type = graph.edges[0];
  const NodeFeatures& table = graph.nodes[0].features;
  const size_t nodes = graph.nodes[0].ids.capacity(), width = type.features.table().width();
  for (uint32_t node = 0; node < nodes; ++node) {
    sample->x.insert(sample->x.end(), table.row(node), table.row(node) + kFeatures);
    PropagateStep forward{};
    std::vector<InEdge> edges = in_edges(engine, forward, node);
    std::sort(edges.begin(), edges.end(), [](const InEdge& a, const InEdge& b) {
      return a.source != b.source ? a.source < b.source : a.key < b.key;
    });
    for (const InEdge& edge : edges) {
      sample->row.push_back(edge.source);
      sample->col.push_back(node);
      sample->weight.push_back(edge.weight);
      for (size_t c = 0; c < width; ++c) {
        sample->features.push_back(edge.features == nullptr ? 0.0f : edge.features[c]);
      }
    }
  }
  sample->finish(nodes, type.spec.options.columns.weighted, width > 0);
}

inline Forward forward_of(const Setting& setting) { return Forward(setting.make(), {{0, 0, setting.options.keyed}}); }

// A random sample of nodes in the order of their distance from node 0, each with a few in-edges, of which no two are
// loops: only models of keyed edges take those.
inline void draw(Random* random, size_t hops, size_t neighbors, OwnedSample* sample) {
  size_t nodes = 1;
  for (size_t hop = 0, first = 0; hop < hops; ++hop) {
    const size_t end = nodes;
    for (size_t node = first; node < end; ++node) {
      bool looped = false;
      for (size_t i = random->below(neighbors + 1); i > 0; --i) {
        size_t source = random->chance(0.3) ? random->below(nodes) : nodes;
        const bool loop = source == node;
        if (loop && looped) source = nodes;
        looped = looped || loop;
        if (source == nodes) ++nodes;
        sample->row.push_back(static_cast<int64_t>(source));
        sample->col.push_back(static_cast<int64_t>(node));
      }
    }
    first = end;
  }
  sample->x = random->floats(nodes * kFeatures);
  for (size_t i = 0; i < sample->row.size(); ++i) sample->weight.push_back(random->between(0.1f, 2));
  sample->features = random->floats(sample->row.size() * kEdgeFeatures);
}

inline Floats predict(const Forward& forward, const SampledGraph& sample, const std::vector<int64_t>& positions) {
  Floats out(positions.size() * forward.program().output_width(0));
  const Forward::Asked asked{0, positions, out.data()};
  forward.run(sample, {&asked, 1});
  return out;
}

inline bool same_floats(const Floats& a, const Floats& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

}  // namespace livegnn::testing
