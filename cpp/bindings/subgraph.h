// Samples of subgraphs as Python takes them: columns whose memory the arrays take over, and ids named in the read that
// drew them; one-hop queries as Python gives them.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings/arrays.h"
#include "bindings/ids.h"
#include "sampling/sampling.h"

namespace livegnn::bindings {

// Edge type, whether in-edges are drawn, number of neighbours, strategy, parents.
using GivenOneHop = std::tuple<uint32_t, bool, int32_t, int, std::vector<int32_t>>;

inline std::vector<OneHop> one_hops_of(const std::vector<GivenOneHop>& given) {
  std::vector<OneHop> all;
  for (const auto& [edge_type, incoming, count, by, parents] : given) {
    all.push_back({edge_type, incoming, {static_cast<SampleBy>(by), false, count}, parents});
  }
  return all;
}

// Edge type, number of neighbours by hop.
using FanOut = std::pair<uint32_t, std::vector<int32_t>>;

// Requests without seeds and bounds.
inline SubgraphRequest fan_out_request(const std::vector<FanOut>& fan_outs, int by, bool replace, bool disjoint,
                                       bool incoming, bool attributes, uint64_t seed, size_t threads) {
  SubgraphRequest request;
  for (const auto& [type, counts] : fan_outs) request.fan_outs.push_back({type, counts});
  request.by = static_cast<SampleBy>(by);
  request.replace = replace;
  request.disjoint = disjoint;
  request.incoming = incoming;
  request.attributes = attributes;
  request.seed = seed;
  request.threads = threads;
  return request;
}
inline SubgraphRequest query_request(const std::vector<GivenOneHop>& one_hops, bool attributes, uint64_t seed,
                                     size_t threads) {
  SubgraphRequest request;
  request.one_hops = one_hops_of(one_hops);
  request.attributes = attributes;
  request.seed = seed;
  request.threads = threads;
  return request;
}

// An array that takes over the column's memory.
template <class T>
Out<T> taken(Column<T>&& column) {
  const size_t size = column.size();
  auto data = column.size() == 0 ? std::make_unique<T[]>(0) : std::unique_ptr<T[]>(column.release());
  nb::capsule owner(data.get(), [](void* p) noexcept { delete[] static_cast<T*>(p); });
  return Out<T>(data.release(), {size}, owner);
}

template <class T>
nb::object taken_if(bool present, Column<T>&& column) {
  return present ? nb::cast(taken(std::move(column))) : nb::none();
}

// Rows of features; None if they were not requested or the type has none.
inline nb::object taken_rows(bool present, Column<float>&& values, size_t count, size_t width) {
  if (!present || width == 0) return nb::none();
  auto data = values.size() == 0 ? std::make_unique<float[]>(0) : std::unique_ptr<float[]>(values.release());
  nb::capsule owner(data.get(), [](void* p) noexcept { delete[] static_cast<float*>(p); });
  return nb::cast(OutRows<float>(data.release(), {count, width}, owner));
}

// The ids of a sample as output, converted in the read that drew it.
class DrawnIds {
 public:
  explicit DrawnIds(Column<int64_t>&& numbers) : numbers_(std::move(numbers)) {}
  DrawnIds(const Graph& graph, bool named, Column<int64_t>&& numbers) : numbers_(std::move(numbers)) {
    if (!named || graph.texts == nullptr) return;
    texts_ = Names::of(graph, numbers_.size(), [&](size_t i) { return numbers_.data()[i]; }).texts;
    named_ = true;
  }
  size_t size() const { return numbers_.size(); }
  nb::object given() && { return named_ ? nb::cast(std::move(texts_)) : nb::cast(taken(std::move(numbers_))); }

 private:
  Column<int64_t> numbers_;
  std::vector<std::string> texts_;
  bool named_ = false;
};

// Columns of an edge type that a sample returns.
struct EdgeShape {
  bool weighted, timed;
  size_t width;  // of features
};

// Nodes by type, edges in the order of the sample, positions of the seeds. Call it after the read. `drawn`: ids of the
// nodes of each type. `width_of(type)`: of the features of a node type; `shape_of(place)`: of an edge type, by its
// place in the sample.
template <class WidthOf, class ShapeOf>
nb::tuple given(Subgraph&& out, std::vector<DrawnIds>&& drawn, bool attributes, const WidthOf& width_of,
                const ShapeOf& shape_of) {
  nb::list nodes, edges, inverse;
  for (size_t t = 0; t < out.nodes.size(); ++t) {
    auto& type = out.nodes[t];
    const size_t count = drawn[t].size();
    nodes.append(nb::make_tuple(std::move(drawn[t]).given(), taken(std::move(type.batch)), type.num_sampled,
                                taken_rows(attributes, std::move(type.features), count, width_of(t))));
  }
  for (size_t f = 0; f < out.edges.size(); ++f) {
    auto& type = out.edges[f];
    const size_t count = type.row.size();
    const EdgeShape shape = shape_of(f);
    nb::object edge = type.edge ? nb::cast(taken(std::move(*type.edge))) : nb::none();
    edges.append(nb::make_tuple(taken(std::move(type.row)), taken(std::move(type.col)), edge, type.num_sampled,
                                taken_if(attributes && shape.weighted, std::move(type.weight)),
                                taken_if(attributes && shape.timed, std::move(type.time)),
                                taken_rows(attributes, std::move(type.features), count, shape.width)));
  }
  for (auto& positions : out.inverse) inverse.append(taken(std::move(positions)));
  return nb::make_tuple(nodes, edges, inverse);
}

// The same for a sample of a graph.
inline nb::tuple given(const Graph& graph, Subgraph&& out, std::vector<DrawnIds>&& drawn, bool attributes) {
  std::vector<uint32_t> edge_types;
  for (const auto& type : out.edges) edge_types.push_back(type.edge_type);
  return given(
      std::move(out), std::move(drawn), attributes, [&](size_t t) { return graph.nodes[t].features.width(); },
      [&](size_t f) {
        const Graph::EdgeType& type = graph.edges[edge_types[f]];
        const EdgeColumns columns = type.spec.options.columns;
        return EdgeShape{columns.weighted, columns.timed, type.features.table().width()};
      });
}

}  // namespace livegnn::bindings
