#include "program/steepness.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "program/row_operators.h"

namespace livegnn {
namespace {

constexpr std::array<std::string_view, 23> kGentle = {
    "abs",      "asinh",       "atan",      "clamp",       "concat",  "elu", "erf",    "gelu", "linear_by_head",
    "mish",     "hardsigmoid", "hardswish", "log_sigmoid", "minimum", "neg", "repeat", "silu", "slice",
    "softplus", "subtract",    "sum_heads", "take",        "tanh",
};

bool is_gentle(const Op& op) {
  switch (op.kind) {
    case OpKind::kLinear:
    case OpKind::kScaleShift:
    case OpKind::kScale:
    case OpKind::kRelu:
    case OpKind::kLeakyRelu:
    case OpKind::kSigmoid:
    case OpKind::kAdd:
    case OpKind::kMultiply:
    case OpKind::kMaximum:
    case OpKind::kConcat:
    case OpKind::kDivideContext:
    case OpKind::kRsqrtContext:
    case OpKind::kAddLoop:
    case OpKind::kSumChannels:
    case OpKind::kScaleHeads:
    case OpKind::kMaximumLoop:
      return true;
    case OpKind::kExp:
    case OpKind::kCombine:
    case OpKind::kCall:
      return false;
    case OpKind::kRowwise:
      break;
  }
  const std::string& name = row_operators()[op.function].name;
  return std::find(kGentle.begin(), kGentle.end(), name) != kGentle.end();
}

// Whether several inputs may be made of one sum: the result is then no product of them.
bool takes_several(const Op& op) {
  switch (op.kind) {
    case OpKind::kAdd:
    case OpKind::kMaximum:
    case OpKind::kConcat:
    case OpKind::kMaximumLoop:
    case OpKind::kAddLoop:
      return true;
    default: {
      const std::string& name = row_operator_of(op).name;
      return name == "minimum" || name == "subtract";
    }
  }
}

// Follows what is made of one sum.
class SteepnessSearch {
 public:
  SteepnessSearch(const Program& program, const PropagateStep& sum) : program_(program), made_(program.values.size()) {
    made_[sum.output] = true;
    if (sum.context != kNoIndex) made_[sum.context] = true;
  }

  bool is_steep() {
    for (bool more = true; more && !steep_;) {
      more = false;
      for (const RowsStep& step : program_.rows) more |= follow(step);
      for (uint32_t v = 0; v < program_.values.size(); ++v) {
        const int32_t derived = program_.values[v].derived;
        if (derived < 0) continue;
        const RowsStep& step = program_.on_demand[static_cast<size_t>(derived)];
        more |= made(step)[step.sinks[0].reg] && mark(v);
      }
      for (const PropagateStep& step : program_.propagations) more |= follow(step);
    }
    for (const RowsStep& step : program_.on_demand) made(step);  // outputs among them
    for (const EdgeOutput& output : program_.edge_outputs) follow(output);
    return steep_;
  }

 private:
  bool mark(uint32_t value) {
    const bool is_new = !made_[value];
    made_[value] = true;
    return is_new;
  }

  // The registers that are made of the sum, given those of the sources.
  std::vector<bool> made(const RowsStep& step, std::vector<bool> from) {
    from.resize(step.registers.size());
    for (const Op& op : step.ops) {
      const auto count = std::count_if(op.inputs.begin(), op.inputs.end(), [&](uint32_t r) { return from[r]; });
      if (count == 0) continue;
      steep_ |= !is_gentle(op) || (count > 1 && !takes_several(op));
      from[op.output] = true;
    }
    return from;
  }
  std::vector<bool> made(const RowsStep& step) {
    std::vector<bool> from;
    for (uint32_t value : step.sources) from.push_back(made_[value]);
    return made(step, std::move(from));
  }

  bool follow(const RowsStep& step) {
    const std::vector<bool> from = made(step);
    bool more = false;
    for (const Sink& sink : step.sinks) more |= from[sink.reg] && mark(sink.value);
    return more;
  }

  void follow(const EdgeOutput& output) {
    std::vector<bool> from;
    for (const MessageSource& source : output.sources) {
      const bool of_node = source.side == MessageSource::kSource || source.side == MessageSource::kTarget;
      from.push_back(of_node && is_made(program_.output_at(source.value)));
    }
    made(output.step, std::move(from));
  }
  bool is_made(const Output& output) {
    if (output.kept) return made_[output.position];
    const RowsStep& step = program_.on_demand[output.position];
    return made(step)[step.sinks[0].reg];
  }

  bool follow(const PropagateStep& step) {
    if (step.message == kNoIndex) return made_[step.input] && mark(step.output);
    const MessageProgram& messages = program_.messages[step.message];
    std::vector<bool> from;
    for (const MessageSource& source : messages.sources) {
      const bool of_node = source.side == MessageSource::kSource || source.side == MessageSource::kTarget;
      from.push_back(of_node && made_[source.value]);
    }
    from = made(messages.step, std::move(from));
    const bool weighs = messages.coefficient != kNoIndex && from[messages.coefficient];
    steep_ |= weighs && (messages.softmax || from[messages.message]);
    if (!weighs && !from[messages.message]) return false;
    const bool more = step.context != kNoIndex && weighs && mark(step.context);
    return mark(step.output) || more;
  }

  const Program& program_;
  std::vector<bool> made_;  // by value
  bool steep_ = false;
};

}  // namespace

std::vector<bool> find_steep(const Program& program) {
  std::vector<bool> steep;
  for (const PropagateStep& step : program.propagations) steep.push_back(SteepnessSearch(program, step).is_steep());
  return steep;
}

}  // namespace livegnn
