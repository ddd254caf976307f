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
#include "bindings/raised.h"
#include "store/stage.h"
#include "views/commit.h"

namespace livegnn::bindings {
namespace {

// Source, target, weighted, timed, undirected, accumulate, in_lists, capacity, slack, width, expires, keyed.
using EdgeTypeTuple =
    std::tuple<uint32_t, uint32_t, bool, bool, bool, bool, bool, uint32_t, uint32_t, size_t, bool, bool>;

std::vector<EdgeTypeSpec> specs_of(const std::vector<EdgeTypeTuple>& edge_types) {
  std::vector<EdgeTypeSpec> specs;
  for (const auto& [source, target, weighted, timed, undirected, accumulate, in_lists, capacity, slack, width, expires,
                    keyed] : edge_types) {
    specs.push_back({source,
                     target,
                     {{weighted, timed, width > 0}, undirected, accumulate, in_lists, {capacity, slack}, keyed},
                     width,
                     expires});
  }
  return specs;
}

// Calls a method of a batch while an error may be set aside in `raised`; returns whether it raised none.
bool call_of(nb::handle batch, const char* method, Raised* raised) {
  return raised->none_of(call_method(batch, nb::str(method).ptr()));
}

// As `apply_batch`, of a growth of the schema: `batch` is a livegnn.graph.transaction.Transaction, whose `schema`
// the graph gets together with the types and columns.
void grow_graph(Graph& self, std::vector<std::vector<float>> columns, std::vector<size_t> widths,
                const std::vector<EdgeTypeTuple>& edge_types, const std::vector<View*>& views, nb::handle graph,
                nb::handle batch, nb::handle readers) {
  const GraphGrowth growth{std::move(columns), std::move(widths), specs_of(edge_types)};
  as_writer([&] {
    self.abandon();
    for (View* view : views) view->abandon();
    prepare_growth(&self, growth, views);
  });
  Raised raised;
  bool ready = call_of(batch, "prepare_views", &raised);
  if (ready && !readers.is_none()) ready = call_of(readers, "acquire", &raised);
  if (!ready) {
    as_writer([&] { self.abandon_growth(); });
    raised.restore();
    nb::raise_python_error();
  }
  as_writer([&] { commit_growth(&self, views); });
  PyObject_SetAttrString(graph.ptr(), "schema", nb::steal(PyObject_GetAttrString(batch.ptr(), "schema")).ptr());
  PyObject_SetAttrString(graph.ptr(), "seq", nb::steal(PyObject_GetAttrString(batch.ptr(), "seq")).ptr());
  PyObject_SetAttrString(batch.ptr(), "committed", Py_True);
  const nb::str commit_views("commit_views");
  raised.none_of_two([&] { return call_method(batch, commit_views.ptr()); });
  if (!readers.is_none()) call_of(readers, "release", &raised);
  if (raised.restore()) nb::raise_python_error();
}

// Changes nothing, of a graph that will have so many types.
Delta no_changes(const Graph& graph, size_t node_types, size_t edge_types) {
  Delta delta;
  delta.nodes.resize(node_types);
  for (size_t n = 0; n < graph.nodes.size(); ++n) delta.nodes[n].capacity = graph.nodes[n].ids.capacity();
  delta.edges.resize(edge_types);
  delta.edge_features.resize(edge_types);
  return delta;
}

// Prepares a batch and makes it visible, or leaves everything as it was: one call, so that no exception from outside
// comes between the last thing that may fail and the commit, or between the commit and its number. `graph` gets the
// number of `batch`, a livegnn.graph.transaction.Transaction, whose functions for views go on where they were left, and
// are called once more if they raise. `readers`: a lock to hold until all views show the batch, or None.
void apply_batch(Graph& self, const Delta& delta, const std::vector<View*>& views, nb::handle graph, nb::handle batch,
                 nb::handle readers) {
  const auto abandon = [&] {
    for (View* view : views) view->abandon();
    self.abandon();
  };
  as_writer([&] {
    self.abandon();  // a batch that was neither committed nor abandoned
    try {
      self.prepare(delta);
    } catch (...) {
      abandon();
      throw;
    }
  });
  static PyObject* const acquire = PyUnicode_InternFromString("acquire");
  static PyObject* const release = PyUnicode_InternFromString("release");
  static PyObject* const prepare_views = PyUnicode_InternFromString("prepare_views");
  static PyObject* const abandon_views = PyUnicode_InternFromString("abandon_views");
  static PyObject* const commit_views = PyUnicode_InternFromString("commit_views");
  static PyObject* const committed = PyUnicode_InternFromString("committed");
  static PyObject* const seq = PyUnicode_InternFromString("seq");
  Raised raised;
  bool ready = raised.none_of(call_method(batch, prepare_views));
  if (ready && !readers.is_none()) {
    ready = raised.none_of(call_method(readers, acquire));
  }
  if (!ready) {
    raised.none_of_two([&] { return call_method(batch, abandon_views); });
    as_writer(abandon);
    raised.restore();
    nb::raise_python_error();
  }
  as_writer([&] { commit(&self, delta, views); });
  PyObject_SetAttr(graph.ptr(), seq, nb::steal(PyObject_GetAttr(batch.ptr(), seq)).ptr());
  PyObject_SetAttr(batch.ptr(), committed, Py_True);
  raised.none_of_two([&] { return call_method(batch, commit_views); });
  if (!readers.is_none()) raised.none_of(call_method(readers, release));
  if (raised.restore()) nb::raise_python_error();
}

}  // namespace

void bind_graph(nb::module_& module) {
  nb::class_<Graph> graph(module, "Graph");
  graph
      .def("__init__",
           [](Graph* self, const std::vector<size_t>& widths, const std::vector<EdgeTypeTuple>& edge_types,
              size_t threads, const std::string& features_directory, const std::vector<uint32_t>& timed_features) {
             new (self) Graph(widths, specs_of(edge_types), threads, features_directory, timed_features);
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
      .def("apply", &apply_batch, nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg().none())
      .def("grow", &grow_graph, nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg().none())
      .def("no_changes", &no_changes)
      .def("keep_narrower",
           [](Graph& self, uint32_t type, size_t width) { as_writer([&] { self.keep_narrower(type, width); }); })
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
          types.append(nb::make_tuple(type.ids.bytes(), type.features.bytes() + type.times.bytes(),
                                      type.features.mapped_bytes()));
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
