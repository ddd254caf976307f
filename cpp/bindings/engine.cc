#include "inference/engine.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "bindings/arrays.h"
#include "bindings/ids.h"
#include "bindings/locks.h"
#include "program/kernels.h"
#include "program/row_operators.h"

namespace livegnn::bindings {
namespace {

using OpTuple = std::tuple<uint32_t, std::vector<uint32_t>, uint32_t, std::vector<double>, int32_t, int32_t>;
using RegisterTuple = std::tuple<uint32_t, uint32_t, uint32_t>;
using SinkTuple = std::tuple<uint32_t, uint32_t>;
using SourceTuple = std::tuple<uint32_t, uint32_t>;

RowsStep rows_step(uint32_t node_type, std::vector<uint32_t> sources, std::vector<uint32_t> buffers,
                   const std::vector<RegisterTuple>& registers, const std::vector<OpTuple>& ops,
                   const std::vector<SinkTuple>& sinks) {
  RowsStep step{node_type, std::move(sources), std::move(buffers), {}, {}, {}};
  for (const auto& [buffer, column, width] : registers) step.registers.push_back({buffer, column, width});
  for (const auto& [function, inputs, output, settings, first, second] : ops) {
    const RowOperator& made = row_operators().at(function);
    Op op{made.kind, inputs, output,  settings.empty() ? 0.0f : static_cast<float>(settings[0]),
          first,     second, function};
    std::copy_n(settings.begin(), std::min(settings.size(), op.settings.size()), op.settings.begin());
    // Kernels of two inputs take rows that are alike; what is one channel wide is for the operator's own function.
    const uint32_t width = step.registers.at(output).width;
    const bool alike =
        std::all_of(inputs.begin(), inputs.end(), [&](uint32_t in) { return step.registers.at(in).width == width; });
    if (made.group == RowGroup::kElementwise && !alike) op.kind = OpKind::kRowwise;
    step.ops.push_back(std::move(op));
  }
  for (const auto& [reg, value] : sinks) step.sinks.push_back({reg, value});
  return step;
}

constexpr const char* kGroups[] = {"elementwise", "by head", "reduction", "move", "product", "engine"};
constexpr const char* kSettings[] = {"number", "positive", "count", "index", "bound", "choice"};

// Name, group, least and most inputs, settings (name, kind, choices, whether it may be left out, what it is then),
// tensors (role, whether it may be left out), and what it computes.
using SettingTuple = std::tuple<std::string, std::string, std::vector<std::string>, bool, double>;
using TensorTuple = std::tuple<std::string, bool>;
using OperatorTuple =
    std::tuple<std::string, std::string, int, int, std::vector<SettingTuple>, std::vector<TensorTuple>, std::string>;

std::vector<OperatorTuple> list_row_operators() {
  std::vector<OperatorTuple> all;
  for (const RowOperator& made : row_operators()) {
    std::vector<SettingTuple> settings;
    std::vector<TensorTuple> tensors;
    for (const RowSetting& s : made.settings) {
      settings.emplace_back(s.name, kSettings[s.kind], s.choices, s.optional, s.fallback);
    }
    for (const RowTensor& tensor : made.tensors) tensors.emplace_back(tensor.role, tensor.optional);
    all.emplace_back(made.name, kGroups[static_cast<size_t>(made.group)], made.least, made.most, settings, tensors,
                     made.summary);
  }
  return all;
}

// A function of the user's as the engine calls it, from any thread.
struct RowCall {
  nb::callable function;

  void operator()(size_t count, std::span<const float* const> inputs, std::span<const size_t> widths, size_t width,
                  float* out) const {
    nb::gil_scoped_acquire acquire;
    InFunction running;
    nb::list arguments;
    for (size_t i = 0; i < inputs.size(); ++i) {
      auto copied = rows<float>(count, widths[i]);
      std::memcpy(copied.data(), inputs[i], count * widths[i] * sizeof(float));
      arguments.append(nb::cast(copied));
    }
    nb::object result = function(*arguments);
    InRows<float> got;
    if (!nb::try_cast(result, got) || got.shape(0) != count || got.shape(1) != width) {
      const std::string name = nb::cast<std::string>(nb::str(nb::handle(function)));
      throw nb::value_error((name + " must return a float32 array of shape [" + std::to_string(count) + ", " +
                             std::to_string(width) + "], a row for each row that it was given")
                                .c_str());
    }
    std::memcpy(out, got.data(), count * width * sizeof(float));
  }
};

// What the functions know may know the engine: the garbage collector has to see through it.
int traverse_engine(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  if (!nb::inst_ready(self)) return 0;
  for (const RowFunction& function : nb::inst_ptr<Engine>(self)->program().functions) {
    if (const RowCall* call = function.target<RowCall>()) Py_VISIT(call->function.ptr());
  }
  return 0;
}

int clear_engine(PyObject* self) {
  if (!nb::inst_ready(self)) return 0;
  for (const RowFunction& function : nb::inst_ptr<Engine>(self)->program().functions) {
    if (const RowCall* call = function.target<RowCall>()) const_cast<RowCall*>(call)->function.reset();
  }
  return 0;
}

PyType_Slot engine_slots[] = {{Py_tp_traverse, reinterpret_cast<void*>(traverse_engine)},
                              {Py_tp_clear, reinterpret_cast<void*>(clear_engine)},
                              {0, nullptr}};

// The rows that are kept of a value as they are; of type T, if what a row holds are the bits of Ts. For the one writer.
template <class T>
OutRows<T> copy(const Engine& engine, uint32_t value) {
  static_assert(sizeof(T) == sizeof(float));
  std::vector<T> all;
  const size_t width = engine.program().values[value].width;
  const size_t count = as_writer([&] {
    const Rows table = engine.kept_rows(value);
    const std::vector<uint32_t> slots = engine.slots(value);
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

// How much it is to predict so many nodes: what has to be computed from neighbours, by functions of the user's or by a
// lazy engine, or may have to come from a disk, may take long.
size_t size_of(const Engine& engine, size_t count, size_t output) {
  const Program& program = engine.program();
  const uint32_t type = engine.output_type(output);
  const auto [kept, position] = engine.output_at(output);
  if (engine.lazy() || !program.functions.empty() || engine.mapped_bytes() > 0) return SIZE_MAX;
  if (engine.graph().nodes[type].features.file() != nullptr) return SIZE_MAX;
  if (kept) return engine.is_stored(position) ? count : SIZE_MAX;
  for (uint32_t source : program.on_demand[position].sources) {
    if (!engine.is_stored(source)) return SIZE_MAX;
  }
  return count;
}

// Rows of an output, or the position of the first id that names no node.
nb::object predict(const Engine& engine, const GivenIds& ids, size_t output) {
  const size_t count = count_of(ids);
  auto out = rows<float>(count, engine.output_width(output));
  const size_t known = read(
      engine.graph(), [&] { return size_of(engine, count, output); },
      [&] {
        const auto [nodes, known] = indices_of(engine.graph(), engine.output_type(output), ids);
        if (known == count) engine.predict(nodes, out.data(), output);
        return known;
      });
  return known == count ? nb::cast(out) : nb::cast(known);
}

// The same; None if there are not all of these nodes, or if it would have to wait or may take long.
nb::object predict_at_once(const Engine& engine, const GivenIds& ids, size_t output) {
  const size_t count = count_of(ids);
  auto out = rows<float>(count, engine.output_width(output));
  const bool done = try_read(engine.graph(), [&] {
    if (size_of(engine, count, output) > kQuick) return false;
    const auto [nodes, known] = indices_of(engine.graph(), engine.output_type(output), ids);
    if (known == count) engine.predict(nodes, out.data(), output);
    return known == count;
  });
  return done ? nb::cast(out) : nb::none();
}

}  // namespace

void bind_engine(nb::module_& module) {
  module.def("row_operators", &list_row_operators);
  nb::class_<Program>(module, "Program")
      .def(nb::init<>())
      .def("add_value",
           [](Program& self, uint32_t node_type, uint32_t width, bool features, uint32_t slab) {
             self.values.push_back({node_type, width, features, slab, -1});
             return self.values.size() - 1;
           })
      .def("set_derived",
           [](Program& self, uint32_t value, int32_t on_demand) { self.values[value].derived = on_demand; })
      .def("add_weight",
           [](Program& self, InRows<float> weight) {
             FloatBlock packed(packed_size(weight.shape(1), weight.shape(0)));
             pack(weight.shape(1), weight.shape(0), weight.data(), packed.data());
             self.tensors.push_back(std::move(packed));
             return self.tensors.size() - 1;
           })
      .def("add_vector",
           [](Program& self, In<float> values) {
             FloatBlock padded((values.shape(0) + kPanel) / kPanel * kPanel);
             std::memcpy(padded.data(), values.data(), values.shape(0) * sizeof(float));
             self.tensors.push_back(std::move(padded));
             return self.tensors.size() - 1;
           })
      .def("add_rows",
           [](Program& self, uint32_t node_type, std::vector<uint32_t> sources, std::vector<uint32_t> buffers,
              const std::vector<RegisterTuple>& registers, const std::vector<OpTuple>& ops,
              const std::vector<SinkTuple>& sinks) {
             self.order.push_back({Step::kRows, static_cast<uint32_t>(self.rows.size())});
             self.rows.push_back(rows_step(node_type, std::move(sources), std::move(buffers), registers, ops, sinks));
           })
      .def("add_on_demand",
           [](Program& self, uint32_t node_type, std::vector<uint32_t> sources, std::vector<uint32_t> buffers,
              const std::vector<RegisterTuple>& registers, const std::vector<OpTuple>& ops, uint32_t reg) {
             self.on_demand.push_back(
                 rows_step(node_type, std::move(sources), std::move(buffers), registers, ops, {{reg, 0}}));
             return self.on_demand.size() - 1;
           })
      .def("add_propagation",
           [](Program& self, uint32_t edge_type, uint32_t input, uint32_t output, bool maximum, bool weighted,
              bool skip_loops, bool averaged, bool reversed) {
             self.order.push_back({Step::kPropagate, static_cast<uint32_t>(self.propagations.size())});
             self.propagations.push_back({.edge_type = edge_type,
                                          .input = input,
                                          .output = output,
                                          .aggregate = maximum ? Aggregate::kMax : Aggregate::kSum,
                                          .weighted = weighted,
                                          .skip_loops = skip_loops,
                                          .averaged = averaged,
                                          .reversed = reversed});
           })
      .def(
          "add_messages",
          [](Program& self, uint32_t edge_type, const std::vector<SourceTuple>& sources, std::vector<uint32_t> buffers,
             const std::vector<RegisterTuple>& registers, const std::vector<OpTuple>& ops, uint32_t message,
             std::optional<uint32_t> coefficient, bool softmax, uint32_t output, std::optional<uint32_t> context,
             bool maximum, bool weighted, bool skip_loops, bool only_loops, bool reversed) {
            MessageProgram program;
            for (const auto& [side, value] : sources) {
              program.sources.push_back({static_cast<MessageSource::Side>(side), value});
            }
            program.step = rows_step(0, std::vector<uint32_t>(sources.size()), std::move(buffers), registers, ops, {});
            program.message = message;
            program.coefficient = coefficient.value_or(kNoIndex);
            program.softmax = softmax;
            self.order.push_back({Step::kPropagate, static_cast<uint32_t>(self.propagations.size())});
            self.propagations.push_back({.edge_type = edge_type,
                                         .input = kNoIndex,
                                         .output = output,
                                         .aggregate = maximum ? Aggregate::kMax : Aggregate::kSum,
                                         .weighted = weighted,
                                         .message = static_cast<uint32_t>(self.messages.size()),
                                         .context = context.value_or(kNoIndex),
                                         .skip_loops = skip_loops,
                                         .reversed = reversed,
                                         .only_loops = only_loops});
            self.messages.push_back(std::move(program));
          },
          nb::arg("edge_type"), nb::arg("sources"), nb::arg("buffers"), nb::arg("registers"), nb::arg("ops"),
          nb::arg("message"), nb::arg("coefficient").none(), nb::arg("softmax"), nb::arg("output"),
          nb::arg("context").none(), nb::arg("maximum"), nb::arg("weighted"), nb::arg("skip_loops"),
          nb::arg("only_loops"), nb::arg("reversed"))
      .def("add_function",
           [](Program& self, nb::callable function) {
             self.functions.emplace_back(RowCall{std::move(function)});
             return self.functions.size() - 1;
           })
      .def(
          "add_context",
          [](Program& self, uint32_t edge_type, uint32_t output, uint32_t kind, std::optional<float> fill,
             bool skip_loops, bool weighted, bool reversed) {
            self.order.push_back({Step::kContext, static_cast<uint32_t>(self.contexts.size())});
            self.contexts.push_back(
                {edge_type, output, static_cast<ContextKind>(kind), fill, skip_loops, weighted, reversed});
          },
          nb::arg("edge_type"), nb::arg("output"), nb::arg("kind"), nb::arg("fill").none(), nb::arg("skip_loops"),
          nb::arg("weighted"), nb::arg("reversed"))
      .def("set_output",
           [](Program& self, bool kept, uint32_t output) {
             self.output_kept = kept;
             self.output = output;
           })
      .def("add_output", [](Program& self, bool kept, uint32_t position) { self.others.push_back({kept, position}); });

  nb::class_<Prepared>(module, "Prepared")
      .def(nb::init<>())
      .def_ro("affected", &Prepared::affected)
      .def_ro("edges_touched", &Prepared::edges_touched)
      .def_ro("nodes_touched", &Prepared::nodes_touched)
      .def_ro("recomputed", &Prepared::recomputed)
      .def_ro("marked", &Prepared::marked)
      .def("work",
           [](const Prepared& self) {
             return nb::make_tuple(self.affected, self.edges_touched, self.nodes_touched, self.recomputed);
           })
      .def("lost", [](const Prepared& self) { return nb::make_tuple(self.lost_type, self.lost); })
      .def("changed", [](const Prepared& self) { return copy(self.changed); });

  nb::class_<Engine>(module, "Engine", nb::type_slots(engine_slots))
      .def(
          "__init__",
          [](Engine* self, const Graph& graph, Program& program, size_t threads, const std::string& directory,
             size_t keep_degree) { new (self) Engine(graph, std::move(program), threads, directory, keep_degree); },
          nb::keep_alive<1, 2>())
      .def("set_recompute", &Engine::set_recompute)
      .def("set_guard", &Engine::set_guard)
      .def("initialize",
           [](Engine& self) {
             // Without a lock: functions of the user's run, and nobody else commits.
             as_writer([&] { self.initialize(); });
           })
      .def("prepare",
           [](Engine& self, const Delta& delta, Prepared& prepared) {
             as_writer([&] { self.prepare(delta, &prepared); });
             return prepared.lost == kNoIndex;
           })
      .def("be_lazy", &Engine::be_lazy)
      .def("settle", [](Engine& self) { as_writer([&] { self.settle(); }); })
      .def("outgrown_by", &Engine::outgrown_by)
      .def("pending", &Engine::pending)
      .def("work",
           [](const Engine& self) {
             const LazyWork work = as_writer([&] { return self.work(); });
             return nb::make_tuple(work.rows, work.edges, work.recomputed);
           })
      .def("lazy_bytes",
           [](const Engine& self) {
             return as_writer([&] { return std::make_pair(self.overlay_bytes(), self.record_bytes()); });
           })
      .def("predict", &predict)
      .def("predict_at_once", &predict_at_once)
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
      .def("read", [](const Engine& self, uint32_t value) { return copy<float>(self, value); })
      .def("write",
           [](Engine& self, uint32_t value, InRows<float> from) {
             if (!self.load(value, from.data(), from.shape(0), from.shape(1))) {
               throw std::runtime_error("a value whose shape does not fit the graph");
             }
           })
      .def("moments",
           [](const Engine& self) {
             const Engine::Moments moments = self.moments();
             return nb::make_tuple(moments.batches, moments.measured, moments.touched);
           })
      .def("set_moments", [](Engine& self, size_t batches, size_t measured,
                             size_t touched) { self.load_moments({batches, measured, touched}); })
      .def("counts",
           [](const Engine& self, size_t propagation) { return copy<uint32_t>(self, counts_of(self, propagation)); })
      .def("set_counts",
           [](Engine& self, size_t propagation, InRows<uint32_t> from) {
             const auto* bits = reinterpret_cast<const float*>(from.data());
             if (!self.load(counts_of(self, propagation), bits, from.shape(0), from.shape(1))) {
               throw std::runtime_error("counts whose shape does not fit the graph");
             }
           })
      .def("scrub",
           [](Engine& self, size_t propagation, In<uint32_t> nodes) {
             const auto seen = as_writer([&] { return self.scrub(propagation, {nodes.data(), nodes.shape(0)}); });
             return nb::make_tuple(seen.difference, seen.not_finite);
           })
      .def("scrub_context",
           [](Engine& self, size_t context, In<uint32_t> nodes) {
             const auto seen = as_writer([&] { return self.scrub_context(context, {nodes.data(), nodes.shape(0)}); });
             return nb::make_tuple(seen.difference, seen.not_finite);
           })
      .def("bytes", &Engine::bytes)
      .def("program_bytes", &Engine::program_bytes)
      .def("errors_bytes", &Engine::errors_bytes)
      .def("residents_bytes", &Engine::residents_bytes)
      .def("sums_bytes", &Engine::sums_bytes)
      .def("mapped_bytes", &Engine::mapped_bytes);
}

}  // namespace livegnn::bindings
