#include <nanobind/stl/vector.h>

#include <utility>

#include "bindings/locks.h"
#include "bindings/module.h"
#include "bindings/subgraph.h"
#include "presampling/sampled_predictions.h"
#include "presampling/view/held_presampling.h"

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

// The amount of work of a sample for each of so many seeds.
size_t sample_work(const HeldPresampling& self, size_t seeds) {
  const uint64_t most = self.plan().max_feature_lookups();
  return most > kQuick ? SIZE_MAX : seeds * static_cast<size_t>(most);
}

nb::tuple sample(HeldPresampling& self, const GivenIds& ids, bool attributes, bool named) {
  const Graph& graph = self.graph();
  Subgraph out;
  std::vector<DrawnIds> drawn;
  read(graph, sample_work(self, count_of(ids)), [&] {
    std::vector<int64_t> numbers(count_of(ids));
    for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = number_of(graph, ids, i);
    out = self.take()->sample(numbers, attributes);
    for (auto& type : out.nodes) drawn.emplace_back(graph, named, std::move(type.ids));
  });
  return given(graph, std::move(out), std::move(drawn), attributes);
}

// The sample of each node by itself, all of one moment.
nb::list samples(HeldPresampling& self, const GivenIds& ids, bool attributes, bool named) {
  const Graph& graph = self.graph();
  std::vector<Subgraph> all(count_of(ids));
  std::vector<std::vector<DrawnIds>> drawn(all.size());
  read(graph, sample_work(self, all.size()), [&] {
    const auto assembly = self.take();
    for (size_t i = 0; i < all.size(); ++i) {
      const int64_t number = number_of(graph, ids, i);
      if (graph.nodes[self.plan().seed_type()].ids.index_of(number) == kNoIndex) {
        throw SampleError(BadSample::kUnknownNode, "no such node", self.plan().seed_type(), i);
      }
      all[i] = assembly->sample({&number, 1}, attributes);
      for (auto& type : all[i].nodes) drawn[i].emplace_back(graph, named, std::move(type.ids));
    }
  });
  nb::list out;
  for (size_t i = 0; i < all.size(); ++i) {
    out.append(given(graph, std::move(all[i]), std::move(drawn[i]), attributes));
  }
  return out;
}

// The prediction of each node on its own sample, all of one moment; and how many there are, or the position of the
// first node that is not in the graph, or else of the first whose sample cannot be computed.
nb::tuple predict_presampled(HeldPresampling& self, const Forward& forward, size_t output,
                             std::vector<uint32_t> node_types, std::vector<uint32_t> edge_types, const GivenIds& ids) {
  const Graph& graph = self.graph();
  const size_t count = count_of(ids);
  SampledPredictions predictions(forward, output, {std::move(node_types), std::move(edge_types)});
  auto out = rows<float>(count, predictions.width());
  size_t done = 0;
  read(graph, predictions.work(sample_work(self, count)), [&] {
    std::vector<int64_t> numbers(count);
    for (; done < count; ++done) {
      numbers[done] = number_of(graph, ids, done);
      if (graph.nodes[self.plan().seed_type()].ids.index_of(numbers[done]) == kNoIndex) return;
    }
    done = predictions.predict(self.take().get(), numbers, out.data());
  });
  return nb::make_tuple(out, done);
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
      .def("samples", &samples)
      .def("predict", &predict_presampled)
      .def("sample_each", &sample_each)
      .def("num_redraws", &PresamplingView::num_redraws)
      .def("check", [](const HeldPresampling& self) { as_writer([&] { self.check(); }); });
}

}  // namespace livegnn::bindings
