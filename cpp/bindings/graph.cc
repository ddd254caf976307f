#include "store/graph.h"

#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings/locks.h"
#include "bindings/module.h"
#include "store/stage.h"
#include "views/commit.h"

namespace livegnn::bindings {
namespace {

// Source, target, weighted, timed, undirected, accumulate, in_lists, capacity, slack, width, expires, keyed.
using EdgeTypeTuple =
    std::tuple<uint32_t, uint32_t, bool, bool, bool, bool, bool, uint32_t, uint32_t, size_t, bool, bool>;

}  // namespace

void bind_graph(nb::module_& module) {
  nb::class_<Graph> graph(module, "Graph");
  graph
      .def("__init__",
           [](Graph* self, const std::vector<size_t>& widths, const std::vector<EdgeTypeTuple>& edge_types,
              size_t threads, const std::string& features_directory) {
             std::vector<EdgeTypeSpec> specs;
             for (const auto& [source, target, weighted, timed, undirected, accumulate, in_lists, capacity, slack,
                               width, expires, keyed] : edge_types) {
               specs.push_back(
                   {source,
                    target,
                    {{weighted, timed, width > 0}, undirected, accumulate, in_lists, {capacity, slack}, keyed},
                    width,
                    expires});
             }
             new (self) Graph(widths, specs, threads, features_directory);
           })
      .def("use_texts", [](Graph& self, std::shared_ptr<TextIds> texts) { self.texts = std::move(texts); })
      .def("prepare",
           [](Graph& self, const Delta& delta) {
             as_writer([&] {
               self.abandon();  // a batch that was neither committed nor abandoned
               self.prepare(delta);
             });
           })
      .def("abandon", [](Graph& self) { as_writer([&] { self.abandon(); }); })
      .def("commit", [](Graph& self, const Delta& delta,
                        const std::vector<View*>& views) { as_writer([&] { commit(&self, delta, views); }); })
      .def_prop_rw(
          "latest_time", [](const Graph& self) { return read(self, 1, [&] { return self.latest_time; }); },
          [](Graph& self, double time) { alone(self, [&] { self.latest_time = time; }, [] {}); })
      .def("check",
           [](const Graph& self) {
             for (const auto& type : self.edges) type.store->check();
           })
      .def("memory", [](const Graph& self) {
        nb::list types, stores;
        for (const auto& type : self.nodes) {
          types.append(nb::make_tuple(type.ids.bytes(), type.features.bytes(), type.features.mapped_bytes()));
        }
        for (const auto& type : self.edges) {
          const auto [lists, batches] = type.store->memory();
          stores.append(nb::make_tuple(lists + type.earliest.bytes(), batches, type.features.bytes(),
                                       type.features.table().mapped_bytes()));
        }
        return nb::make_tuple(types, stores, self.updates_bytes(), self.sampling_bytes.load());
      });
  bind_nodes(graph);
  bind_edges(graph);
  bind_graph_state(graph);
}

}  // namespace livegnn::bindings
