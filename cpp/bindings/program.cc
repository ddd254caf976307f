#include "program/program.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings/arrays.h"
#include "bindings/module.h"
#include "bindings/row_call.h"
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
    // Kernels with two inputs need rows of equal width; the operator's own function handles inputs that are one channel
    // wide.
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

// Name, group, least and most inputs, settings (name, kind, choices, whether optional, default), tensors (role, whether
// optional), and a description.
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

size_t add_weight(Program& program, InRows<float> weight) {
  FloatBlock packed(packed_size(weight.shape(1), weight.shape(0)));
  pack(weight.shape(1), weight.shape(0), weight.data(), packed.data());
  program.tensors.push_back(std::move(packed));
  return program.tensors.size() - 1;
}

size_t add_vector(Program& program, In<float> values) {
  FloatBlock padded((values.shape(0) + kPanel) / kPanel * kPanel);
  std::memcpy(padded.data(), values.data(), values.shape(0) * sizeof(float));
  program.tensors.push_back(std::move(padded));
  return program.tensors.size() - 1;
}

void add_rows(Program& program, uint32_t node_type, std::vector<uint32_t> sources, std::vector<uint32_t> buffers,
              const std::vector<RegisterTuple>& registers, const std::vector<OpTuple>& ops,
              const std::vector<SinkTuple>& sinks) {
  program.order.push_back({Step::kRows, static_cast<uint32_t>(program.rows.size())});
  program.rows.push_back(rows_step(node_type, std::move(sources), std::move(buffers), registers, ops, sinks));
}

size_t add_on_demand(Program& program, uint32_t node_type, std::vector<uint32_t> sources, std::vector<uint32_t> buffers,
                     const std::vector<RegisterTuple>& registers, const std::vector<OpTuple>& ops, uint32_t reg) {
  program.on_demand.push_back(rows_step(node_type, std::move(sources), std::move(buffers), registers, ops, {{reg, 0}}));
  return program.on_demand.size() - 1;
}

size_t add_edge_output(Program& program, std::optional<uint32_t> edge_type, uint32_t source_type, uint32_t target_type,
                       const std::vector<SourceTuple>& sources, std::vector<uint32_t> buffers,
                       const std::vector<RegisterTuple>& registers, const std::vector<OpTuple>& ops, uint32_t reg) {
  EdgeOutput made{edge_type.value_or(kNoIndex), source_type, target_type, {}, {}};
  for (const auto& [side, value] : sources) made.sources.push_back({static_cast<MessageSource::Side>(side), value});
  made.step = rows_step(0, std::vector<uint32_t>(sources.size()), std::move(buffers), registers, ops, {{reg, 0}});
  program.edge_outputs.push_back(std::move(made));
  return program.edge_outputs.size() - 1;
}

void add_step(Program& program, const PropagateStep& step) {
  program.order.push_back({Step::kPropagate, static_cast<uint32_t>(program.propagations.size())});
  program.propagations.push_back(step);
}

void add_propagation(Program& program, uint32_t edge_type, uint32_t input, uint32_t output, bool maximum, bool weighted,
                     bool skip_loops, bool averaged, bool reversed) {
  add_step(program, {.edge_type = edge_type,
                     .input = input,
                     .output = output,
                     .aggregate = maximum ? Aggregate::kMax : Aggregate::kSum,
                     .weighted = weighted,
                     .skip_loops = skip_loops,
                     .averaged = averaged,
                     .reversed = reversed});
}

void add_messages(Program& program, uint32_t edge_type, const std::vector<SourceTuple>& sources,
                  std::vector<uint32_t> buffers, const std::vector<RegisterTuple>& registers,
                  const std::vector<OpTuple>& ops, uint32_t message, std::optional<uint32_t> coefficient, bool softmax,
                  uint32_t output, std::optional<uint32_t> context, bool maximum, bool weighted, bool skip_loops,
                  bool only_loops, bool reversed) {
  MessageProgram made;
  for (const auto& [side, value] : sources) made.sources.push_back({static_cast<MessageSource::Side>(side), value});
  made.step = rows_step(0, std::vector<uint32_t>(sources.size()), std::move(buffers), registers, ops, {});
  made.message = message;
  made.coefficient = coefficient.value_or(kNoIndex);
  made.softmax = softmax;
  add_step(program, {.edge_type = edge_type,
                     .input = kNoIndex,
                     .output = output,
                     .aggregate = maximum ? Aggregate::kMax : Aggregate::kSum,
                     .weighted = weighted,
                     .message = static_cast<uint32_t>(program.messages.size()),
                     .context = context.value_or(kNoIndex),
                     .skip_loops = skip_loops,
                     .reversed = reversed,
                     .only_loops = only_loops});
  program.messages.push_back(std::move(made));
}

void add_context(Program& program, uint32_t edge_type, uint32_t output, uint32_t kind, std::optional<float> fill,
                 bool skip_loops, bool weighted, bool reversed) {
  program.order.push_back({Step::kContext, static_cast<uint32_t>(program.contexts.size())});
  program.contexts.push_back({edge_type, output, static_cast<ContextKind>(kind), fill, skip_loops, weighted, reversed});
}

}  // namespace

void bind_program(nb::module_& module) {
  module.def("row_operators", &list_row_operators);
  nb::class_<Program> program(module, "Program");
  bind_edge_decoding(program);
  program.def(nb::init<>())
      .def("add_value",
           [](Program& self, uint32_t node_type, uint32_t width, bool features, uint32_t slab) {
             self.values.push_back({node_type, width, features, slab, -1});
             return self.values.size() - 1;
           })
      .def("set_derived",
           [](Program& self, uint32_t value, int32_t on_demand) { self.values[value].derived = on_demand; })
      .def("add_weight", &add_weight)
      .def("add_vector", &add_vector)
      .def("add_rows", &add_rows)
      .def("add_on_demand", &add_on_demand)
      .def("add_propagation", &add_propagation)
      .def("add_messages", &add_messages, nb::arg("edge_type"), nb::arg("sources"), nb::arg("buffers"),
           nb::arg("registers"), nb::arg("ops"), nb::arg("message"), nb::arg("coefficient").none(), nb::arg("softmax"),
           nb::arg("output"), nb::arg("context").none(), nb::arg("maximum"), nb::arg("weighted"), nb::arg("skip_loops"),
           nb::arg("only_loops"), nb::arg("reversed"))
      .def("add_context", &add_context, nb::arg("edge_type"), nb::arg("output"), nb::arg("kind"),
           nb::arg("fill").none(), nb::arg("skip_loops"), nb::arg("weighted"), nb::arg("reversed"))
      .def("add_edge_output", &add_edge_output, nb::arg("edge_type").none(), nb::arg("source_type"),
           nb::arg("target_type"), nb::arg("sources"), nb::arg("buffers"), nb::arg("registers"), nb::arg("ops"),
           nb::arg("register"))
      .def("add_function",
           [](Program& self, nb::callable function) {
             self.functions.emplace_back(RowCall{std::move(function)});
             return self.functions.size() - 1;
           })
      .def("set_output",
           [](Program& self, bool kept, uint32_t output) {
             self.output_kept = kept;
             self.output = output;
           })
      .def("add_output", [](Program& self, bool kept, uint32_t position) { self.others.push_back({kept, position}); });
}

}  // namespace livegnn::bindings
