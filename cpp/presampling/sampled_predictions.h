// Predictions of nodes, each on its own sample: samples are put together and computed one after the other, in the same
// memory.
//
//   id ─► assembly (of a view, or of a cache) ─► sample ─► forward pass ─► row
//
// A row has the bits that the two steps give by themselves.
//
// Thread safety: an object belongs to one thread; the `Forward` may be shared. The caller holds the lock that the
// assembly asks for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "inference/forward/forward.h"
#include "sampling/sampling.h"

namespace livegnn {

// Where samples have the types of a model.
struct SampledTypes {
  std::vector<uint32_t> nodes;  // by node type of the model: its place among the nodes of a sample
  std::vector<uint32_t> edges;  // by edge type of the model: its place among the edges of a sample
};

class SampledPredictions {
 public:
  // Requires: samples have these types, as wide as the program reads them; seeds are of the type of the output.
  SampledPredictions(const Forward& forward, size_t output, SampledTypes types)
      : forward_(forward), output_(output), types_(std::move(types)) {}

  size_t width() const { return forward_.program().output_width(output_); }

  // The amount of work of samples of `lookups` nodes and the passes over them, in rows of 64 channels.
  size_t work(size_t lookups) const {
    const size_t rows = (forward_.widest() + 63) / 64;
    return lookups > SIZE_MAX / (rows + 1) ? SIZE_MAX : lookups * rows;
  }

  // Writes a row of `width()` floats for each id, and returns their number; or the position of the first id whose
  // sample cannot be computed (BadSampledGraph), up to which rows are written. Throws what the assembly throws, and
  // what functions of the model throw.
  template <class Assembly>
  size_t predict(Assembly* assembly, std::span<const int64_t> ids, float* out) {
    for (size_t i = 0; i < ids.size(); ++i) {
      assembly->sample(ids.subspan(i, 1), true, &sample_);
      if (!compute(out + i * width())) return i;
    }
    return ids.size();
  }

 private:
  bool compute(float* out) {
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

  const Forward& forward_;
  size_t output_;
  SampledTypes types_;
  Subgraph sample_;
  SampledGraph graph_;  // the sample in the types of the model
};

}  // namespace livegnn
