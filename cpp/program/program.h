// A model in the form that the engine runs: tables of values, and steps from table to table in a fixed order.
//
//   features ─► [rows step] ─► messages ─► [propagate step] ─► aggregate ─► [rows step] ─► ... ─► output
//                                  context step (degrees) ─────────────────────┘
//
// If a message needs more than its source's row (attention, gates, edge features), a message program computes it from
// rows of both ends and of the edge, a block of edges at a time, in registers like those of a rows step.
//
// Messages flow from an edge's source to its target or, in a step that is `reversed`, from its target to its source.
// Here "source" is always the sending end, "target" the receiving end, and in-edges are those along which a node
// receives.
//
// A rows step computes each node's row from rows of the same node, in private registers; a propagate step sums (or
// takes the maximum of) messages over in-edges; a context step keeps what a node's in-edges give without any features.
// The planner has decided what each value is for and which values to keep; the code here does not know layers or
// models.
//
// Thread safety: immutable once built.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "ids/id_map.h"
#include "memory/table.h"

namespace livegnn {

// The operations of a rows step. Operators without a kernel of their own are kRowwise: functions of row_operators.h.
enum class OpKind : uint8_t {
  kLinear,
  kScaleShift,
  kScale,
  kRelu,
  kLeakyRelu,
  kSigmoid,
  kAdd,
  kMultiply,
  kMaximum,
  kConcat,
  kDivideContext,  // number * row / context, 0 if the context is not positive
  kRsqrtContext,   // number * row / sqrt(context), 0 if the context is 0, NaN if it is below
  kAddLoop,        // a + context * b
  kExp,
  kSumChannels,  // each head's channels: [heads]
  kScaleHeads,   // each head's channels of a, times that head's number in b
  kCombine,  // aggregates and contexts of several propagations, and the node's own message, in one quotient: see below
  kCall,     // a function of the user
  kMaximumLoop,  // if the first context is positive: the larger of a and number * b, or number * b without in-edges
                 // (the second context); otherwise a
  kRowwise,
};

struct Op {
  OpKind kind;
  std::vector<uint32_t> inputs;  // registers
  uint32_t output;
  float number = 0;     // slope, factor or number of heads: the first setting
  int32_t first = -1;   // tensors: a packed weight, or a scale; kCombine: number of propagations; kCall: the function
  int32_t second = -1;  // bias or shift; kCombine: 1 if the coefficients are exponentials of logits
  uint32_t function = kNoIndex;         // its position in row_operators()
  std::array<double, 4> settings = {};  // in the order of the operator's settings
};

// The inputs of kCombine are an aggregate and its context for each propagation, optionally followed by a value and its
// coefficient (or logit), which are the node's own message. A context is [heads] sums of coefficients, followed, if
// they are exponentials, by [heads] reference logits, relative to which the sums are taken. Heads whose sum is not
// positive are 0.

// A row of `width` floats within a buffer: products with the same input share a buffer side by side.
struct Register {
  uint32_t buffer, column, width;
};

struct Sink {
  uint32_t reg, value;
};

struct RowsStep {
  uint32_t node_type;
  std::vector<uint32_t> sources;    // values; register i is the row of source i, in place
  std::vector<uint32_t> buffers;    // widths of computed rows
  std::vector<Register> registers;  // those of sources have no buffer
  std::vector<Op> ops;
  std::vector<Sink> sinks;
};

enum class Aggregate : uint8_t { kSum, kMax };

struct MessageSource {
  enum Side : uint8_t { kSource, kTarget, kFeatures, kWeight } side;
  uint32_t value;  // row of the sending or of the receiving node
};

// NeutronRT's msg_local: a message computed from the rows at both ends of an edge and of the edge itself.
struct MessageProgram {
  std::vector<MessageSource> sources;
  RowsStep step;                    // its buffers, registers and operations; register i is the row of source i
  uint32_t message;                 // register
  uint32_t coefficient = kNoIndex;  // register: one number per head, which multiplies the head's channels
  bool softmax = false;             // the coefficients are exponentials of the register
};

// Rows of edges that are computed when they are read: a row for a pair of nodes, from rows of outputs at both ends and
// from an edge's own columns.
struct EdgeOutput {
  uint32_t edge_type;  // kNoIndex if the graph has no such type
  uint32_t source_type, target_type;
  std::vector<MessageSource> sources;  // of an end: `value` is the position of an output
  RowsStep step;                       // register i is the row of source i; one sink, without a value
};

struct PropagateStep {
  uint32_t edge_type, input, output;  // with a message program there is no input
  Aggregate aggregate;
  bool weighted;
  uint32_t message = kNoIndex;  // position of the message program
  uint32_t context = kNoIndex;  // value: sums of the coefficients (and reference logits), if a step reads them
  bool skip_loops = false;
  bool averaged = false;  // the sum is only read after a division by the number of in-edges
  bool reversed = false;
  // With a message program: the step uses only a node's loop; among parallel loops the one with the greatest key.
  bool only_loops = false;
  // For a maximum: the value that holds, for each node and channel, how many messages equal it. The engine adds it.
  uint32_t counts = kNoIndex;
};

enum class ContextKind : uint8_t {
  // If there is a `fill`, every node counts as having one loop: of parallel loops the one with the greatest key, `fill`
  // if it has none.
  kCount,  // number of in-edges
  kSum,    // sum of their weights
  // What a sum along edges lacks: `fill` if the node has no loop. Otherwise 0, except in a type that keeps parallel
  // edges: there it is the loop with the greatest key (unless `skip_loops` is set), because the sum skips all loops.
  kLoop,
};

struct ContextStep {
  uint32_t edge_type, output;
  ContextKind kind;
  std::optional<float> fill;
  bool skip_loops = false;  // loops are not counted
  bool weighted = true;     // kLoop: belongs to a sum of weights; else every edge counts 1
  bool reversed = false;
};

// From rows of the inputs, one after the other without padding, to rows of the output.
using RowFunction = std::function<void(size_t rows, std::span<const float* const> inputs,
                                       std::span<const size_t> widths, size_t width, float* out)>;

struct Value {
  uint32_t node_type;
  uint32_t width;
  bool features;  // the graph's own table
  uint32_t slab;  // values that are read together are stored side by side in the rows of one table
  // If not -1: no row of the value is kept. Each is computed when it is read, by this on-demand step, from earlier
  // values, preferably kept ones.
  int32_t derived = -1;
};

struct Step {
  enum Kind : uint8_t { kRows, kPropagate, kContext } kind;
  uint32_t position;  // in the list of steps of its kind
};

// A readable result: a value or, if it is cheap to compute from kept ones, rows on demand.
struct Output {
  bool kept;
  uint32_t position;
};

struct Program {
  Program() = default;
  Program(Program&&) = default;
  Program(const Program&) = delete;

  std::vector<Value> values;
  std::vector<RowsStep> rows;
  std::vector<PropagateStep> propagations;
  std::vector<MessageProgram> messages;
  std::vector<ContextStep> contexts;
  std::vector<RowFunction> functions;
  std::vector<Step> order;
  std::vector<FloatBlock> tensors;  // packed weights; vectors padded to a panel
  std::vector<RowsStep> on_demand;  // rows that are not kept, computed when read; one sink each, without a value
  // The prediction is a value or, if it is cheap to compute from kept ones, rows on demand.
  bool output_kept = true;
  uint32_t output = 0;
  std::vector<Output> others;  // outputs 1, 2, ... after the prediction, which is output 0
  std::vector<EdgeOutput> edge_outputs;

  Output output_at(size_t i) const { return i == 0 ? Output{output_kept, output} : others[i - 1]; }
  // The type of an output's nodes, and how many channels it has.
  uint32_t output_type(size_t i) const {
    const auto [kept, position] = output_at(i);
    return kept ? values[position].node_type : on_demand[position].node_type;
  }
  size_t output_width(size_t i) const {
    const auto [kept, position] = output_at(i);
    if (kept) return values[position].width;
    const RowsStep& step = on_demand[position];
    return step.registers[step.sinks[0].reg].width;
  }
};

// The values of which a propagation reads rows of sending nodes.
inline std::vector<uint32_t> read_along_edges(const Program& program, const PropagateStep& step) {
  if (step.message == kNoIndex) return {step.input};
  std::vector<uint32_t> values;
  if (step.only_loops) return values;  // each node sends to itself alone
  for (const MessageSource& source : program.messages[step.message].sources) {
    if (source.side == MessageSource::kSource) values.push_back(source.value);
  }
  return values;
}

}  // namespace livegnn
