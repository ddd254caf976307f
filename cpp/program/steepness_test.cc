// What counts as read by a steep function, in networks built by hand.
#include "program/steepness.h"

#include <string>
#include <string_view>

#include "program/row_operators.h"
#include "testing/testing.h"

namespace livegnn::steepness_test {
namespace {

constexpr uint32_t kWidth = 4;

Op op_of(std::string_view name, std::vector<uint32_t> inputs, uint32_t output) {
  Op op{};
  op.function = find_row_operator(name);
  op.kind = row_operators()[op.function].kind;
  op.inputs = std::move(inputs);
  op.output = output;
  return op;
}

PropagateStep sum_of(uint32_t input, uint32_t output) {
  PropagateStep step{};
  step.input = input;
  step.output = output;
  return step;
}

// Features 0, their sum 1, degrees 2, and values that steps make of these.
struct Network {
  Network() {
    for (bool features : {true, false, false}) values().push_back({0, kWidth, features, 0});
    program.propagations.push_back(sum_of(0, 1));
  }

  std::vector<Value>& values() { return program.values; }
  uint32_t add_value() {
    values().push_back({0, kWidth, false, 0});
    return static_cast<uint32_t>(values().size()) - 1;
  }
  // A step that reads the values in its first registers, and writes its last one.
  RowsStep step(std::vector<uint32_t> sources, std::vector<Op> ops) const {
    RowsStep made{};
    made.sources = std::move(sources);
    made.registers.resize(made.sources.size() + ops.size());
    made.ops = std::move(ops);
    return made;
  }
  uint32_t add_rows(std::vector<uint32_t> sources, std::vector<Op> ops) {
    const uint32_t value = add_value();
    program.rows.push_back(step(std::move(sources), std::move(ops)));
    program.rows.back().sinks = {{static_cast<uint32_t>(program.rows.back().registers.size()) - 1, value}};
    return value;
  }
  uint32_t add_sum(uint32_t input) {
    const uint32_t value = add_value();
    program.propagations.push_back(sum_of(input, value));
    return value;
  }
  bool is_steep() const { return find_steep(program)[0]; }

  Program program;
};

}  // namespace

TEST(linear_maps_and_gentle_functions_are_not_steep) {
  for (std::string_view name : {"linear", "relu", "leaky_relu", "tanh", "sigmoid", "elu", "gelu", "silu", "scale_shift",
                                "divide_context", "rsqrt_context", "add_loop", "sum_channels", "slice", "abs"}) {
    Network net;
    net.add_rows({1, 2}, {op_of(name, {0, 1}, 2)});
    CHECK(!net.is_steep());
  }
}

TEST(what_is_not_known_to_be_gentle_is_steep) {
  for (std::string_view name :
       {"exp",     "log",    "sqrt",    "rsqrt", "reciprocal", "power_of", "layer_norm", "l2_normalize",
        "softmax", "divide", "floor",   "sign",  "less",       "where",    "lookup",     "sin",
        "matmul",  "reduce", "combine", "call",  "log10",      "remainder"}) {
    Network net;
    net.add_rows({1, 2}, {op_of(name, {0, 1}, 2)});
    CHECK(net.is_steep());
  }
}

TEST(a_function_is_steep_only_of_what_is_made_of_the_sum) {
  Network net;
  net.add_rows({0, 1}, {op_of("log", {0}, 2), op_of("add", {1, 2}, 3)});
  CHECK(!net.is_steep());
  net.add_rows({0, 1}, {op_of("add", {0, 1}, 2), op_of("log", {2}, 3)});
  CHECK(net.is_steep());
}

TEST(products_are_steep_of_two_rows_made_of_the_sum) {
  for (const bool both : {false, true}) {
    Network net;
    net.add_rows({0, 1}, {op_of("relu", {1}, 2), op_of("multiply", {both ? 1u : 0u, 2}, 3)});
    CHECK(net.is_steep() == both);
  }
  Network net;
  net.add_rows({0, 1}, {op_of("relu", {1}, 2), op_of("maximum", {1, 2}, 3), op_of("subtract", {2, 3}, 4)});
  CHECK(!net.is_steep());
}

TEST(what_is_made_of_a_sum_is_followed_through_layers_and_rows_on_demand) {
  Network net;
  const uint32_t hidden = net.add_rows({1}, {op_of("relu", {0}, 1)});
  const uint32_t second = net.add_sum(hidden);
  const uint32_t derived = net.add_value();
  net.program.on_demand.push_back(net.step({second}, {op_of("linear", {0}, 1)}));
  net.program.on_demand.back().sinks = {{1, 0}};
  net.values()[derived].derived = 0;
  const uint32_t third = net.add_sum(derived);
  CHECK(!net.is_steep());
  net.program.on_demand.push_back(net.step({third}, {op_of("layer_norm", {0}, 1)}));  // the prediction
  net.program.on_demand.back().sinks = {{1, 0}};
  CHECK(net.is_steep());
}

TEST(decoders_of_edges_are_followed_too) {
  const auto decode = [](std::vector<MessageSource> sources, std::vector<Op> ops) {
    Network net;
    net.program.output = 1;
    net.program.others.push_back({true, 0});
    net.program.edge_outputs.push_back({0, 0, 0, std::move(sources), {}});
    net.program.edge_outputs[0].step = net.step(std::vector<uint32_t>(2), std::move(ops));
    return net.is_steep();
  };
  using Source = MessageSource;
  const Source from{Source::kSource, 0}, to{Source::kTarget, 0}, features{Source::kTarget, 1};
  CHECK(!decode({from, to}, {op_of("concat", {0, 1}, 2)}));
  CHECK(decode({from, to}, {op_of("multiply", {0, 1}, 2)}));
  CHECK(!decode({from, features}, {op_of("multiply", {0, 1}, 2)}));
  CHECK(decode({from, features}, {op_of("log", {0}, 2)}));
  CHECK(!decode({from, features}, {op_of("log", {1}, 2)}));
}

// Messages of both ends: gentle ones, steep ones, and coefficients.
TEST(messages_are_followed_too) {
  const auto net_of = [](std::vector<Op> ops, uint32_t coefficient, bool softmax) {
    Network net;
    MessageProgram messages;
    messages.sources = {{MessageSource::kSource, 1}, {MessageSource::kTarget, 0}};
    messages.step = net.step({0, 0}, std::move(ops));
    messages.message = 2;
    messages.coefficient = coefficient;
    messages.softmax = softmax;
    net.program.messages.push_back(std::move(messages));
    net.program.propagations.push_back(sum_of(kNoIndex, net.add_value()));
    net.program.propagations.back().message = 0;
    return net;
  };
  CHECK(!net_of({op_of("add", {0, 1}, 2)}, kNoIndex, false).is_steep());
  CHECK(net_of({op_of("divide", {1, 0}, 2)}, kNoIndex, false).is_steep());
  const auto gate = [](uint32_t message, uint32_t gate) {
    return std::vector<Op>{op_of("relu", {message}, 2), op_of("sigmoid", {gate}, 3)};
  };
  CHECK(!net_of(gate(1, 1), 3, true).is_steep());
  CHECK(!net_of(gate(1, 0), 3, false).is_steep());
  CHECK(net_of(gate(1, 0), 3, true).is_steep());   // a softmax of the sum
  CHECK(net_of(gate(0, 0), 3, false).is_steep());  // a product of both
}

}  // namespace livegnn::steepness_test
