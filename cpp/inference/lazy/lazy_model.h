// Helpers for the tests of lazy engines: a program of three layers, streams of events, and reference answers.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <initializer_list>
#include <optional>
#include <shared_mutex>
#include <utility>
#include <vector>

#include "inference/engine_view.h"
#include "program/kernels.h"
#include "program/row_operators.h"
#include "store/stage.h"
#include "testing/testing.h"
#include "views/commit.h"

namespace livegnn::testing::lazy {

using Floats = std::vector<float>;

inline constexpr uint32_t kFeatures = 9, kHidden = 12;

inline uint32_t add_linear(Program* program, RowsStep* step, uint32_t input, uint32_t outputs, Random* random) {
  const size_t inner = step->registers[input].width;
  FloatBlock packed(packed_size(inner, outputs));
  pack(inner, outputs, random->floats(inner * outputs).data(), packed.data());
  const auto output = static_cast<uint32_t>(step->registers.size());
  step->registers.push_back({static_cast<uint32_t>(step->buffers.size()), 0, outputs});
  step->buffers.push_back(outputs);
  step->ops.push_back({OpKind::kLinear, {input}, output, 0, static_cast<int32_t>(program->tensors.size()), -1});
  program->tensors.push_back(std::move(packed));
  return output;
}

inline uint32_t add_op(RowsStep* step, OpKind kind, std::vector<uint32_t> inputs) {
  const uint32_t width = step->registers[inputs[0]].width;
  const auto output = static_cast<uint32_t>(step->registers.size());
  step->registers.push_back({static_cast<uint32_t>(step->buffers.size()), 0, width});
  step->buffers.push_back(width);
  step->ops.push_back({kind, std::move(inputs), output, 1});
  return output;
}

inline uint32_t add_op(RowsStep* step, const char* name, std::vector<uint32_t> inputs) {
  const uint32_t output = add_op(step, OpKind::kRowwise, std::move(inputs));
  step->ops.back().function = find_row_operator(name);
  return output;
}

inline RowsStep open(const Program& program, std::vector<uint32_t> sources) {
  RowsStep step{0, std::move(sources), {}, {}, {}, {}};
  for (uint32_t source : step.sources) step.registers.push_back({0, 0, program.values[source].width});
  return step;
}

// A mean of features; a sum or a maximum of the transformed means; a sum of those. The prediction is not kept, and one
// rows step fills two values, of which a propagation reads one.
inline Program three_layers(bool weighted, Aggregate second, Random random) {
  enum : uint32_t { kX, kCount, kMean, kMessage, kRoot, kSecond, kThird };
  Program program;
  program.values = {{0, kFeatures, true, 0}, {0, 1, false, 0},       {0, kFeatures, false, 0}, {0, kHidden, false, 1},
                    {0, kHidden, false, 2},  {0, kHidden, false, 2}, {0, kHidden, false, 2}};
  auto next = [&](Step::Kind kind, size_t position) {
    program.order.push_back({kind, static_cast<uint32_t>(position)});
  };
  next(Step::kContext, 0);
  program.contexts = {{0, kCount, ContextKind::kCount, std::nullopt}};
  next(Step::kPropagate, 0);
  RowsStep rows = open(program, {kX, kMean, kCount});
  const uint32_t mean = add_linear(&program, &rows, add_op(&rows, OpKind::kDivideContext, {1, 2}), kHidden, &random);
  const uint32_t own = add_linear(&program, &rows, 0, kHidden, &random);
  rows.sinks = {{add_op(&rows, "tanh", {add_op(&rows, OpKind::kAdd, {own, mean})}), kMessage}, {own, kRoot}};
  program.rows.push_back(std::move(rows));
  next(Step::kRows, 0);
  next(Step::kPropagate, 1);
  next(Step::kPropagate, 2);
  program.propagations = {{0, kX, kMean, Aggregate::kSum, false},
                          {0, kMessage, kSecond, second, weighted},
                          {0, kSecond, kThird, Aggregate::kSum, weighted}};
  RowsStep last = open(program, {kThird, kRoot});
  const uint32_t out = add_op(&last, OpKind::kAdd, {0, 1});
  last.sinks = {{out, 0}};
  program.on_demand.push_back(std::move(last));
  program.output_kept = false;
  return program;
}

// Events on a few hubs and many other nodes. Nodes are added and, with `removals`, removed.
class Stream {
 public:
  Stream(Graph* graph, bool removals) : graph_(graph), removals_(removals) {}

  Delta begin(size_t nodes, size_t edges) {
    Stage stage(*graph_);
    for (size_t i = 0; i < nodes; ++i) add_node(&stage);
    for (size_t i = 0; i < edges; ++i) add_edge(&stage);
    return stage.finish();
  }
  Delta next(size_t events) {
    Stage stage(*graph_);
    for (size_t i = 0; i < events; ++i) {
      const uint64_t kind = random_.below(100);
      if (kind < 45) {
        add_edge(&stage);
      } else if (kind < 75) {
        auto [source, target] = edges_[random_.below(edges_.size())];
        if (std::find(ids_.begin(), ids_.end(), source) == ids_.end()) continue;
        if (std::find(ids_.begin(), ids_.end(), target) == ids_.end()) continue;
        stage.remove_edges(0, &source, &target, 1);
      } else if (kind < 94) {
        const int64_t id = ids_[random_.below(ids_.size())];
        stage.set_features(0, &id, random_.floats(kFeatures).data(), kFeatures, 1);
      } else if (kind < 99 || !removals_) {
        add_node(&stage);
      } else {
        const size_t at = random_.below(ids_.size());
        stage.remove_nodes(0, &ids_[at], 1);
        ids_.erase(ids_.begin() + static_cast<std::ptrdiff_t>(at));
      }
    }
    return stage.finish();
  }

 private:
  void add_node(Stage* stage) {
    const int64_t id = next_++;
    stage->add_nodes(0, &id, random_.floats(kFeatures).data(), kFeatures, 1);
    ids_.push_back(id);
  }
  void add_edge(Stage* stage) {
    const int64_t source = ids_[random_.below(ids_.size())];
    const int64_t target = ids_[random_.below(random_.chance(0.2) ? std::min<size_t>(3, ids_.size()) : ids_.size())];
    const float weight = random_.between(0.1f, 2);
    stage->add_edges(0, &source, &target, &weight, nullptr, nullptr, 0, 1);
    edges_.emplace_back(source, target);
  }

  Graph* graph_;
  bool removals_;
  Random random_;
  std::vector<int64_t> ids_;
  std::vector<std::pair<int64_t, int64_t>> edges_;  // all edges that ever existed
  int64_t next_ = 0;
};

inline void prepare(const Delta& delta, Graph* graph, std::initializer_list<EngineView*> views) {
  graph->abandon();
  graph->prepare(delta);
  for (EngineView* view : views) view->prepare(Change(*graph, delta));
}

inline void apply(const Delta& delta, Graph* graph, std::initializer_list<EngineView*> views) {
  prepare(delta, graph, views);
  commit(graph, delta, std::vector<View*>(views.begin(), views.end()));
}

inline std::vector<uint32_t> nodes_of(const Graph& graph) {
  std::vector<uint32_t> nodes;
  for (uint32_t i = 0; i < graph.nodes[0].ids.capacity(); ++i) {
    if (graph.nodes[0].ids.in_use(i)) nodes.push_back(i);
  }
  return nodes;
}

inline Floats ask(const Engine& engine, const std::vector<uint32_t>& nodes) {
  Floats out(nodes.size() * engine.output_width());
  std::shared_lock lock(engine.graph().lock);
  engine.predict(nodes, out.data());
  return out;
}

inline bool same_bits(const Floats& a, const Floats& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

inline void check_near(const Floats& values, const Floats& expected) {
  CHECK_EQ(values.size(), expected.size());
  float largest = 0;
  for (float value : expected) largest = std::max(largest, std::fabs(value));
  for (size_t i = 0; i < values.size(); ++i) CHECK_NEAR(values[i], expected[i], 1e-4 * largest);
}

struct Setting {
  EdgeOptions options;
  Aggregate second;
  size_t eager;  // steps

  Program make() const { return three_layers(options.columns.weighted, second, Random()); }
};

inline const Setting kSettings[] = {
    {{{false, false}, false, false}, Aggregate::kSum, 1}, {{{true, false}, false, false}, Aggregate::kSum, 1},
    {{{true, false}, true, false}, Aggregate::kSum, 1},   {{{true, false}, false, false}, Aggregate::kMax, 1},
    {{{true, false}, false, false}, Aggregate::kSum, 3},  {{{false, false}, true, false}, Aggregate::kMax, 4},
};

}  // namespace livegnn::testing::lazy
