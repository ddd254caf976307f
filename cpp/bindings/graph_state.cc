// Converts the exact state of a graph to arrays, and back.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/tuple.h>

#include <optional>
#include <tuple>
#include <utility>

#include "bindings/arrays.h"
#include "bindings/locks.h"
#include "bindings/module.h"
#include "bindings/table_rows.h"
#include "store/graph.h"

namespace livegnn::bindings {
namespace {

template <class Id>
nb::tuple columns_out(typename Samtrees<Id>::Saved&& columns) {
  return nb::make_tuple(given(std::move(columns.shape)), given(std::move(columns.keys)), given(std::move(columns.ids)),
                        given(std::move(columns.weights)), given(std::move(columns.times)),
                        given(std::move(columns.rows)), given(std::move(columns.sums)),
                        given(std::move(columns.orders)));
}

// Without sums or orders, the state was saved before these were.
template <class Id>
using ColumnsIn = std::tuple<In<uint32_t>, In<Id>, In<Id>, In<float>, In<double>, In<uint32_t>,
                             std::optional<In<double>>, std::optional<In<uint64_t>>>;

template <class Id>
typename Samtrees<Id>::Saved columns_in(const ColumnsIn<Id>& from) {
  const auto& [shape, keys, ids, weights, times, rows, sums, orders] = from;
  typename Samtrees<Id>::Saved to{
      vector_of(shape), vector_of(keys), vector_of(ids), vector_of(weights), vector_of(times), vector_of(rows), {}, {}};
  to.has_sums = sums.has_value(), to.has_orders = orders.has_value();
  if (sums) to.sums = vector_of(*sums);
  if (orders) to.orders = vector_of(*orders);
  return to;
}

template <class Id>
void load_edges(Graph& graph, uint32_t type, const ColumnsIn<Id>& out, const ColumnsIn<Id>& in, size_t num_edges) {
  as_writer([&] { graph.load_edges(type, columns_in<Id>(out), columns_in<Id>(in), num_edges); });
}

}  // namespace

void bind_graph_state(nb::class_<Graph>& graph) {
  graph
      .def("save_nodes",
           [](const Graph& self, uint32_t type) {
             const auto& nodes = self.nodes[type];
             auto [ids, free] = as_writer([&] { return std::make_pair(nodes.ids.ids(), nodes.ids.free_list()); });
             return nb::make_tuple(given(std::move(ids)), given(std::move(free)));
           })
      // The features of all nodes by index, or, of a part that holds some alone, those of the nodes `held`, ascending.
      .def("save_features", [](const Graph& self, uint32_t type) { return read_all_rows(self.nodes[type].features); })
      .def("save_held_features",
           [](const Graph& self, uint32_t type) {
             const NodeFeatures& features = self.nodes[type].features;
             std::vector<uint32_t> held = as_writer([&] { return features.held(); });
             std::vector<float> rows = as_writer([&] { return read_rows(features, held); });
             const size_t count = held.size();
             return nb::make_tuple(given(std::move(held)), given(std::move(rows), count, features.width()));
           })
      .def("load_held_features",
           [](Graph& self, uint32_t type, In<uint32_t> held, InRows<float> x) {
             as_writer([&] {
               self.load_held_features(type, {held.data(), held.shape(0)}, x.data(), x.shape(0), x.shape(1));
             });
           })
      // The times of the features of all indices, in a type whose features have times.
      .def("save_feature_times",
           [](const Graph& self, uint32_t type) {
             return given(as_writer([&] { return std::vector<double>(self.nodes[type].times.values()); }));
           })
      .def("load_feature_times",
           [](Graph& self, uint32_t type, In<double> times) {
             as_writer([&] { self.load_feature_times(type, vector_of(times)); });
           })
      .def("shares_features", [](const Graph& self) { return self.shares_features(); })
      .def("load_nodes",
           [](Graph& self, uint32_t type, In<int64_t> ids, In<uint32_t> free, InRows<float> x) {
             as_writer(
                 [&] { self.load_nodes(type, vector_of(ids), vector_of(free), x.data(), x.shape(0), x.shape(1)); });
           })
      .def("save_edges",
           [](const Graph& self, uint32_t type) {
             const GraphStore& store = *self.edges[type].store;
             if (store.options().keyed) {
               auto [out, in] =
                   as_writer([&] { return std::make_pair(store.save_keyed_out(), store.save_keyed_in()); });
               return nb::make_tuple(columns_out<uint64_t>(std::move(out)), columns_out<uint64_t>(std::move(in)));
             }
             auto [out, in] = as_writer([&] { return std::make_pair(store.save_out(), store.save_in()); });
             return nb::make_tuple(columns_out<uint32_t>(std::move(out)), columns_out<uint32_t>(std::move(in)));
           })
      .def("load_edges", &load_edges<uint32_t>)
      .def("load_keyed_edges", &load_edges<uint64_t>)
      .def("save_edge_features",
           [](const Graph& self, uint32_t type) {
             const EdgeFeatures& features = self.edges[type].features;
             return nb::make_tuple(copy(features.free_list()), read_all_rows(features.table()));
           })
      .def("load_edge_features", [](Graph& self, uint32_t type, In<uint32_t> free, InRows<float> x) {
        as_writer([&] { self.load_edge_features(type, x.data(), x.shape(0), x.shape(1), vector_of(free)); });
      });
}

}  // namespace livegnn::bindings
