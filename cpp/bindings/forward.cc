#include "inference/forward/forward.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <tuple>
#include <utility>

#include "bindings/arrays.h"
#include "bindings/module.h"
#include "bindings/row_call.h"

namespace livegnn::bindings {
namespace {

// Number of nodes, features. Row, column, weights, features. Number of in-edges, their weights, loops, their weights.
using NodesTuple = std::tuple<size_t, std::optional<InRows<float>>>;
using EdgesTuple = std::tuple<In<int64_t>, In<int64_t>, std::optional<In<float>>, std::optional<InRows<float>>>;
using DegreesTuple =
    std::tuple<In<int64_t>, std::optional<In<double>>, std::optional<In<int64_t>>, std::optional<In<double>>>;

// The arrays have the widths and lengths that the program needs, which Python has checked.
SampledGraph sample_of(const std::vector<NodesTuple>& nodes, const std::vector<std::optional<EdgesTuple>>& edges,
                       const std::vector<std::optional<DegreesTuple>>& degrees) {
  SampledGraph sample;
  sample.nodes.reserve(nodes.size());
  sample.edges.resize(edges.size());
  sample.degrees.resize(degrees.size());
  for (const auto& [count, x] : nodes) sample.nodes.push_back({count, data_of(x)});
  for (size_t e = 0; e < edges.size(); ++e) {
    if (!edges[e]) continue;
    const auto& [row, col, weight, features] = *edges[e];
    sample.edges[e] = {row.shape(0), row.data(), col.data(), data_of(weight), data_of(features)};
  }
  for (size_t d = 0; d < degrees.size(); ++d) {
    if (!degrees[d]) continue;
    const auto& [count, weight, loops, loop_weight] = *degrees[d];
    sample.degrees[d] = {count.data(), data_of(weight), data_of(loops), data_of(loop_weight)};
  }
  return sample;
}

nb::list predict_forward(const Forward& self, const std::vector<NodesTuple>& nodes,
                         const std::vector<std::optional<EdgesTuple>>& edges,
                         const std::vector<std::optional<DegreesTuple>>& degrees,
                         const std::vector<std::pair<size_t, In<int64_t>>>& asked) {
  const SampledGraph sample = sample_of(nodes, edges, degrees);
  std::vector<Forward::Asked> each;
  // Copies: the caller's other threads may write theirs after they were checked.
  std::vector<std::vector<int64_t>> positions;
  positions.reserve(asked.size());
  nb::list results;
  for (const auto& [output, at] : asked) {
    positions.push_back(vector_of(at));
    auto out = rows<float>(positions.back().size(), self.program().output_width(output));
    each.push_back({output, positions.back(), out.data()});
    results.append(nb::cast(out));
  }
  run(true, [&] { self.run(sample, each); });
  return results;
}

PyType_Slot forward_slots[] = {{Py_tp_traverse, reinterpret_cast<void*>(traverse_functions<Forward>)},
                               {Py_tp_clear, reinterpret_cast<void*>(clear_functions<Forward>)},
                               {0, nullptr}};

}  // namespace

void bind_forward(nb::module_& module) {
  static nb::object sampled_graph_error =
      nb::steal(PyErr_NewException("livegnn._core.SampledGraphError", PyExc_ValueError, nullptr));
  module.attr("SampledGraphError") = sampled_graph_error;
  nb::register_exception_translator([](const std::exception_ptr& pointer, void*) {
    try {
      std::rethrow_exception(pointer);
    } catch (const BadSampledGraph& error) {
      nb::tuple args = nb::make_tuple(static_cast<int>(error.kind), error.type, error.position);
      PyErr_SetObject(sampled_graph_error.ptr(), args.ptr());
    }
  });

  nb::class_<Forward>(module, "Forward", nb::type_slots(forward_slots))
      .def("__init__",
           [](Forward* self, Program& program, const std::vector<std::tuple<uint32_t, uint32_t, bool>>& edge_types) {
             std::vector<Forward::EdgeType> types;
             for (const auto& [source, target, keyed] : edge_types) types.push_back({source, target, keyed});
             new (self) Forward(std::move(program), std::move(types));
           })
      .def("predict", &predict_forward, nb::arg(), nb::arg(), nb::arg(), nb::arg())
      .def_prop_ro("last_bytes", &Forward::last_bytes)
      .def_prop_ro("held_bytes", &Forward::held_bytes)
      .def("release", &Forward::release);
}

}  // namespace livegnn::bindings
