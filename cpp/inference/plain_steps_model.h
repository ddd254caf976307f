// Reference results for the tests of the engine's steps: computes each step again from its input rows, in float64, node
// by node and edge by edge.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "inference/edges/edge_view.h"
#include "inference/engine.h"
#include "inference/engine_model.h"
#include "program/kernels.h"
#include "program/row_operators.h"
#include "store/graph.h"
#include "testing/testing.h"

namespace livegnn::testing {

using PlainRow = std::vector<double>;

// Calls `check(engine)` after the first computation and after each of several batches, for every program.
template <class Check>
void for_each_state(const Check& check) {
  for (const Setting& setting : kSettings) {
    Graph graph({kFeatures}, {{0, 0, setting.options, setting.edge_features}});
    EventStream stream(&graph);
    commit(stream.begin(60, 250), &graph, {});
    Engine engine(graph, setting.make(), 1);
    engine.initialize();
    check(engine);
    Preparation prepared;
    for (int batch = 0; batch < 12; ++batch) {
      const Delta delta = stream.next(batch % 6 == 5 ? 150 : 8);
      engine.prepare(delta, &prepared);
      commit(delta, &graph, {{&engine, &prepared}});
      check(engine);
    }
  }
}

inline PlainRow plain_row(const Engine& engine, uint32_t value, uint32_t node) {
  const Rows rows = engine.rows(value);
  return {rows.row(node), rows.row(node) + rows.width};
}

struct InEdge {
  uint32_t source, key;
  float weight;
  const float* features;
};

template <class Step>
std::vector<InEdge> in_edges(const Engine& engine, const Step& step, uint32_t node) {
  const Table& features = engine.graph().edges[step.edge_type].features.table();
  std::vector<InEdge> edges;
  view_of(engine.graph(), step).scan_in(node, [&](NeighborSpan span) {
    for (size_t i = 0; i < span.size; ++i) {
      edges.push_back({span.ids[i], key_at(span, i), span.weights == nullptr ? 1.0f : span.weights[i],
                       span.rows == nullptr ? nullptr : features.row(span.rows[i])});
    }
  });
  return edges;
}

// x @ weight.T + bias. The kernels' product with a row that has a single 1 is exactly a row of the packed weight.
inline PlainRow plain_linear(const Program& program, const Op& op, const PlainRow& x, size_t outputs) {
  PlainRow out(outputs);
  const float* const packed = program.tensors[static_cast<size_t>(op.first)].data();
  std::vector<float> one(row_stride(x.size())), weights(outputs);
  for (size_t i = 0; i < x.size(); ++i) {
    one[i] = 1;
    const float* const rows[] = {one.data()};
    kernels().multiply(1, x.size(), outputs, rows, packed, nullptr, weights.data(), outputs);
    one[i] = 0;
    for (size_t c = 0; c < outputs; ++c) out[c] += x[i] * weights[c];
  }
  if (op.second >= 0) {
    const float* const bias = program.tensors[static_cast<size_t>(op.second)].data();
    for (size_t c = 0; c < outputs; ++c) out[c] += bias[c];
  }
  return out;
}

// The quotient of sums over sums of exponentials, both relative to the same reference logits.
inline PlainRow plain_quotient(const Op& op, const std::vector<const PlainRow*>& in, size_t width) {
  const auto heads = static_cast<size_t>(op.number);
  PlainRow out(width);
  for (size_t c = 0; c < width; ++c) {
    const size_t h = c / (width / heads);
    double largest = -std::numeric_limits<double>::infinity(), weights = 0;
    for (size_t p = 0; p + 1 < in.size(); p += 2) {
      if ((*in[p + 1])[h] > 0) largest = std::max(largest, (*in[p + 1])[heads + h]);
    }
    for (size_t p = 0; p + 1 < in.size(); p += 2) {
      if (!((*in[p + 1])[h] > 0)) continue;
      const double factor = std::exp((*in[p + 1])[heads + h] - largest);
      weights += factor * (*in[p + 1])[h];
      out[c] += factor * (*in[p])[c];
    }
    out[c] = weights > 0 ? out[c] / weights : 0;
  }
  return out;
}

inline PlainRow plain_function(const Op& op, const PlainRow& x) {
  const std::string& name = row_operator_of(op).name;
  PlainRow out(x.size());
  if (name == "tanh") {
    for (size_t c = 0; c < x.size(); ++c) out[c] = std::tanh(x[c]);
  } else {
    CHECK_EQ(name, std::string("log_softmax"));
    const double largest = *std::max_element(x.begin(), x.end());
    double sum = 0;
    for (double value : x) sum += std::exp(value - largest);
    for (size_t c = 0; c < x.size(); ++c) out[c] = x[c] - largest - std::log(sum);
  }
  return out;
}

// The registers of a step whose sources have these rows: first the sources, then the result of each operation.
inline std::vector<PlainRow> plain_registers(const Program& program, const RowsStep& step,
                                             std::vector<PlainRow> registers) {
  registers.resize(step.registers.size());
  for (const Op& op : step.ops) {
    std::vector<const PlainRow*> in;
    for (uint32_t input : op.inputs) in.push_back(&registers[input]);
    const PlainRow& a = *in[0];
    const double context = in.size() > 1 ? (*in[1])[0] : 0;
    const size_t width = step.registers[op.output].width;
    PlainRow out(width);
    for (size_t c = 0; c < width; ++c) {
      switch (op.kind) {
        case OpKind::kAdd:
          out[c] = a[c] + (*in[1])[c];
          break;
        case OpKind::kMultiply:
          out[c] = a[c] * (*in[1])[c];
          break;
        case OpKind::kRelu:
          out[c] = std::max(a[c], 0.0);
          break;
        case OpKind::kSigmoid:
          out[c] = 1 / (1 + std::exp(-a[c]));
          break;
        case OpKind::kDivideContext:
          out[c] = context > 0 ? op.number * a[c] / context : 0;
          break;
        case OpKind::kRsqrtContext:
          out[c] = context == 0 ? 0 : op.number * a[c] / std::sqrt(context);
          break;
        case OpKind::kAddLoop:
          out[c] = a[c] + context * (*in[2])[c];
          break;
        default:
          break;
      }
    }
    if (op.kind == OpKind::kConcat) {
      out.clear();
      for (const PlainRow* part : in) out.insert(out.end(), part->begin(), part->end());
    }
    if (op.kind == OpKind::kLinear) out = plain_linear(program, op, a, width);
    if (op.kind == OpKind::kCombine) out = plain_quotient(op, in, width);
    if (op.kind == OpKind::kRowwise) out = plain_function(op, a);
    registers[op.output] = out;
  }
  return registers;
}

}  // namespace livegnn::testing
