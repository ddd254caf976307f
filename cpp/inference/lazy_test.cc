// A lazy engine beside an eager one and a fresh one, on random streams.
#include "inference/lazy.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>
#include <thread>

#include "inference/engine_view.h"
#include "program/kernels.h"
#include "program/row_operators.h"
#include "store/stage.h"
#include "testing/allocations.h"
#include "testing/testing.h"
#include "views/commit.h"

namespace livegnn {
namespace {

using testing::Random;
using Floats = std::vector<float>;

constexpr uint32_t kFeatures = 9, kHidden = 12;

uint32_t add_linear(Program* program, RowsStep* step, uint32_t input, uint32_t outputs, Random* random) {
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

uint32_t add_op(RowsStep* step, OpKind kind, std::vector<uint32_t> inputs) {
  const uint32_t width = step->registers[inputs[0]].width;
  const auto output = static_cast<uint32_t>(step->registers.size());
  step->registers.push_back({static_cast<uint32_t>(step->buffers.size()), 0, width});
  step->buffers.push_back(width);
  step->ops.push_back({kind, std::move(inputs), output, 1});
  return output;
}

uint32_t add_op(RowsStep* step, const char* name, std::vector<uint32_t> inputs) {
  const uint32_t output = add_op(step, OpKind::kRowwise, std::move(inputs));
  step->ops.back().function = find_row_operator(name);
  return output;
}

RowsStep open(const Program& program, std::vector<uint32_t> sources) {
  RowsStep step{0, std::move(sources), {}, {}, {}, {}};
  for (uint32_t source : step.sources) step.registers.push_back({0, 0, program.values[source].width});
  return step;
}

// A mean of features; a sum or a maximum of what that became; a sum of these. The prediction is not kept, and one rows
// step fills two values, of which a propagation reads one.
Program three_layers(bool weighted, Aggregate second, Random random) {
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

// Events on a few hubs and many others. Nodes come, and with `removals` they go.
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
  std::vector<std::pair<int64_t, int64_t>> edges_;  // that were there once
  int64_t next_ = 0;
};

void prepare(const Delta& delta, Graph* graph, std::initializer_list<EngineView*> views) {
  graph->abandon();
  graph->prepare(delta);
  for (EngineView* view : views) view->prepare(Change(*graph, delta));
}

void apply(const Delta& delta, Graph* graph, std::initializer_list<EngineView*> views) {
  prepare(delta, graph, views);
  commit(graph, delta, std::vector<View*>(views.begin(), views.end()));
}

std::vector<uint32_t> nodes_of(const Graph& graph) {
  std::vector<uint32_t> nodes;
  for (uint32_t i = 0; i < graph.nodes[0].ids.capacity(); ++i) {
    if (graph.nodes[0].ids.in_use(i)) nodes.push_back(i);
  }
  return nodes;
}

Floats ask(const Engine& engine, const std::vector<uint32_t>& nodes) {
  Floats out(nodes.size() * engine.output_width());
  std::shared_lock lock(engine.graph().lock);
  engine.predict(nodes, out.data());
  return out;
}

bool same_bits(const Floats& a, const Floats& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

void check_near(const Floats& values, const Floats& expected) {
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

const Setting kSettings[] = {
    {{{false, false}, false, false}, Aggregate::kSum, 1}, {{{true, false}, false, false}, Aggregate::kSum, 1},
    {{{true, false}, true, false}, Aggregate::kSum, 1},   {{{true, false}, false, false}, Aggregate::kMax, 1},
    {{{true, false}, false, false}, Aggregate::kSum, 3},  {{{false, false}, true, false}, Aggregate::kMax, 4},
};

}  // namespace

TEST(lazy_engine_answers_as_a_fresh_one) {
  Random random;
  for (const Setting& setting : kSettings) {
    Graph graph({kFeatures}, {{0, 0, setting.options}});
    Stream stream(&graph, true);
    apply(stream.begin(60, 240), &graph, {});
    Engine lazy(graph, setting.make(), 1), eager(graph, setting.make(), 1);
    lazy.initialize();
    eager.initialize();
    CHECK(lazy.be_lazy(setting.eager));
    EngineView lazy_view(lazy), eager_view(eager);
    for (int batch = 0; batch < 60; ++batch) {
      apply(stream.next(1 + random.below(10)), &graph, {&lazy_view, &eager_view});
      std::vector<uint32_t> some = nodes_of(graph);
      if (!random.chance(0.3)) some = {some[random.below(some.size())], some[random.below(some.size())]};
      const Floats got = ask(lazy, some);
      Engine fresh(graph, setting.make(), 1);
      fresh.initialize();
      check_near(got, ask(fresh, some));
      check_near(got, ask(eager, some));
    }
    // Settled, every value is what initializing gives.
    lazy.settle();
    CHECK_EQ(lazy.pending(), 0u);
    Engine fresh(graph, setting.make(), 1);
    fresh.initialize();
    for (uint32_t v = 0; v < lazy.program().values.size(); ++v) {
      Floats got, expected;
      for (uint32_t node : nodes_of(graph)) {
        got.insert(got.end(), lazy.rows(v).row(node), lazy.rows(v).row(node) + lazy.rows(v).width);
        expected.insert(expected.end(), fresh.rows(v).row(node), fresh.rows(v).row(node) + fresh.rows(v).width);
      }
      check_near(got, expected);
    }
  }
}

// Batches and queries whose allocations fail leave no trace, and a commit needs none.
TEST(lazy_engine_is_as_it_was_after_any_allocation_that_fails) {
  Random random;
  for (const Setting& setting : kSettings) {
    Graph graph({kFeatures}, {{0, 0, setting.options}});
    Stream stream(&graph, true);
    apply(stream.begin(60, 240), &graph, {});
    Engine lazy(graph, setting.make(), 2), untroubled(graph, setting.make(), 2);
    for (Engine* each : {&lazy, &untroubled}) {
      each->initialize();
      CHECK(each->be_lazy(setting.eager));
    }
    EngineView view(lazy), other(untroubled);
    size_t failures = 0;
    for (int batch = 0; batch < 12; ++batch) {
      const Delta delta = stream.next(1 + random.below(20));
      failures += testing::fail_each_allocation([&] { prepare(delta, &graph, {&view}); }, [] {});
      graph.abandon();
      view.abandon();
      const std::vector<uint32_t> all = nodes_of(graph);
      if (batch % 2 == 0) CHECK(same_bits(ask(lazy, all), ask(untroubled, all)));
      prepare(delta, &graph, {&view, &other});
      {
        std::unique_lock lock(graph.lock);
        graph.commit(delta);
        const size_t made = testing::allocations;
        for (EngineView* each : {&view, &other}) each->commit();
        CHECK_EQ(testing::allocations - made, 0u);
      }
      for (EngineView* each : {&view, &other}) each->settle();
      graph.settle();
      const std::vector<uint32_t> nodes = nodes_of(graph);
      if (batch % 3 == 0) continue;
      Floats got;
      failures += testing::fail_each_allocation([&] { got = ask(lazy, nodes); }, [] {});
      CHECK(same_bits(got, ask(untroubled, nodes)));
    }
    CHECK(failures > 50);
  }
}

TEST(lazy_engine_gives_the_same_bits_whoever_asks_and_on_any_number_of_threads) {
  Random random;
  for (const Setting& setting : kSettings) {
    Graph graph({kFeatures}, {{0, 0, setting.options}});
    Stream stream(&graph, false);
    apply(stream.begin(1500, 9000), &graph, {});
    Engine one(graph, setting.make(), 1), three(graph, setting.make(), 3);
    EngineView first(one), second(three);
    for (Engine* engine : {&one, &three}) {
      engine->initialize();
      CHECK(engine->be_lazy(setting.eager));
    }
    for (int batch = 0; batch < 6; ++batch) {
      apply(stream.next(batch % 2 == 0 ? 300 : 10), &graph, {&first, &second});
      const std::vector<uint32_t> all = nodes_of(graph);
      ask(one, {all[random.below(all.size())], all[random.below(all.size())]});
      if (batch % 2 == 1) CHECK(same_bits(ask(one, all), ask(three, all)));
    }
    one.settle();
    three.settle();
    for (uint32_t v = 0; v < one.program().values.size(); ++v) {
      for (uint32_t node : nodes_of(graph)) {
        CHECK(std::memcmp(one.rows(v).row(node), three.rows(v).row(node), one.rows(v).width * sizeof(float)) == 0);
      }
    }
    for (size_t p = 0; p < one.program().propagations.size(); ++p) CHECK(one.errors(p) == three.errors(p));
    // What rounding may have done is known of rows to which differences were added.
    const Floats errors = one.errors(0);
    CHECK(std::any_of(errors.begin(), errors.end(), [](float error) { return error > 0; }));
  }
}

TEST(lazy_engine_computes_only_what_is_asked_for) {
  Graph graph({kFeatures}, {{0, 0, {}}});
  {
    // A line: node i is read by node i + 1.
    Stage stage(graph);
    Random random;
    for (int64_t id = 0; id < 20; ++id) stage.add_nodes(0, &id, random.floats(kFeatures).data(), kFeatures, 1);
    for (int64_t id = 0; id < 19; ++id) {
      const int64_t next = id + 1;
      stage.add_edges(0, &id, &next, nullptr, nullptr, nullptr, 0, 1);
    }
    apply(stage.finish(), &graph, {});
  }
  Engine engine(graph, three_layers(false, Aggregate::kSum, Random()), 1);
  engine.initialize();
  CHECK(engine.be_lazy(1));
  EngineView view(engine);
  Stage stage(graph);
  const int64_t id = 5;
  stage.set_features(0, &id, Floats(kFeatures, 2.0f).data(), kFeatures, 1);
  apply(stage.finish(), &graph, {&view});
  std::vector<uint32_t> changed = view.prepared().changed;
  std::sort(changed.begin(), changed.end());
  CHECK(changed == (std::vector<uint32_t>{5, 6, 7, 8}));  // its own row, and three hops along edges
  CHECK_EQ(engine.pending(), 4u);
  CHECK_EQ(engine.work().rows, 0u);
  ask(engine, {0, 1, 2, 3, 4, 9, 10, 19});
  CHECK_EQ(engine.work().rows, 0u);
  CHECK_EQ(engine.work().edges, 0u);
  ask(engine, {5});
  CHECK_EQ(engine.pending(), 3u);
  const LazyWork after = engine.work();
  CHECK(after.rows > 0);
  ask(engine, {5});
  CHECK_EQ(engine.work().rows, after.rows);
  ask(engine, {5, 6, 7, 8});
  CHECK_EQ(engine.pending(), 0u);
}

TEST(lazy_engine_forgets_edges_that_are_again_as_they_were) {
  EdgeRecord record;
  auto merge = [&](std::span<const DirectedChange> changes) {
    record.prepare(changes);
    record.merge();
  };
  const auto change = [](uint32_t source, float old_weight, float new_weight) {
    return DirectedChange{source, 7, old_weight, new_weight, old_weight > 0, new_weight > 0, 0, nullptr, nullptr};
  };
  const DirectedChange added = change(3, 0, 2), heavier = change(3, 2, 5), gone = change(3, 5, 0);
  merge({&added, 1});
  merge({&heavier, 1});
  CHECK_EQ(record.of(7).size(), 1u);
  CHECK_EQ(record.of(7)[0].new_weight, 5.0f);
  CHECK(!record.of(7)[0].had);
  merge({&gone, 1});
  CHECK_EQ(record.of(7).size(), 0u);
  CHECK_EQ(record.size(), 0u);
  const DirectedChange lost[] = {change(2, 1, 0), change(4, 1, 0)};
  merge(lost);
  const DirectedChange back = change(4, 0, 1);
  merge({&back, 1});
  CHECK_EQ(record.size(), 1u);
  CHECK_EQ(record.of(7)[0].source, 2u);
}

TEST(lazy_engine_is_asked_while_batches_are_applied) {
  Graph graph({kFeatures}, {{0, 0, {{true, false}, false, false}}});
  Stream stream(&graph, true);
  apply(stream.begin(300, 1500), &graph, {});
  Engine engine(graph, three_layers(true, Aggregate::kSum, Random()), 2);
  engine.initialize();
  CHECK(engine.be_lazy(1));
  EngineView view(engine);
  std::atomic<bool> stop{false};
  std::vector<std::thread> askers;
  for (uint32_t t = 0; t < 3; ++t) {
    askers.emplace_back([&, t] {
      Floats out(4 * engine.output_width());
      for (uint32_t i = t; !stop.load(); i += 7) {
        std::shared_lock lock(graph.lock);
        std::vector<uint32_t> nodes;
        for (uint32_t k = 0; k < 4; ++k) {
          const uint32_t node = (i * 31 + k * 17) % static_cast<uint32_t>(graph.nodes[0].ids.capacity());
          if (graph.nodes[0].ids.in_use(node)) nodes.push_back(node);
        }
        engine.predict(nodes, out.data());
      }
    });
  }
  for (int batch = 0; batch < 150; ++batch) {
    apply(stream.next(8), &graph, {&view});
    if (batch % 40 == 39) engine.settle();
  }
  stop.store(true);
  for (std::thread& asker : askers) asker.join();
  Engine fresh(graph, three_layers(true, Aggregate::kSum, Random()), 1);
  fresh.initialize();
  check_near(ask(engine, nodes_of(graph)), ask(fresh, nodes_of(graph)));
}

TEST(lazy_engine_says_when_it_is_outgrown) {
  Graph graph({kFeatures}, {{0, 0, {}}});
  Stream stream(&graph, false);
  apply(stream.begin(400, 1600), &graph, {});
  Engine engine(graph, three_layers(false, Aggregate::kSum, Random()), 1);
  engine.initialize();
  CHECK(engine.be_lazy(1));
  EngineView view(engine);
  size_t batches = 0;
  Delta next = stream.next(100);
  for (; !engine.outgrown_by(next); next = stream.next(100), ++batches) apply(next, &graph, {&view});
  CHECK(batches > 10 && batches < 40);
  const size_t bytes = engine.record_bytes();
  engine.settle();
  CHECK(engine.record_bytes() < bytes);
  apply(next, &graph, {&view});  // the nodes that it adds may be in the next one
  CHECK(!engine.outgrown_by(stream.next(1)));
}

}  // namespace livegnn
