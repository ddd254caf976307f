// A model as the engine runs it: tables of values, and steps from table to table in a fixed order.
//
//   features ─► [rows step] ─► messages ─► [propagate step] ─► aggregate ─► [rows step] ─► ... ─► output
//                                  context step (degrees) ─────────────────────┘
//
// Where a message needs more than its source's row (attention, gates, edge features), a message program computes it
// from rows of both ends and of the edge, a block of edges at a time, in registers like those of a rows step.
//
// Messages go from an edge's source to its target or, in a step that is `reversed`, from its target to its source. Here
// "source" is always the end that sends, "target" the one that receives, and in-edges are those along which a node
// receives.
//
// A rows step computes each node's row from rows of the same node, in registers that nobody else sees; a propagate step
// sums (or takes the maximum of) messages over in-edges; a context step keeps what a node knows of its in-edges without
// any features. What a value is for, and which values are worth keeping, the planner has decided; nothing here knows of
// layers or models.
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

// What a rows step does. Operators that have no kernel of their own are kRowwise: functions of row_operators.h.
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
  kDivideContext,  // number * row / context, 0 where the context is not positive
  kRsqrtContext,   // number * row / sqrt(context), 0 where the context is not positive
  kAddLoop,        // a + context * b
  kExp,
  kSumChannels,  // each head's channels: [heads]
  kScaleHeads,   // each head's channels of a, times that head's number in b
  kCombine,      // aggregates and contexts of several propagations, and an own message, in one quotient: see below
  kCall,         // a function that is not ours
  kMaximumLoop,  // the larger of a and number * b where the first context is positive; without in-edges (the second
                 // context), b's
  kRowwise,
};

struct Op {
  OpKind kind;
  std::vector<uint32_t> inputs;  // registers
  uint32_t output;
  float number = 0;     // slope, factor or number of heads: the first of the settings
  int32_t first = -1;   // tensors: a packed weight, or a scale; kCombine: number of propagations; kCall: the function
  int32_t second = -1;  // bias or shift; kCombine: 1 if the coefficients are exponentials of logits
  uint32_t function = kNoIndex;         // its place among row_operators()
  std::array<double, 4> settings = {};  // in the order of that operator's
};

// The inputs of kCombine are an aggregate and its context for each propagation, then perhaps a value and its
// coefficient (or logit), which are the node's own message. A context is [heads] sums of coefficients, followed, if
// they are exponentials, by [heads] reference logits, which have been taken out of each. Heads whose sum is not
// positive are 0.

// A row of `width` floats within a buffer: products with one input share a buffer side by side.
struct Register {
  uint32_t buffer, column, width;
};

struct Sink {
  uint32_t reg, value;
};

struct RowsStep {
  uint32_t node_type;
  std::vector<uint32_t> sources;    // values; register i is the row of source i, where it lies
  std::vector<uint32_t> buffers;    // widths of what is computed
  std::vector<Register> registers;  // those of sources have no buffer
  std::vector<Op> ops;
  std::vector<Sink> sinks;
};

enum class Aggregate : uint8_t { kSum, kMax };

struct MessageSource {
  enum Side : uint8_t { kSource, kTarget, kFeatures, kWeight } side;
  uint32_t value;  // whose row of the node that sends, or receives
};

// NeutronRT's msg_local: a message from what lies at an edge.
struct MessageProgram {
  std::vector<MessageSource> sources;
  RowsStep step;                    // its buffers, registers and operations; register i is the row of source i
  uint32_t message;                 // register
  uint32_t coefficient = kNoIndex;  // register: one number a head, by which the head's channels are multiplied
  bool softmax = false;             // the coefficients are exponentials of what is in the register
};

struct PropagateStep {
  uint32_t edge_type, input, output;  // with a message program there is no input
  Aggregate aggregate;
  bool weighted;
  uint32_t message = kNoIndex;  // program
  uint32_t context = kNoIndex;  // value: sums of the coefficients (and reference logits), where anybody reads them
  bool skip_loops = false;
  bool averaged = false;  // nobody reads the sum but divided by the number of in-edges
  bool reversed = false;
  bool only_loops = false;  // with a message program: of parallel loops the one with the greatest key, and nothing else
  // Of a maximum, the value that holds, for each node and channel, how many messages equal it. The engine adds it.
  uint32_t counts = kNoIndex;
};

enum class ContextKind : uint8_t {
  // Where there is a `fill`, every node has one loop: of parallel ones that with the greatest key, `fill` if it has
  // none.
  kCount,  // number of in-edges
  kSum,    // sum of their weights
  // What a sum along edges lacks: the `fill` where the node has no loop. Elsewhere 0, but in a type that keeps parallel
  // edges the loop with the greatest key (unless with `skip_loops`): the sum skips all of them there.
  kLoop,
};

struct ContextStep {
  uint32_t edge_type, output;
  ContextKind kind;
  std::optional<float> fill;
  bool skip_loops = false;  // a loop counts for nothing
  bool weighted = true;     // kLoop: of a sum of weights; else every edge counts 1
  bool reversed = false;
};

// Rows of the inputs, one after the other without padding, to rows of the output.
using RowFunction = std::function<void(size_t rows, std::span<const float* const> inputs,
                                       std::span<const size_t> widths, size_t width, float* out)>;

struct Value {
  uint32_t node_type;
  uint32_t width;
  bool features;  // the graph's own table
  uint32_t slab;  // values that are read together lie side by side in the rows of one table
  // Where not -1: no row of it is kept, each is computed when it is read, by this on-demand step, from values that come
  // before it; best from kept ones.
  int32_t derived = -1;
};

struct Step {
  enum Kind : uint8_t { kRows, kPropagate, kContext } kind;
  uint32_t position;  // among the steps of its kind
};

// What can be read: a value, or, where it is cheap to compute from kept ones, rows on demand.
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
  std::vector<FloatBlock> tensors;  // weights packed, vectors padded to a panel
  std::vector<RowsStep> on_demand;  // rows that are not kept, computed when asked for; one sink each, without a value
  // The prediction is a value, or, where it is cheap to compute from kept ones, rows on demand.
  bool output_kept = true;
  uint32_t output = 0;
  std::vector<Output> others;  // outputs 1, 2, ... after the prediction, which is output 0
};

}  // namespace livegnn
