#include "inference/engine.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <string_view>
#include <tuple>
#include <utility>

#include "bindings/arrays.h"
#include "bindings/ids.h"
#include "bindings/locks.h"
#include "bindings/module.h"
#include "bindings/prediction_work.h"
#include "bindings/row_call.h"
#include "inference/batch_reach.h"
#include "json/few_rows.h"

namespace livegnn::bindings {
namespace {

PyType_Slot engine_slots[] = {{Py_tp_traverse, reinterpret_cast<void*>(traverse_functions<Engine>)},
                              {Py_tp_clear, reinterpret_cast<void*>(clear_functions<Engine>)},
                              {0, nullptr}};

// The kept rows of a value; as type T if its rows hold the bits of Ts. Only the one writer may call it.
template <class T>
OutRows<T> read_value(const Engine& engine, uint32_t value) {
  static_assert(sizeof(T) == sizeof(float));
  std::vector<T> all;
  const size_t width = engine.program().values[value].width;
  const size_t count = as_writer([&] {
    const Rows table = engine.state().rows.kept_rows(value);
    const std::vector<uint32_t> slots = engine.state().rows.slots(value);
    all.reserve(slots.size() * width);
    for (uint32_t slot : slots) {
      const T* const row = reinterpret_cast<const T*>(table.row(slot));
      all.insert(all.end(), row, row + width);
    }
    return slots.size();
  });
  return given(std::move(all), count, width);
}

uint32_t counts_of(const Engine& engine, size_t propagation) {
  const uint32_t value = engine.program().propagations.at(propagation).counts;
  if (value == kNoIndex) throw std::runtime_error("counts are kept of a maximum, got a sum");
  return value;
}

// The rows of an output, or the position of the first id that is not a node; None of an engine that the graph goes on
// without.
nb::object predict(const Engine& engine, const GivenIds& ids, size_t output) {
  const size_t count = count_of(ids);
  auto out = rows<float>(count, engine.output_width(output));
  bool retired = false;
  const size_t known = read(
      engine.graph(), [&] { return prediction_work(engine, count, output); },
      [&] {
        retired = engine.retired();
        if (retired) return size_t{0};
        const auto [nodes, known] = indices_of(engine.graph(), engine.program().output_type(output), ids);
        if (known == count) engine.predict(nodes, out.data(), output);
        return known;
      });
  if (retired) return nb::none();
  return known == count ? nb::cast(out) : nb::cast(known);
}

// The same; None as well if one of these nodes does not exist, or if it would have to wait or may take long.
nb::object predict_at_once(const Engine& engine, const GivenIds& ids, size_t output) {
  const size_t count = count_of(ids);
  auto out = rows<float>(count, engine.output_width(output));
  const bool done = try_read(engine.graph(), [&] {
    if (engine.retired() || prediction_work(engine, count, output) > kQuick) return false;
    const auto [nodes, known] = indices_of(engine.graph(), engine.program().output_type(output), ids);
    if (known == count) engine.predict(nodes, out.data(), output);
    return known == count;
  });
  return done ? nb::cast(out) : nb::none();
}

// The answer to a request in one of the usual forms (json/few_rows.h), if its rows can be read at once and are at most
// `most` numbers; else none. parameters: whether it is those of an address, and not a body. seq: the event that the
// rows show.
nb::object answer_at_once(const Engine& engine, const nb::bytes& request, bool parameters, size_t output, int64_t seq,
                          size_t most) {
  const Graph& graph = engine.graph();
  const bool are_texts = graph.texts != nullptr;
  const std::string_view text(request.c_str(), request.size());
  const auto ids = parameters ? read_parameters(text, are_texts) : read_body(text, are_texts);
  const size_t width = engine.output_width(output);
  if (!ids || ids->min_seq > seq || ids->count * width > most) return nb::none();
  std::vector<float> rows(ids->count * width);
  const bool done = try_read(graph, [&] {
    if (engine.retired() || prediction_work(engine, ids->count, output) > kQuick) return false;
    const auto& map = graph.nodes[engine.program().output_type(output)].ids;
    std::vector<uint32_t> nodes(ids->count);
    for (size_t i = 0; i < ids->count; ++i) {
      nodes[i] = map.index_of(are_texts ? graph.texts->find(ids->texts[i]) : ids->numbers[i]);
      if (nodes[i] == kNoIndex) return false;
    }
    engine.predict(nodes, rows.data(), output);
    return true;
  });
  if (!done) return nb::none();
  const std::string answer = write_answer(seq, *ids, are_texts, rows);
  return nb::bytes(answer.data(), answer.size());
}

void bind_prepared(nb::module_& module) {
  nb::class_<Prepared>(module, "Prepared")
      .def_ro("affected", &Prepared::affected)
      .def_ro("edges_touched", &Prepared::edges_touched)
      .def_ro("nodes_touched", &Prepared::nodes_touched)
      .def_ro("recomputed", &Prepared::recomputed)
      .def_ro("marked", &Prepared::marked)
      .def("work",
           [](const Prepared& self) {
             return nb::make_tuple(self.affected, self.edges_touched, self.nodes_touched, self.recomputed);
           })
      .def("lost", [](const Prepared& self) { return nb::make_tuple(self.lost_type, self.lost, self.lost_step); })
      .def("changed", [](const Prepared& self) { return copy(self.changed); });
}

void bind_batches(nb::class_<Engine>& engine) {
  engine.def("set_recompute", &Engine::set_recompute)
      .def("set_guard", &Engine::set_guard)
      .def("initialize",
           [](Engine& self) {
             // Without a lock: functions of the user run, and no other thread commits.
             as_writer([&] { self.initialize(); });
           })
      .def("take", [](Engine& self, Engine& from) { return self.take(&from); })
      // together: whether all parts of the graph prepare it.
      .def("prepare",
           [](Engine& self, const Delta& delta, Prepared& prepared, bool together) {
             if (self.graph().part != nullptr && !together) {
               throw std::runtime_error("a part of a graph prepares only batches that all parts prepare");
             }
             as_writer([&] { self.prepare(delta, &prepared); });
             return prepared.lost == kNoIndex;
           })
      .def(
          "new_prepared", [](const Engine& self) { return self.new_prepared(); }, nb::keep_alive<0, 1>())
      .def("reach",
           [](const Engine& self, const Delta& delta) {
             const BatchReach reach = as_writer([&] { return reach_of(self.graph(), self.program(), delta); });
             return nb::make_tuple(reach.predictions, reach.rows, reach.edges);
           })
      .def("be_lazy", &Engine::be_lazy)
      .def("retire", &Engine::retire)
      .def("settle", [](Engine& self) { as_writer([&] { self.settle(); }); })
      .def("show_current", [](Engine& self) { as_writer([&] { self.show_current(); }); })
      .def("show_base", [](Engine& self) { as_writer([&] { self.show_base(); }); })
      .def("outgrown_by", &Engine::outgrown_by)
      .def("pending", &Engine::pending)
      .def("work",
           [](const Engine& self) {
             const LazyWork work = as_writer([&] { return self.work(); });
             return nb::make_tuple(work.rows, work.edges, work.recomputed);
           })
      .def("lazy_bytes", [](const Engine& self) {
        return as_writer([&] { return std::make_pair(self.overlay_bytes(), self.record_bytes()); });
      });
}

void bind_rows(nb::class_<Engine>& engine) {
  engine.def("predict", &predict)
      .def("predict_at_once", &predict_at_once)
      .def("answer_at_once", &answer_at_once)
      .def("predict_prepared",
           [](const Engine& self, const Prepared& prepared, In<uint32_t> nodes, size_t output) {
             auto out = rows<float>(nodes.shape(0), self.output_width(output));
             as_writer([&] { self.predict_prepared(prepared, {nodes.data(), nodes.shape(0)}, out.data(), output); });
             return out;
           })
      .def("evaluate",
           [](Engine& self, size_t on_demand) {
             const RowsStep& step = self.program().on_demand[on_demand];
             auto out = rows<float>(self.graph().nodes[step.node_type].ids.capacity(),
                                    step.registers[step.sinks[0].reg].width);
             as_writer([&] { self.evaluate(on_demand, out.data()); });
             return out;
           })
      .def("read", [](const Engine& self, uint32_t value) { return read_value<float>(self, value); })
      .def("write", [](Engine& self, uint32_t value, InRows<float> from) {
        if (!self.load_rows(value, from.data(), from.shape(0), from.shape(1))) {
          throw std::runtime_error("a value whose shape does not fit the graph");
        }
      });
}

// Bounds on rounding, and the results of scrubs.
void bind_rounding(nb::class_<Engine>& engine) {
  engine
      .def("moments",
           [](const Engine& self) {
             const Moments moments = self.moments();
             return nb::make_tuple(moments.batches, moments.measured, moments.touched);
           })
      .def("set_moments", [](Engine& self, size_t batches, size_t measured,
                             size_t touched) { self.load_moments({batches, measured, touched}); })
      .def("counts", [](const Engine& self,
                        size_t propagation) { return read_value<uint32_t>(self, counts_of(self, propagation)); })
      .def("set_counts",
           [](Engine& self, size_t propagation, InRows<uint32_t> from) {
             const auto* bits = reinterpret_cast<const float*>(from.data());
             if (!self.load_rows(counts_of(self, propagation), bits, from.shape(0), from.shape(1))) {
               throw std::runtime_error("counts whose shape does not fit the graph");
             }
           })
      .def("scrub",
           [](Engine& self, size_t propagation, In<uint32_t> nodes) {
             const auto seen = as_writer([&] { return self.scrub(propagation, {nodes.data(), nodes.shape(0)}); });
             return nb::make_tuple(seen.difference, seen.not_finite);
           })
      .def("scrub_rows",
           [](Engine& self, uint32_t value, In<uint32_t> nodes) {
             const auto seen = as_writer([&] { return self.scrub_rows(value, {nodes.data(), nodes.shape(0)}); });
             return nb::make_tuple(seen.difference, seen.not_finite);
           })
      .def("scrub_context", [](Engine& self, size_t context, In<uint32_t> nodes) {
        const auto seen = as_writer([&] { return self.scrub_context(context, {nodes.data(), nodes.shape(0)}); });
        return nb::make_tuple(seen.difference, seen.not_finite);
      });
}

}  // namespace

void bind_engine(nb::module_& module) {
  bind_prepared(module);
  nb::class_<Engine> engine(module, "Engine", nb::type_slots(engine_slots));
  engine.def(
      "__init__",
      [](Engine* self, const Graph& graph, Program& program, size_t threads, const std::string& directory,
         size_t keep_degree) { new (self) Engine(graph, std::move(program), threads, directory, keep_degree); },
      nb::keep_alive<1, 2>());
  bind_batches(engine);
  bind_rows(engine);
  bind_rounding(engine);
  bind_edge_scores(engine);
  engine.def("bytes", [](const Engine& self, uint32_t value) { return self.state().bytes(value); })
      .def("program_bytes", [](const Engine& self) { return self.state().program_bytes(); })
      .def("errors_bytes", [](const Engine& self) { return self.state().errors_bytes(); })
      .def("residents_bytes", [](const Engine& self) { return self.state().kept_nodes_bytes(); })
      .def("slots_bytes", [](const Engine& self) { return self.state().slots_bytes(); })
      .def("sums_bytes", [](const Engine& self) { return self.state().sums_bytes(); })
      .def("mapped_bytes", [](const Engine& self) { return self.state().mapped_bytes(); });
}

}  // namespace livegnn::bindings
