// A sampled subgraph as `Forward` reads it: arrays of the caller, by node type and by edge type.
//
// Nodes are positions from 0 on, by type. Types that no step of the program reads may be empty.
//
// Thread safety: plain data; nothing may change it while it is read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace livegnn {

struct SampledGraph {
  struct Nodes {
    size_t count = 0;
    const float* x = nullptr;  // a row for each node, one after the other without padding
  };
  struct Edges {
    size_t count = 0;
    const int64_t *row = nullptr, *col = nullptr;  // positions of sources and targets
    const float* weight = nullptr;                 // null: every edge weighs 1
    const float* features = nullptr;               // a row for each edge
  };
  // What the nodes that receive in a direction have in the whole graph.
  struct Degrees {
    const int64_t* count = nullptr;       // in-edges, loops included; null: everything is as in the sample
    const double* weight = nullptr;       // the sum of their weights; null: every edge weighs 1
    const int64_t* loops = nullptr;       // how many of them are loops; null: as many as the sample has
    const double* loop_weight = nullptr;  // the sum of the weights of these; null: each weighs 1, or as in the sample
  };

  std::vector<Nodes> nodes;
  std::vector<Edges> edges;
  std::vector<Degrees> degrees;  // by direction (edge_view.h)
};

// A sample that cannot be computed; the bindings write the message.
class BadSampledGraph : public std::invalid_argument {
 public:
  enum Kind : int {
    kSource,         // the source of an edge is no node of the sample
    kTarget,         // the target of an edge is none
    kNodeFeatures,   // a feature of a node is not finite
    kWeight,         // a weight is not finite
    kEdgeFeatures,   // a feature of an edge is not finite
    kParallelLoops,  // a node has several loops, and the program was made for one
    kAsked,          // a row is asked for that no node of the sample has
  };
  // `type` is a node type, or an edge type where the kind is about edges; `position` is that of the node or the edge.
  BadSampledGraph(Kind kind, uint32_t type, size_t position)
      : std::invalid_argument("the sample has a wrong value at position " + std::to_string(position)),
        kind(kind),
        type(type),
        position(position) {}
  Kind kind;
  uint32_t type;
  size_t position;
};

}  // namespace livegnn
