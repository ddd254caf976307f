// Samples of a divided graph: the asker, which is given the answers of the parts, and the parts that answer.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "bindings/arrays.h"
#include "bindings/ids.h"
#include "bindings/locks.h"
#include "bindings/module.h"
#include "bindings/subgraph.h"
#include "sampling/divided_sample.h"

namespace livegnn::bindings {
namespace {

using SeedsByType = std::vector<std::pair<uint32_t, GivenIds>>;
using GivenAnswers = std::vector<In<uint8_t>>;

// An array that takes over the frame.
nb::object taken_frame(Frame&& frame) {
  auto held = std::make_unique<Frame>(std::move(frame));
  auto* data = reinterpret_cast<uint8_t*>(held->data());
  const size_t size = held->size();
  nb::capsule owner(held.release(), [](void* p) noexcept { delete static_cast<Frame*>(p); });
  return nb::cast(Out<uint8_t>(data, {size}, owner));
}

nb::list taken_frames(std::vector<Frame>&& frames) {
  nb::list all;
  for (Frame& frame : frames) all.append(taken_frame(std::move(frame)));
  return all;
}

// Frames that Python gives, where their arrays can be read: a copy of those at other addresses.
class GivenFrames {
 public:
  std::span<const std::byte> add(const In<uint8_t>& from) {
    const std::span frame(reinterpret_cast<const std::byte*>(from.data()), from.shape(0));
    if (reinterpret_cast<uintptr_t>(from.data()) % 8 == 0) return frame;
    return *copies_.emplace_back(std::make_unique<Frame>(frame.begin(), frame.end()));
  }
  std::vector<std::span<const std::byte>> add_all(const GivenAnswers& answers) {
    std::vector<std::span<const std::byte>> frames;
    for (const auto& answer : answers) frames.push_back(add(answer));
    return frames;
  }

 private:
  std::vector<std::unique_ptr<Frame>> copies_;
};

std::vector<double> bounds_copied(const std::optional<In<double>>& until) {
  return until ? vector_of(*until) : std::vector<double>();
}

std::unique_ptr<DividedSample> begin_divided(Sampler& sampler, const Graph& graph, const SeedsByType& seeds,
                                             SubgraphRequest request, std::vector<double> until) {
  return read(graph, SIZE_MAX, [&] {
    std::vector<std::pair<uint32_t, std::vector<int64_t>>> numbers;
    for (const auto& [type, ids] : seeds) numbers.emplace_back(type, numbers_of(graph, ids));
    return std::make_unique<DividedSample>(&sampler, graph, std::move(request), std::move(numbers), std::move(until));
  });
}

std::unique_ptr<DividedSample> begin_subgraph(Sampler& sampler, const Graph& graph, const SeedsByType& seeds,
                                              const std::vector<FanOut>& fan_outs, int by, bool replace, bool disjoint,
                                              bool incoming, bool attributes, const std::optional<In<double>>& until,
                                              uint64_t seed, size_t threads) {
  return begin_divided(sampler, graph, seeds,
                       fan_out_request(fan_outs, by, replace, disjoint, incoming, attributes, seed, threads),
                       bounds_copied(until));
}

std::unique_ptr<DividedSample> begin_query(Sampler& sampler, const Graph& graph, const SeedsByType& seeds,
                                           const std::vector<GivenOneHop>& one_hops, bool attributes,
                                           const std::optional<In<double>>& until, uint64_t seed, size_t threads) {
  return begin_divided(sampler, graph, seeds, query_request(one_hops, attributes, seed, threads), bounds_copied(until));
}

// None if the graph has gone on to another batch.
nb::object finish_divided(DividedSample& self, const Graph& graph, bool named) {
  std::optional<Subgraph> out;
  std::vector<DrawnIds> drawn;
  read(graph, SIZE_MAX, [&] {
    out = self.finish();
    if (!out) return;
    for (auto& type : out->nodes) drawn.emplace_back(graph, named, std::move(type.ids));
  });
  return out ? given(graph, std::move(*out), std::move(drawn), self.attributes()) : nb::object(nb::none());
}

std::unique_ptr<DividedNeighbors> begin_neighbors(const Graph& graph, uint32_t edge_type, const GivenIds& ids,
                                                  int32_t count, int by, bool replace, bool incoming,
                                                  const std::optional<In<double>>& until, uint64_t seed) {
  const std::vector<double> bounds = bounds_copied(until);
  return read(graph, SIZE_MAX, [&] {
    const NeighborStrategy strategy{static_cast<SampleBy>(by), replace, count};
    const std::vector<int64_t> numbers = numbers_of(graph, ids);
    return std::make_unique<DividedNeighbors>(
        graph, NeighborRequest{edge_type, incoming, strategy, {true, true, true}, bounds, seed, 1}, numbers);
  });
}

nb::object finish_neighbors(DividedNeighbors& self, const Graph& graph, uint32_t edge_type, const GivenAnswers& answers,
                            bool named) {
  std::optional<NeighborSample> out;
  GivenFrames frames;
  const auto spans = frames.add_all(answers);
  auto drawn = read(graph, SIZE_MAX, [&] {
    out = self.finish(spans);
    return DrawnIds(graph, named, out ? std::move(out->ids) : Column<int64_t>());
  });
  if (!out) return nb::none();
  const EdgeColumns columns = graph.edges[edge_type].spec.options.columns;
  return nb::make_tuple(taken(std::move(out->rowptr)), std::move(drawn).given(),
                        taken_if(columns.weighted, std::move(out->weight)),
                        taken_if(columns.timed, std::move(out->time)), nb::none());
}

}  // namespace

void bind_divided_sampling(nb::module_& module) {
  nb::class_<DividedSample>(module, "DividedSample")
      .def_static("begin_subgraph", &begin_subgraph, nb::keep_alive<0, 1>(), nb::keep_alive<0, 2>(), nb::arg(),
                  nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg(),
                  nb::arg().none(), nb::arg(), nb::arg())
      .def_static("begin_query", &begin_query, nb::keep_alive<0, 1>(), nb::keep_alive<0, 2>(), nb::arg(), nb::arg(),
                  nb::arg(), nb::arg(), nb::arg(), nb::arg().none(), nb::arg(), nb::arg())
      .def("ask",
           [](DividedSample& self, const Graph& graph) {
             auto asked = read(graph, SIZE_MAX, [&] { return self.ask(); });
             return asked ? nb::object(taken_frames(std::move(*asked))) : nb::object(nb::none());
           })
      .def("take",
           [](DividedSample& self, const Graph& graph, const GivenAnswers& answers) {
             GivenFrames frames;
             const auto spans = frames.add_all(answers);
             return read(graph, SIZE_MAX, [&] { return self.take(spans); });
           })
      .def("finish", &finish_divided);
  nb::class_<DividedNeighbors>(module, "DividedNeighbors")
      .def_static("begin", &begin_neighbors, nb::keep_alive<0, 1>(), nb::arg(), nb::arg(), nb::arg(), nb::arg(),
                  nb::arg(), nb::arg(), nb::arg(), nb::arg().none(), nb::arg())
      .def("ask", [](DividedNeighbors& self) { return taken_frames(self.ask()); })
      .def("finish", &finish_neighbors);
  module.def("answer_question", [](Sampler& self, const Graph& graph, const In<uint8_t>& question, size_t threads) {
    GivenFrames frames;
    const auto asked = frames.add(question);
    return taken_frame(read(graph, SIZE_MAX, [&] { return self.answer(asked, threads); }));
  });
  module.def("is_divided", [](const Graph& graph) { return graph.part != nullptr; });
}

}  // namespace livegnn::bindings
