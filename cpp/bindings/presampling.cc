#include <nanobind/stl/vector.h>

#include <utility>

#include "bindings/locks.h"
#include "bindings/module.h"
#include "bindings/subgraph.h"
#include "presampling/held_presampling.h"

namespace livegnn::bindings {
namespace {

void make(HeldPresampling* self, const Graph& graph, uint32_t seed_type, const std::vector<GivenOneHop>& given,
          uint64_t seed, size_t threads) {
  std::vector<OneHopRequest> requests;
  for (const auto& [edge_type, incoming, count, by, parents] : given) {
    requests.push_back({edge_type, incoming, count, static_cast<SampleBy>(by), parents});
  }
  as_writer([&] { new (self) HeldPresampling(graph, seed_type, std::move(requests), seed, threads); });
}

nb::tuple sample(HeldPresampling& self, const GivenIds& ids, bool attributes, bool named) {
  const Graph& graph = self.graph();
  Subgraph out;
  std::vector<DrawnIds> drawn;
  const uint64_t most = self.plan().max_feature_lookups();
  const size_t size = most > kQuick ? SIZE_MAX : count_of(ids) * static_cast<size_t>(most);
  read(graph, size, [&] {
    std::vector<int64_t> numbers(count_of(ids));
    for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = number_of(graph, ids, i);
    out = self.take()->sample(numbers, attributes);
    for (auto& type : out.nodes) drawn.emplace_back(graph, named, std::move(type.ids));
  });
  return given(graph, std::move(out), std::move(drawn), attributes);
}

// For benchmarks: the sample of each node by itself, put together and thrown away, without Python between them. Returns
// the number of edges.
size_t sample_each(HeldPresampling& self, const In<int64_t>& ids, bool attributes) {
  return read(self.graph(), SIZE_MAX, [&] {
    SampleAssembly assembly(self);
    size_t edges = 0;
    for (size_t i = 0; i < ids.shape(0); ++i) {
      const Subgraph out = assembly.sample({ids.data() + i, 1}, attributes);
      for (const auto& type : out.edges) edges += type.row.size();
    }
    return edges;
  });
}

}  // namespace

void bind_presampling(nb::module_& module) {
  nb::class_<HeldPresampling, View>(module, "Presampling")
      .def("__init__", &make, nb::keep_alive<1, 2>())
      .def("sample", &sample)
      .def("sample_each", &sample_each)
      .def("num_redraws", &PresamplingView::num_redraws)
      .def("check", [](const HeldPresampling& self) { as_writer([&] { self.check(); }); });
}

}  // namespace livegnn::bindings
