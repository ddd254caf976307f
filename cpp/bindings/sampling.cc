#include "sampling/sampling.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "bindings/arrays.h"
#include "bindings/ids.h"
#include "bindings/locks.h"
#include "bindings/module.h"
#include "bindings/subgraph.h"
#include "sampling/choice.h"

namespace livegnn::bindings {
namespace {

using Seeds = std::pair<uint32_t, GivenIds>;

template <class T>
std::span<const T> span_of(const In<T>& from) {
  return {from.data(), from.shape(0)};
}

std::span<const double> bounds_of(const std::optional<In<double>>& until) {
  return until ? span_of(*until) : std::span<const double>();
}

nb::object nodes(const Sampler& self, const Graph& graph, uint32_t type, int by, bool incoming, bool replace,
                 size_t count, uint64_t seed, bool named) {
  auto drawn = read(graph, SIZE_MAX, [&] {
    const auto strategy = static_cast<NodesBy>(by);
    return DrawnIds(graph, named, self.nodes({type, strategy, incoming, replace, count, seed}));
  });
  return std::move(drawn).given();
}

nb::tuple neighbors(Sampler& self, const Graph& graph, uint32_t edge_type, const GivenIds& ids, int32_t count, int by,
                    bool replace, bool incoming, std::optional<In<double>> until, uint64_t seed, size_t threads,
                    bool named) {
  NeighborSample out;
  auto drawn = read(graph, SIZE_MAX, [&] {
    const NeighborStrategy strategy{static_cast<SampleBy>(by), replace, count};
    const EdgeColumns wanted{true, true, true};
    const std::vector<int64_t> numbers = numbers_of(graph, ids);
    out = self.neighbors({edge_type, incoming, strategy, wanted, bounds_of(until), seed, threads}, numbers);
    return DrawnIds(graph, named, std::move(out.ids));
  });
  const EdgeColumns columns = graph.edges[edge_type].spec.options.columns;
  return nb::make_tuple(taken(std::move(out.rowptr)), std::move(drawn).given(),
                        taken_if(columns.weighted, std::move(out.weight)), taken_if(columns.timed, std::move(out.time)),
                        taken_if(columns.featured, std::move(out.edge)));
}

nb::tuple draw(Sampler& self, const Graph& graph, const std::vector<Seeds>& seeds, SubgraphRequest request,
               bool named) {
  Subgraph out;
  std::vector<DrawnIds> drawn;
  read(graph, SIZE_MAX, [&] {
    std::vector<std::vector<int64_t>> numbers;
    for (const auto& [type, ids] : seeds) {
      numbers.push_back(numbers_of(graph, ids));
      request.seeds.push_back({type, numbers.back()});
    }
    out = self.subgraph(request);
    for (auto& type : out.nodes) drawn.emplace_back(graph, named, std::move(type.ids));
  });
  return given(graph, std::move(out), std::move(drawn), request.attributes);
}

nb::tuple subgraph(Sampler& self, const Graph& graph, const std::vector<Seeds>& seeds,
                   const std::vector<FanOut>& fan_outs, int by, bool replace, bool disjoint, bool incoming,
                   bool attributes, std::optional<In<double>> until, uint64_t seed, size_t threads, bool named) {
  auto request = fan_out_request(fan_outs, by, replace, disjoint, incoming, attributes, seed, threads);
  request.until = bounds_of(until);
  return draw(self, graph, seeds, std::move(request), named);
}

nb::tuple query(Sampler& self, const Graph& graph, const Seeds& seeds, const std::vector<GivenOneHop>& one_hops,
                bool attributes, std::optional<In<double>> until, uint64_t seed, size_t threads, bool named) {
  auto request = query_request(one_hops, attributes, seed, threads);
  request.until = bounds_of(until);
  return draw(self, graph, {seeds}, std::move(request), named);
}

nb::object draw_each(const In<int64_t>& offsets, const In<int64_t>& nodes, const In<int64_t>& neighbors,
                     const std::optional<In<float>>& weights, const std::optional<In<double>>& times, size_t count,
                     uint64_t seed) {
  const size_t size = neighbors.shape(0);
  const auto bounds = span_of(offsets);
  if (bounds.size() != nodes.shape(0) + 1 || bounds.front() < 0 || bounds.back() > static_cast<int64_t>(size) ||
      !std::ranges::is_sorted(bounds) || (weights && weights->shape(0) != size) || (times && times->shape(0) != size)) {
    throw std::invalid_argument("each node must have a list, and each neighbour a value");
  }
  const auto by = weights ? span_of(*weights) : std::span<const float>();
  std::vector<int64_t> drawn;
  run(size > kQuick,
      [&] { drawn = draw_of_lists(bounds, span_of(nodes), span_of(neighbors), by, bounds_of(times), count, seed); });
  return nb::cast(given(std::move(drawn)));
}

}  // namespace

void bind_sampling(nb::module_& module) {
  static nb::object sample_error =
      nb::steal(PyErr_NewException("livegnn._core.SampleError", PyExc_ValueError, nullptr));
  module.attr("SampleError") = sample_error;
  nb::register_exception_translator([](const std::exception_ptr& pointer, void*) {
    try {
      std::rethrow_exception(pointer);
    } catch (const SampleError& error) {
      nb::tuple args = nb::make_tuple(static_cast<int>(error.kind), error.what(), error.type, error.position);
      PyErr_SetObject(sample_error.ptr(), args.ptr());
    }
  });

  module.def("draw_of_lists", &draw_each, nb::arg(), nb::arg(), nb::arg(), nb::arg().none(), nb::arg().none(),
             nb::arg(), nb::arg());
  nb::class_<Sampler>(module, "Sampler")
      .def(nb::init<const Graph&>(), nb::keep_alive<1, 2>())
      .def("nodes", &nodes)
      .def("neighbors", &neighbors, nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg(),
           nb::arg().none(), nb::arg(), nb::arg(), nb::arg())
      .def("query", &query, nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg().none(), nb::arg(), nb::arg(),
           nb::arg())
      .def("subgraph", &subgraph, nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg(),
           nb::arg(), nb::arg().none(), nb::arg(), nb::arg(), nb::arg());
}

}  // namespace livegnn::bindings
