// Helpers for the tests of the engine: programs with every kind of step, graphs on which they run, streams of events,
// and everything that an engine keeps.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <initializer_list>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "inference/edges/edge_view.h"
#include "inference/engine.h"
#include "inference/rounding/error_bounds.h"
#include "program/kernels.h"
#include "program/row_operators.h"
#include "store/stage.h"
#include "testing/allocations.h"
#include "testing/testing.h"

namespace livegnn::testing {

using Floats = std::vector<float>;

inline constexpr uint32_t kFeatures = 13, kHidden = 20, kClasses = 7, kEdgeFeatures = 3, kHeads = 4;

// Builds rows steps in the form that the planner writes. Register numbers start with those of the sources.
class RowsBuilder {
 public:
  RowsBuilder(Program* program, std::vector<uint32_t> sources) : program_(program) {
    step_.node_type = 0;
    for (uint32_t source : sources) step_.registers.push_back({0, 0, program->values[source].width});
    step_.sources = std::move(sources);
  }

  uint32_t apply(OpKind kind, std::vector<uint32_t> inputs, uint32_t width, int32_t first = -1, int32_t second = -1) {
    auto output = static_cast<uint32_t>(step_.registers.size());
    step_.registers.push_back({static_cast<uint32_t>(step_.buffers.size()), 0, width});
    step_.buffers.push_back(width);
    const bool scales = kind == OpKind::kDivideContext || kind == OpKind::kRsqrtContext;
    step_.ops.push_back({kind, std::move(inputs), output, scales ? 1.0f : 0.0f, first, second});
    return output;
  }
  uint32_t apply(OpKind kind, std::vector<uint32_t> inputs) {
    uint32_t width = step_.registers[inputs[0]].width;
    return apply(kind, std::move(inputs), width);
  }
  // An operator by name, with one head.
  uint32_t apply(const char* name, std::vector<uint32_t> inputs) {
    const uint32_t output = apply(OpKind::kRowwise, std::move(inputs));
    step_.ops.back().function = find_row_operator(name);
    step_.ops.back().settings = {1};
    return output;
  }
  uint32_t linear(uint32_t input, uint32_t outputs, Random* random) {
    const size_t inner = step_.registers[input].width;
    FloatBlock packed(packed_size(inner, outputs)), bias((outputs + kPanel) / kPanel * kPanel);
    pack(inner, outputs, random->floats(inner * outputs).data(), packed.data());
    std::copy_n(random->floats(outputs).data(), outputs, bias.data());
    auto first = static_cast<int32_t>(program_->tensors.size());
    program_->tensors.push_back(std::move(packed));
    program_->tensors.push_back(std::move(bias));
    return apply(OpKind::kLinear, {input}, outputs, first, first + 1);
  }
  // A quotient of weighted sums and the sums of their exponential weights.
  uint32_t combine(std::vector<uint32_t> inputs, uint32_t width, uint32_t heads) {
    const uint32_t output = apply(OpKind::kCombine, std::move(inputs), width, 1, 1);
    step_.ops.back().number = static_cast<float>(heads);
    return output;
  }
  // A program of messages whose sources have these widths.
  template <class Write>
  static RowsStep on_edges(Program* program, const std::vector<uint32_t>& widths, const Write& write) {
    RowsBuilder rows(program, {});
    rows.step_.sources.resize(widths.size());
    for (uint32_t width : widths) rows.step_.registers.push_back({0, 0, width});
    write(&rows);
    return std::move(rows.step_);
  }
  void finish(std::vector<Sink> sinks) {
    step_.sinks = std::move(sinks);
    program_->order.push_back({Step::kRows, static_cast<uint32_t>(program_->rows.size())});
    program_->rows.push_back(std::move(step_));
  }

 private:
  Program* program_;
  RowsStep step_;
};

inline void propagate(Program* program, uint32_t input, uint32_t output, Aggregate aggregate, bool weighted) {
  program->order.push_back({Step::kPropagate, static_cast<uint32_t>(program->propagations.size())});
  program->propagations.push_back({0, input, output, aggregate, weighted});
}

inline void propagate(Program* program, MessageProgram messages, uint32_t output, uint32_t context, bool weighted,
                      bool skip_loops) {
  program->order.push_back({Step::kPropagate, static_cast<uint32_t>(program->propagations.size())});
  program->propagations.push_back({0, kNoIndex, output, Aggregate::kSum, weighted,
                                   static_cast<uint32_t>(program->messages.size()), context, skip_loops});
  program->messages.push_back(std::move(messages));
}

inline void keep_context(Program* program, uint32_t output, ContextKind kind, std::optional<float> fill) {
  program->order.push_back({Step::kContext, static_cast<uint32_t>(program->contexts.size())});
  program->contexts.push_back({0, output, kind, fill});
}

// Two GCN layers: transform, divide by the root of the degree, sum including the node's own row, divide again.
inline Program gcn(bool weighted, Random random) {
  enum : uint32_t { kX, kDegree, kLoop, kMessage1, kSum1, kMessage2, kSum2, kOut };
  Program program;
  program.values = {{0, kFeatures, true, 0}, {0, 1, false, 0},        {0, 1, false, 0},        {0, kHidden, false, 1},
                    {0, kHidden, false, 0},  {0, kClasses, false, 2}, {0, kClasses, false, 3}, {0, kClasses, false, 4}};
  program.output = kOut;
  keep_context(&program, kDegree, ContextKind::kSum, 1);
  keep_context(&program, kLoop, ContextKind::kLoop, 1);
  RowsBuilder first(&program, {kX, kDegree});
  first.finish({{first.apply(OpKind::kRsqrtContext, {first.linear(0, kHidden, &random), 1}), kMessage1}});
  propagate(&program, kMessage1, kSum1, Aggregate::kSum, weighted);
  RowsBuilder second(&program, {kSum1, kLoop, kMessage1, kDegree});
  uint32_t hidden = second.apply(OpKind::kRsqrtContext, {second.apply(OpKind::kAddLoop, {0, 1, 2}), 3});
  hidden = second.linear(second.apply(OpKind::kRelu, {hidden}), kClasses, &random);
  second.finish({{second.apply(OpKind::kRsqrtContext, {hidden, 3}), kMessage2}});
  propagate(&program, kMessage2, kSum2, Aggregate::kSum, weighted);
  RowsBuilder third(&program, {kSum2, kLoop, kMessage2, kDegree});
  uint32_t out = third.apply(OpKind::kRsqrtContext, {third.apply(OpKind::kAddLoop, {0, 1, 2}), 3});
  third.finish({{third.apply("log_softmax", {out}), kOut}});
  return program;
}

// A layer of means and a layer of maxima, each added to a transform of the node's own row; one step fills two values.
inline Program mean_and_max(bool weighted, Random random) {
  enum : uint32_t { kX, kCount, kMean, kHiddenRow, kMessage, kMax, kOut };
  Program program;
  program.values = {{0, kFeatures, true, 0}, {0, 1, false, 0},        {0, kFeatures, false, 0}, {0, kHidden, false, 1},
                    {0, kClasses, false, 2}, {0, kClasses, false, 1}, {0, kClasses, false, 3}};
  program.output = kOut;
  keep_context(&program, kCount, ContextKind::kCount, std::nullopt);
  propagate(&program, kX, kMean, Aggregate::kSum, false);
  RowsBuilder first(&program, {kX, kMean, kCount});
  uint32_t mean = first.linear(first.apply(OpKind::kDivideContext, {1, 2}), kHidden, &random);
  uint32_t hidden = first.apply("tanh", {first.apply(OpKind::kAdd, {first.linear(0, kHidden, &random), mean})});
  // After a ReLU, so that messages tie.
  const uint32_t message = first.apply(OpKind::kRelu, {first.linear(hidden, kClasses, &random)});
  first.finish({{hidden, kHiddenRow}, {message, kMessage}});
  propagate(&program, kMessage, kMax, Aggregate::kMax, weighted);
  RowsBuilder second(&program, {kHiddenRow, kMax});
  second.finish({{second.apply(OpKind::kAdd, {second.linear(0, kClasses, &random), 1}), kOut}});
  return program;
}

// Attention with edge features and without loops, computed over its inputs; then gated messages, summed by weight.
inline Program attention(bool weighted, Random random) {
  enum : uint32_t { kX, kValue, kSourceLogit, kTargetLogit, kSum, kContext, kGateRow, kTargetRow, kGated, kOut };
  Program program;
  program.values = {{0, kFeatures, true, 0}, {0, kHidden, false, 0},  {0, kHeads, false, 0},
                    {0, kHeads, false, 1},   {0, kHidden, false, 2},  {0, 2 * kHeads, false, 2},
                    {0, kClasses, false, 3}, {0, kClasses, false, 4}, {0, kClasses, false, 5},
                    {0, kClasses, false, 5}};
  program.output = kOut;
  RowsBuilder first(&program, {kX});
  first.finish({{first.linear(0, kHidden, &random), kValue},
                {first.linear(0, kHeads, &random), kSourceLogit},
                {first.linear(0, kHeads, &random), kTargetLogit}});
  MessageProgram softmax{
      {{MessageSource::kSource, kValue},
       {MessageSource::kSource, kSourceLogit},
       {MessageSource::kTarget, kTargetLogit},
       {MessageSource::kFeatures, 0}},
      RowsBuilder::on_edges(&program, {kHidden, kHeads, kHeads, kEdgeFeatures},
                            [&](RowsBuilder* rows) {
                              const uint32_t logit = rows->apply(OpKind::kAdd, {1, 2});
                              rows->apply("tanh",
                                          {rows->apply(OpKind::kAdd, {logit, rows->linear(3, kHeads, &random)})});
                            }),
      0};
  softmax.coefficient = static_cast<uint32_t>(softmax.step.registers.size() - 1);
  softmax.softmax = true;
  propagate(&program, std::move(softmax), kSum, kContext, false, true);
  RowsBuilder second(&program, {kSum, kContext});
  const uint32_t hidden = second.combine({0, 1}, kHidden, kHeads);
  second.finish(
      {{second.linear(hidden, kClasses, &random), kGateRow}, {second.linear(hidden, kClasses, &random), kTargetRow}});
  MessageProgram gate{{{MessageSource::kSource, kGateRow}, {MessageSource::kTarget, kTargetRow}},
                      RowsBuilder::on_edges(&program, {kClasses, kClasses},
                                            [&](RowsBuilder* rows) {
                                              const uint32_t open =
                                                  rows->apply(OpKind::kSigmoid, {rows->apply(OpKind::kAdd, {0, 1})});
                                              rows->apply(OpKind::kMultiply, {open, 0});
                                            }),
                      0};
  gate.message = static_cast<uint32_t>(gate.step.registers.size() - 1);
  propagate(&program, std::move(gate), kGated, kNoIndex, weighted, false);
  RowsBuilder third(&program, {kGated, kGateRow});
  third.finish({{third.apply(OpKind::kAdd, {0, 1}), kOut}});
  return program;
}

// The same program with every second propagation and all contexts reversed.
template <Program (*kProgram)(bool weighted, Random weights)>
Program both_ways(bool weighted, Random random) {
  Program program = kProgram(weighted, random);
  for (size_t p = 0; p < program.propagations.size(); p += 2) program.propagations[p].reversed = true;
  for (ContextStep& step : program.contexts) step.reversed = true;
  return program;
}

struct Setting {
  const char* name;
  EdgeOptions options;
  Program (*program)(bool weighted, Random weights);
  uint32_t edge_features = 0;

  Program make() const { return program(options.columns.weighted, Random()); }
};

inline constexpr EdgeOptions keyed(EdgeOptions options) {
  options.keyed = true;
  return options;
}

inline constexpr Setting kSettings[] = {
    {"gcn, directed, weighted", {{true, false}, false, false}, gcn},
    {"gcn, undirected, weighted", {{true, true}, true, false}, gcn},
    {"gcn, undirected", {{false, false}, true, false}, gcn},
    {"mean and max, directed", {{false, false}, false, false}, mean_and_max},
    {"mean and max, undirected, weighted", {{true, false}, true, false}, mean_and_max},
    {"attention, directed", {{false, false, true}, false, false}, attention, kEdgeFeatures},
    {"attention, undirected, weighted", {{true, false, true}, true, false}, attention, kEdgeFeatures},
    {"gcn, directed, weighted, parallel edges", keyed({{true, false}, false, false}), gcn},
    {"mean and max, undirected, parallel edges", keyed({{true, false}, true, false}), mean_and_max},
    {"attention, directed, parallel edges", keyed({{false, false, true}, false, false}), attention, kEdgeFeatures},
    {"gcn, both ways, weighted, parallel edges", keyed({{true, false}, false, false}), both_ways<gcn>},
    {"mean and max, both ways", {{false, false}, false, false}, both_ways<mean_and_max>},
    {"attention, both ways, weighted", {{true, false, true}, false, false}, both_ways<attention>, kEdgeFeatures},
    {"attention, both ways, undirected", {{false, false, true}, true, false}, both_ways<attention>, kEdgeFeatures},
};

// Batches of random events on the existing nodes of a graph; a few of the nodes are hubs.
class EventStream {
 public:
  explicit EventStream(Graph* graph) : graph_(graph) {}

  Delta begin(size_t nodes, size_t edges) {
    Stage stage(*graph_);
    for (size_t i = 0; i < nodes; ++i) add_node(&stage);
    for (size_t i = 0; i < edges; ++i) add_edge(&stage);
    return stage.finish();
  }

  Delta next(size_t events) {
    Stage stage(*graph_);
    known_.clear();
    for (uint32_t source = 0; source < graph_->edges[0].store->num_sources(); ++source) {
      graph_->edges[0].store->scan_out(source, [&](NeighborSpan span) {
        for (size_t i = 0; i < span.size; ++i) {
          known_.emplace_back(graph_->nodes[0].ids.id_of(source), graph_->nodes[0].ids.id_of(span.ids[i]));
        }
      });
    }
    for (size_t i = 0; i < events; ++i) {
      const uint64_t kind = random_.below(100);
      if (kind < 40) {
        add_edge(&stage);
      } else if (kind < 70 && !known_.empty()) {
        auto [source, target] = known_[random_.below(known_.size())];
        if (!std::binary_search(ids_.begin(), ids_.end(), source)) continue;
        if (!std::binary_search(ids_.begin(), ids_.end(), target)) continue;
        stage.remove_edges(0, &source, &target, 1);
      } else if (kind < 92 && !ids_.empty()) {
        int64_t id = ids_[random_.below(ids_.size())];
        stage.set_features(0, &id, random_.floats(kFeatures).data(), kFeatures, 1);
      } else if (kind < 97) {
        add_node(&stage);
      } else if (ids_.size() > 10) {
        auto at = ids_.begin() + static_cast<std::ptrdiff_t>(random_.below(ids_.size()));
        int64_t id = *at;
        ids_.erase(at);
        stage.remove_nodes(0, &id, 1);
      }
    }
    return stage.finish();
  }

  // A stream that continues from here with other random numbers.
  EventStream branch(size_t number) const {
    EventStream other = *this;
    for (size_t i = 0; i <= number; ++i) other.random_.below(2);
    return other;
  }

 private:
  void add_node(Stage* stage) {
    int64_t id = ids_.empty() ? 0 : ids_.back() + 1 + static_cast<int64_t>(random_.below(2));
    Floats x = random_.floats(kFeatures);
    stage->add_nodes(0, &id, random_.chance(0.9) ? x.data() : nullptr, kFeatures, 1);
    ids_.push_back(id);
  }
  void add_edge(Stage* stage) {
    int64_t source = ids_[random_.below(ids_.size())];
    int64_t target = ids_[random_.below(random_.chance(0.3) ? std::min<size_t>(3, ids_.size()) : ids_.size())];
    if (random_.chance(0.3)) std::swap(source, target);
    float weight = random_.between(0.1f, 2);
    auto time = static_cast<double>(++now_);
    const size_t width = graph_->edges[0].features.table().width();
    const Floats x = random_.floats(width);
    stage->add_edges(0, &source, &target, &weight, &time, random_.chance(0.8) && width > 0 ? x.data() : nullptr, width,
                     1);
  }

  Graph* graph_;
  Random random_;
  std::vector<int64_t> ids_;  // sorted
  std::vector<std::pair<int64_t, int64_t>> known_;
  int now_ = 0;
};

inline void commit(const Delta& delta, Graph* graph, std::initializer_list<std::pair<Engine*, Preparation*>> views) {
  graph->prepare(delta);
  for (auto [engine, prepared] : views) engine->reserve(delta, *prepared);
  {
    std::unique_lock lock(graph->lock);
    check_allocates_nothing([&] {
      graph->commit(delta);
      for (auto [engine, prepared] : views) engine->commit(delta, *prepared);
    });
  }
  for (auto [engine, prepared] : views) engine->release();
  graph->settle();
}

// Sums of exponentials are relative to reference logits that depend on earlier batches, so only their quotients are
// comparable. And messages that are equal in one engine may differ in the last bit in another, which changes the
// counts.
inline bool is_comparable(const Program& program, uint32_t value) {
  return std::none_of(program.propagations.begin(), program.propagations.end(), [&](const PropagateStep& step) {
    const bool softmax = step.message != kNoIndex && program.messages[step.message].softmax;
    return step.counts == value || (softmax && (step.output == value || step.context == value));
  });
}

// All values that an engine keeps, for the existing nodes.
inline std::vector<Floats> tables(const Engine& engine, bool comparable = false) {
  std::vector<Floats> all;
  for (uint32_t v = 0; v < engine.program().values.size(); ++v) {
    if (comparable && !is_comparable(engine.program(), v)) continue;
    const Rows rows = engine.rows(v);
    const IdMap& ids = engine.graph().nodes[engine.program().values[v].node_type].ids;
    all.emplace_back();
    for (uint32_t i = 0; i < rows.count; ++i) {
      if (ids.in_use(i)) all.back().insert(all.back().end(), rows.row(i), rows.row(i) + rows.width);
    }
  }
  return all;
}

inline bool same_bits(const std::vector<Floats>& a, const std::vector<Floats>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Floats& x, const Floats& y) {
    return x.size() == y.size() && (x.empty() || std::memcmp(x.data(), y.data(), x.size() * sizeof(float)) == 0);
  });
}

// The complete state, error bounds included, to check that no byte changes.
struct Kept {
  explicit Kept(const Engine* engine) : rows(tables(*engine)) {
    for (size_t p = 0; p < engine->program().propagations.size(); ++p)
      errors.push_back(saved_errors(engine->state().rows, engine->state().rounding, p));
    for (size_t c = 0; c < engine->program().contexts.size(); ++c) {
      sums.push_back(engine->state().degrees.sums[c]);
      sums.push_back(engine->state().degrees.errors[c]);
    }
  }
  bool operator==(const Kept& other) const {
    return same_bits(rows, other.rows) && errors == other.errors && sums == other.sums;
  }

  std::vector<Floats> rows, errors;
  std::vector<std::vector<double>> sums;
};

inline void check_scrub(const Scrubbed& seen) {
  CHECK(seen.difference < 1e-4);
  CHECK_EQ(seen.not_finite, 0u);
}

inline void check_near(const std::vector<Floats>& values, const std::vector<Floats>& expected) {
  CHECK_EQ(values.size(), expected.size());
  for (size_t v = 0; v < values.size(); ++v) {
    CHECK_EQ(values[v].size(), expected[v].size());
    float largest = 0;
    for (float value : expected[v]) largest = std::max(largest, std::fabs(value));
    for (size_t i = 0; i < values[v].size(); ++i) CHECK_NEAR(values[v][i], expected[v][i], 1e-4 * largest);
  }
}

// The same program, keeping only rows of aggregates and contexts; each aggregate has its own slab.
inline Program keeping_aggregates(Program program) {
  // Values that messages read along edges are kept.
  auto read = [&](uint32_t value) {
    for (const MessageProgram& messages : program.messages) {
      for (const MessageSource& source : messages.sources) {
        const bool of_node = source.side == MessageSource::kSource || source.side == MessageSource::kTarget;
        if (of_node && source.value == value) return true;
      }
    }
    return false;
  };
  for (const RowsStep& step : program.rows) {
    for (const Sink& sink : step.sinks) {
      if (read(sink.value)) continue;
      program.values[sink.value].derived = static_cast<int32_t>(program.on_demand.size());
      program.on_demand.push_back(step);
      program.on_demand.back().sinks = {sink};
    }
  }
  for (uint32_t v = 0; v < program.values.size(); ++v) program.values[v].slab = v;
  return program;
}

inline std::vector<uint32_t> nodes_in_use(const Engine& engine) {
  const IdMap& ids = engine.graph().nodes[0].ids;
  std::vector<uint32_t> nodes;
  for (uint32_t node = 0; node < ids.capacity(); ++node) {
    if (ids.in_use(node)) nodes.push_back(node);
  }
  return nodes;
}

inline Floats all_predictions(const Engine& engine) {
  const std::vector<uint32_t> nodes = nodes_in_use(engine);
  Floats rows(nodes.size() * engine.output_width());
  engine.predict(nodes, rows.data());
  return rows;
}

}  // namespace livegnn::testing
