#include "sampling/sampling.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <utility>

#include "bindings/arrays.h"
#include "bindings/ids.h"
#include "bindings/locks.h"
#include "bindings/module.h"

namespace livegnn::bindings {
namespace {

using Seeds = std::pair<uint32_t, GivenIds>;
using FanOut = std::pair<uint32_t, std::vector<int32_t>>;

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
nb::object taken_rows(bool present, Column<float>&& values, size_t count, size_t width) {
  if (!present || width == 0) return nb::none();
  auto data = values.size() == 0 ? std::make_unique<float[]>(0) : std::unique_ptr<float[]>(values.release());
  nb::capsule owner(data.get(), [](void* p) noexcept { delete[] static_cast<float*>(p); });
  return nb::cast(OutRows<float>(data.release(), {count, width}, owner));
}

template <class T>
std::span<const T> span_of(const In<T>& from) {
  return {from.data(), from.shape(0)};
}

std::span<const double> bounds_of(const std::optional<In<double>>& until) {
  return until ? span_of(*until) : std::span<const double>();
}

// The ids of a sample as output, converted in the read that drew it.
class Drawn {
 public:
  Drawn(const Graph& graph, bool named, Column<int64_t>&& numbers) : numbers_(std::move(numbers)) {
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

std::vector<int64_t> numbers_of(const Graph& graph, const GivenIds& ids) {
  std::vector<int64_t> numbers(count_of(ids));
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = number_of(graph, ids, i);
  return numbers;
}

nb::object nodes(const Sampler& self, const Graph& graph, uint32_t type, int by, bool incoming, bool replace,
                 size_t count, uint64_t seed, bool named) {
  auto drawn = read(graph, SIZE_MAX, [&] {
    const auto strategy = static_cast<NodesBy>(by);
    return Drawn(graph, named, self.nodes({type, strategy, incoming, replace, count, seed}));
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
    return Drawn(graph, named, std::move(out.ids));
  });
  const EdgeColumns columns = graph.edges[edge_type].spec.options.columns;
  return nb::make_tuple(taken(std::move(out.rowptr)), std::move(drawn).given(),
                        taken_if(columns.weighted, std::move(out.weight)), taken_if(columns.timed, std::move(out.time)),
                        taken_if(columns.featured, std::move(out.edge)));
}

nb::tuple subgraph(Sampler& self, const Graph& graph, const std::vector<Seeds>& seeds,
                   const std::vector<FanOut>& fan_outs, int by, bool replace, bool disjoint, bool incoming,
                   bool attributes, std::optional<In<double>> until, uint64_t seed, size_t threads, bool named) {
  SubgraphRequest request;
  for (const auto& [type, counts] : fan_outs) request.fan_outs.push_back({type, counts});
  request.by = static_cast<SampleBy>(by);
  request.replace = replace;
  request.disjoint = disjoint;
  request.incoming = incoming;
  request.attributes = attributes;
  request.until = bounds_of(until);
  request.seed = seed;
  request.threads = threads;
  Subgraph out;
  std::vector<Drawn> drawn;
  read(graph, SIZE_MAX, [&] {
    std::vector<std::vector<int64_t>> numbers;
    for (const auto& [type, ids] : seeds) {
      numbers.push_back(numbers_of(graph, ids));
      request.seeds.push_back({type, numbers.back()});
    }
    out = self.subgraph(request);
    for (auto& type : out.nodes) drawn.emplace_back(graph, named, std::move(type.ids));
  });
  nb::list nodes, edges, inverse;
  for (size_t t = 0; t < out.nodes.size(); ++t) {
    auto& type = out.nodes[t];
    const size_t count = drawn[t].size();
    nodes.append(
        nb::make_tuple(std::move(drawn[t]).given(), taken(std::move(type.batch)), type.num_sampled,
                       taken_rows(attributes, std::move(type.features), count, graph.nodes[t].features.width())));
  }
  for (size_t f = 0; f < out.edges.size(); ++f) {
    auto& type = out.edges[f];
    const size_t count = type.row.size();
    const Graph::EdgeType& edge_type = graph.edges[fan_outs[f].first];
    const EdgeColumns columns = edge_type.spec.options.columns;
    nb::object edge = type.edge ? nb::cast(taken(std::move(*type.edge))) : nb::none();
    edges.append(
        nb::make_tuple(taken(std::move(type.row)), taken(std::move(type.col)), edge, type.num_sampled,
                       taken_if(attributes && columns.weighted, std::move(type.weight)),
                       taken_if(attributes && columns.timed, std::move(type.time)),
                       taken_rows(attributes, std::move(type.features), count, edge_type.features.table().width())));
  }
  for (auto& positions : out.inverse) inverse.append(taken(std::move(positions)));
  return nb::make_tuple(nodes, edges, inverse);
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

  nb::class_<Sampler>(module, "Sampler")
      .def(nb::init<const Graph&>(), nb::keep_alive<1, 2>())
      .def("nodes", &nodes)
      .def("neighbors", &neighbors, nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg(),
           nb::arg().none(), nb::arg(), nb::arg(), nb::arg())
      .def("subgraph", &subgraph, nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg(),
           nb::arg(), nb::arg().none(), nb::arg(), nb::arg(), nb::arg());
}

}  // namespace livegnn::bindings
