#include <nanobind/stl/vector.h>

#include <utility>

#include "bindings/arrays.h"
#include "bindings/locks.h"
#include "bindings/module.h"
#include "bindings/saved_arrays.h"
#include "inference/changed_scores.h"
#include "inference/engine_view.h"
#include "inference/evaluation/edge_scores.h"
#include "views/degree_histogram.h"

namespace livegnn::bindings {
namespace {

// The engine may hold functions that refer to the view, so the garbage collector must traverse it.
struct HeldEngineView : EngineView {
  explicit HeldEngineView(nb::object engine) : EngineView(nb::cast<Engine&>(engine)), engine(std::move(engine)) {}
  void commit() noexcept override {
    EngineView::commit();
    ++commits;
  }
  void commit_growth() noexcept override {
    EngineView::commit_growth();
    ++commits;  // what was prepared before is no longer of the graph
  }
  nb::object engine;
  size_t commits = 0;  // batches and growths
  nb::object outcome;  // of the last of these that was asked for; whoever was interrupted asks again
  size_t outcome_of = 0;
};

int traverse_view(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  if (nb::inst_ready(self)) Py_VISIT(nb::inst_ptr<HeldEngineView>(self)->engine.ptr());
  return 0;
}

int clear_view(PyObject* self) {
  if (nb::inst_ready(self)) nb::inst_ptr<HeldEngineView>(self)->engine.reset();
  return 0;
}

PyType_Slot view_slots[] = {{Py_tp_traverse, reinterpret_cast<void*>(traverse_view)},
                            {Py_tp_clear, reinterpret_cast<void*>(clear_view)},
                            {0, nullptr}};

nb::object to_arrays(EdgeIds&& edges) {
  return nb::make_tuple(given(std::move(edges.sources)), given(std::move(edges.targets)), given(std::move(edges.keys)));
}

// How many edges of an edge output the prepared batch reaches; what it changes (sources, targets and keys of edges, and
// their rows) and removes (sources, targets and keys), or None if more than `most` are reached.
nb::object find_changed_scores(const HeldEngineView& self, size_t edge_output, size_t most) {
  const auto& engine = nb::cast<const Engine&>(self.engine);
  ChangedScores found;
  as_writer([&] { found = changed_scores(engine, self.prepared(), edge_output, most); });
  if (!found.complete) return nb::make_tuple(found.reached, nb::none());
  const size_t count = found.edges.size(), width = edge_output_width(engine.program(), edge_output);
  auto rows = given(std::move(found.rows), count, width);
  return nb::make_tuple(found.reached, nb::make_tuple(to_arrays(std::move(found.edges)), std::move(rows),
                                                      to_arrays(std::move(found.removed))));
}

void bind_engine_view(nb::module_& module) {
  static nb::object not_finite = nb::steal(PyErr_NewException("livegnn._core.NotFiniteError", nullptr, nullptr));
  module.attr("NotFiniteError") = not_finite;
  nb::register_exception_translator([](const std::exception_ptr& pointer, void*) {
    try {
      std::rethrow_exception(pointer);
    } catch (const NotFinite& error) {
      nb::tuple args = nb::make_tuple(error.node_type, error.node, error.step);
      PyErr_SetObject(not_finite.ptr(), args.ptr());
    }
  });
  nb::class_<HeldEngineView, View>(module, "EngineView", nb::type_slots(view_slots))
      .def(nb::init<nb::object>())
      // One call, because a batch of one event takes microseconds.
      .def("prepare_batch",
           [](HeldEngineView& self, const Graph& graph, const Delta& delta, bool settled, bool trusted) {
             self.expect(settled, trusted);
             as_writer([&] { self.prepare(Change(graph, delta)); });
           })
      // The result of the last batch: ids of nodes whose prediction changed, whether it was only marked, and its work.
      .def("outcome",
           [](HeldEngineView& self) {
             if (self.outcome_of != self.commits) {
               const Prepared& done = self.prepared();
               self.outcome = nb::make_tuple(
                   given(self.take_changed_ids()), done.marked,
                   nb::make_tuple(done.affected, done.edges_touched, done.nodes_touched, done.recomputed));
               self.outcome_of = self.commits;
             }
             return self.outcome;
           })
      .def("watch", [](HeldEngineView& self, std::vector<size_t> outputs) { self.watch(std::move(outputs)); })
      // Indices of nodes; it may be called between a batch's commit and the next batch.
      .def("changed_rows", [](const HeldEngineView& self, size_t watched) { return copy(self.changed_rows(watched)); })
      .def("changed_scores", &find_changed_scores)
      .def_ro("commits", &HeldEngineView::commits);
}

}  // namespace

void bind_views(nb::module_& module) {
  nb::class_<View>(module, "View")
      .def("prepare", [](View& self, const Graph& graph,
                         const Delta& delta) { as_writer([&] { self.prepare(Change(graph, delta)); }); })
      .def("abandon", [](View& self) { as_writer([&] { self.abandon(); }); })
      .def("save",
           [](const View& self) {
             Arrays arrays;
             as_writer([&] { self.save(&arrays); });
             return to_python(std::move(arrays));
           })
      .def("load",
           [](View& self, const nb::dict& arrays) {
             const auto views = from_python(arrays);
             as_writer([&] { self.load(views); });
           })
      .def("bytes", &View::bytes);
  bind_engine_view(module);
  nb::class_<DegreeHistogram, View>(module, "DegreeHistogram")
      .def(nb::init<const Graph&, uint32_t>())
      .def("counts", [](const DegreeHistogram& self, const Graph& graph) {
        return given(read(graph, 1, [&] { return self.counts(); }));
      });
}

}  // namespace livegnn::bindings
