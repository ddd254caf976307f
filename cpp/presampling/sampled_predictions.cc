#include "presampling/sampled_predictions.h"

namespace livegnn {

bool SampledPredictions::compute(float* out) {
  graph_.nodes.clear();
  for (uint32_t place : types_.nodes) {
    const Subgraph::Nodes& nodes = sample_.nodes[place];
    graph_.nodes.push_back({nodes.ids.size(), nodes.features.data()});
  }
  graph_.edges.clear();
  for (uint32_t place : types_.edges) {
    const Subgraph::Edges& edges = sample_.edges[place];
    graph_.edges.push_back(
        {edges.row.size(), edges.row.data(), edges.col.data(), edges.weight.data(), edges.features.data()});
  }
  const int64_t seed = sample_.inverse[0][0];
  const Forward::Asked asked{output_, {&seed, 1}, out};
  try {
    forward_.run(graph_, {&asked, 1});
  } catch (const BadSampledGraph&) {
    return false;
  }
  return true;
}

}  // namespace livegnn
