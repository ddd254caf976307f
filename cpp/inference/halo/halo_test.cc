#include "inference/halo/halo.h"

#include <algorithm>
#include <vector>

#include "inference/halo/parts_model.h"
#include "testing/allocations.h"
#include "testing/testing.h"

namespace livegnn::halo_test {

using namespace testing;

namespace {

// Sums of sums of features, along edges and against them: aggregates are read along edges themselves.
Program sums_of_sums(bool weighted, Random random) {
  enum : uint32_t { kX, kSum, kBack, kOut };
  Program program;
  program.values = {
      {0, kFeatures, true, 0}, {0, kFeatures, false, 0}, {0, kFeatures, false, 1}, {0, kClasses, false, 2}};
  program.output = kOut;
  propagate(&program, kX, kSum, Aggregate::kSum, weighted);
  propagate(&program, kSum, kBack, Aggregate::kSum, weighted);
  program.propagations[1].reversed = true;
  program.propagations[0].averaged = !weighted;
  RowsBuilder rows(&program, {kX, kSum, kBack});
  const uint32_t out = rows.linear(rows.apply(OpKind::kAdd, {0, rows.apply(OpKind::kAdd, {1, 2})}), kClasses, &random);
  rows.finish({{out, kOut}});
  return program;
}

const Setting kMore[] = {
    {"sums of sums, directed, weighted", {{true, false}, false, false}, sums_of_sums},
    {"sums of sums, undirected", {{false, false}, true, false}, sums_of_sums},
    {"gcn, both ways, weighted", {{true, true}, false, true}, both_ways<gcn>},
};

template <class Test>
void for_all_settings(const Test& test) {
  for (const Setting& setting : kSettings) test(setting);
  for (const Setting& setting : kMore) test(setting);
}

struct One {
  One(const EdgeTypeSpec& spec, Program program)
      : own(std::make_unique<Graph>(std::vector<size_t>{kFeatures}, std::vector{spec})),
        graph(*own),
        engine(graph, std::move(program), 1) {
    begin();
  }
  One(Graph* of, Program program) : graph(*of), engine(graph, std::move(program), 1) { begin(); }
  void begin() {
    engine.set_guard(true);
    engine.initialize();
  }
  void prepare(const StagedEvents& events) {
    delta = stage_all(graph, events);
    engine.prepare(delta, &prepared);
  }
  void commit() { testing::commit(delta, &graph, {{&engine, &prepared}}); }

  const std::unique_ptr<Graph> own;
  Graph& graph;
  Engine engine;
  Preparation prepared;
  Delta delta;
};

// What a batch does to the predictions: of all parts together, and of the undivided graph.
void check_effects(const DividedGraph& divided, const One& one) {
  Effects sum;
  for (const auto& part : divided.parts) {
    const Prepared& prepared = part->prepared;
    sum.changed.insert(sum.changed.end(), prepared.changed.begin(), prepared.changed.end());
    sum.affected += prepared.affected;
    sum.edges_touched += prepared.edges_touched;
    sum.nodes_touched += prepared.nodes_touched;
    sum.recomputed += prepared.recomputed;
    CHECK_EQ(part->prepared.batch.totals.affected, one.prepared.batch.totals.affected);
    CHECK_EQ(part->prepared.batch.totals.touched, one.prepared.batch.totals.touched);
    CHECK_EQ(part->prepared.batch.totals.messages, one.prepared.batch.totals.messages);
    CHECK_EQ(prepared.lost, one.prepared.lost);
    CHECK_EQ(prepared.lost_step, one.prepared.lost_step);
  }
  if (one.prepared.lost != kNoIndex) return;
  std::vector<uint32_t> changed = one.prepared.changed;
  std::sort(changed.begin(), changed.end());
  std::sort(sum.changed.begin(), sum.changed.end());
  CHECK(sum.changed == changed);
  CHECK_EQ(sum.affected, one.prepared.affected);
  CHECK_EQ(sum.edges_touched, one.prepared.edges_touched);
  CHECK_EQ(sum.recomputed, one.prepared.recomputed);
}

// Applies batches to both, and compares them after each. Returns how many were refused because a row would not be
// finite.
size_t follow(DividedGraph* of, One* alone, SharedStream* stream, size_t batches, size_t events) {
  DividedGraph& divided = *of;
  One& one = *alone;
  const Owners& owners = divided.parts[0]->graph.part->rule(0);
  Random random;
  size_t refused = 0;
  for (size_t batch = 0; batch < batches; ++batch) {
    const bool empty = one.graph.nodes[0].ids.size() == 0;
    const StagedEvents more = stream->next(empty ? 30 * events : batch % 10 == 9 ? 10 * events : events);
    one.prepare(more);
    std::vector<uint16_t> given;
    while (owners.rule() == OwnerRule::kTable && given.size() < more.size()) {
      given.push_back(static_cast<uint16_t>(random.below(owners.workers())));
    }
    divided.stage(more, given);
    divided.prepare();
    check_effects(divided, one);
    if (one.prepared.lost != kNoIndex) {
      divided.abandon();
      stream->undo();
      ++refused;
      continue;
    }
    one.commit();
    divided.commit();
    check_equal_to_one(divided, one.engine);
  }
  CHECK(one.engine.moments().measured >= 4);
  return refused;
}

size_t check_stream(const Setting& setting, const Owners& owners, float magnitude, size_t batches, size_t events,
                    float least_weight = -1) {
  const EdgeTypeSpec spec{0, 0, setting.options, setting.edge_features};
  One one(spec, setting.make());
  DividedGraph divided(spec, [&] { return setting.make(); }, owners);
  SharedStream stream(owners.workers(), {magnitude, least_weight, setting.edge_features, setting.options.keyed});
  return follow(&divided, &one, &stream, batches, events);
}

}  // namespace

TEST(parts_keep_the_bits_of_an_undivided_graph) {
  size_t refused = 0;
  for_all_settings([&](const Setting& setting) {
    for (uint32_t parts : {1u, 2u, 3u}) {
      refused += check_stream(setting, Owners(OwnerRule::kModulo, parts), 1, testing::draws(45, 120), 4);
    }
  });
  CHECK(refused > 0);
}

// Many edges of each node, so that sums are updated by differences, and their rounding adds up.
TEST(parts_keep_the_bits_of_long_sums) {
  for_all_settings([](const Setting& setting) {
    check_stream(setting, Owners(OwnerRule::kJump, 3), 1, testing::draws(20, 60), 60, 0.1f);
  });
}

TEST(parts_keep_the_bits_of_features_of_any_magnitude) {
  for (float magnitude : {1e-30f, 1e-6f, 1e6f, 1e33f}) {
    for_all_settings([&](const Setting& setting) {
      check_stream(setting, Owners(OwnerRule::kModulo, 2), magnitude, testing::draws(25, 60), 4);
    });
  }
}

TEST(owners_may_be_given_to_nodes_as_they_arrive) {
  for_all_settings([](const Setting& setting) { check_stream(setting, Owners(OwnerRule::kTable, 3), 1, 30, 4); });
}

TEST(a_part_may_own_no_node) {
  for_all_settings([](const Setting& setting) {
    Owners::Moved moved;
    for (uint64_t id = 0; id < 200; ++id) moved.emplace_back(id, id % 2);
    check_stream(setting, Owners(OwnerRule::kModulo, 3, moved), 1, 20, 4);
  });
}

// Whichever part fails, and wherever: nothing has changed, and the batch that is tried again does what it does
// elsewhere.
TEST(parts_are_as_they_were_after_any_allocation_that_fails) {
  const Setting& setting = kMore[2];
  const EdgeTypeSpec spec{0, 0, setting.options, setting.edge_features};
  One one(spec, setting.make());
  DividedGraph divided(spec, [&] { return setting.make(); }, Owners(OwnerRule::kModulo, 2));
  SharedStream stream(1);
  size_t failures = 0;
  for (size_t batch = 0; batch < 6; ++batch) {
    const StagedEvents events = stream.next(batch == 0 ? 60 : 8);
    one.prepare(events);
    divided.stage(events);
    for (size_t n = 1;; n += 1 + n / 8) {
      try {
        divided.run([&](size_t, DividedGraph::Part* part) {
          FailingAllocation failing(n);
          part->graph.abandon();
          part->engine.release();
          part->graph.prepare(part->delta);
          part->engine.prepare(part->delta, &part->prepared);
          part->engine.reserve(part->delta, part->prepared);
        });
        break;
      } catch (const std::bad_alloc&) {
        ++failures;
      }
      divided.abandon();
      if (batch > 0) check_equal_to_one(divided, one.engine);
    }
    divided.abandon();
    divided.prepare();
    check_effects(divided, one);
    if (one.prepared.lost != kNoIndex) {
      divided.abandon();
      stream.undo();
      continue;
    }
    one.commit();
    divided.commit();
    check_equal_to_one(divided, one.engine);
  }
  CHECK(failures > 50);
}

TEST(a_part_that_gives_up_ends_the_batch_for_all) {
  const Setting& setting = kMore[0];
  const EdgeTypeSpec spec{0, 0, setting.options, setting.edge_features};
  One one(spec, setting.make());
  DividedGraph divided(spec, [&] { return setting.make(); }, Owners(OwnerRule::kModulo, 3));
  SharedStream stream(1);
  for (size_t batch = 0; batch < 12; ++batch) {
    const StagedEvents events = stream.next(batch == 0 ? 60 : 8);
    divided.stage(events);
    CHECK_THROWS(divided.run([&](size_t number, DividedGraph::Part* part) {
      part->graph.abandon();
      part->graph.prepare(part->delta);
      if (number == batch % 3) throw std::runtime_error("lost");
      part->engine.prepare(part->delta, &part->prepared);
    }),
                 std::runtime_error, "lost");
    divided.abandon();
    // What may outlive the engine holds none of its memory.
    for (const auto& part : divided.parts) CHECK(part->prepared.batch.workspace == nullptr);
    one.prepare(events);
    divided.prepare();
    check_effects(divided, one);
    one.commit();
    divided.commit();
    check_equal_to_one(divided, one.engine);
  }
}

TEST(an_engine_that_cannot_exchange_rows_is_refused) {
  LocalExchange exchange(2);
  const auto join = [&](Graph* graph, Program program) {
    Engine engine(*graph, std::move(program), 1);
    engine.join(&exchange.of(0), graph);
  };
  const EdgeTypeSpec spec{0, 0, {{true, false}, false, false}};
  Graph undivided({kFeatures}, {spec});
  CHECK_THROWS(join(&undivided, gcn(true, {})), std::invalid_argument, "only if its graph is a part of one");
  Graph graph({kFeatures}, {spec});
  graph.divide(std::make_unique<GraphPart>(Owners(OwnerRule::kModulo, 3), 0, 1));
  CHECK_THROWS(join(&graph, gcn(true, {})), std::invalid_argument, "between all parts of a graph");
  graph.divide(std::make_unique<GraphPart>(Owners(OwnerRule::kModulo, 2), GraphPart::kNone, 1));
  CHECK_THROWS(join(&graph, gcn(true, {})), std::invalid_argument, "a part without nodes");
  graph.divide(std::make_unique<GraphPart>(Owners(OwnerRule::kModulo, 2), 0, 1));
  CHECK_THROWS(join(&graph, keeping_aggregates(gcn(true, {}))), std::invalid_argument, "must keep what others read");
}

TEST(parts_of_a_graph_begin_with_the_bits_of_one_engine) {
  for_all_settings([](const Setting& setting) {
    for (uint32_t parts : {1u, 2u, 3u}) {
      const EdgeTypeSpec spec{0, 0, setting.options, setting.edge_features};
      SharedStream stream(parts, {1, -1, setting.edge_features, setting.options.keyed});
      Graph graph({kFeatures}, {spec});
      for (size_t batch = 0; batch < 12; ++batch) {
        commit(stage_all(graph, stream.next(batch == 0 ? 120 : 6)), &graph, {});
      }
      One one(&graph, setting.make());
      DividedGraph divided(graph, [&] { return setting.make(); }, Owners(OwnerRule::kModulo, parts));
      check_equal_to_one(divided, one.engine);
      follow(&divided, &one, &stream, testing::draws(20, 60), 4);
    }
  });
}

// Also where it fails: what is tried again computes everything.
TEST(parts_of_a_graph_begin_together_or_not) {
  const Setting& setting = kMore[2];
  const EdgeTypeSpec spec{0, 0, setting.options, setting.edge_features};
  SharedStream stream(1);
  Graph graph({kFeatures}, {spec});
  commit(stage_all(graph, stream.next(120)), &graph, {});
  One one(&graph, setting.make());
  DividedGraph divided(graph, [&] { return setting.make(); }, Owners(OwnerRule::kModulo, 3));
  for (size_t failing = 0; failing < 3; ++failing) {
    CHECK_THROWS(divided.run([&](size_t number, DividedGraph::Part* part) {
      if (number == failing) throw std::runtime_error("lost");
      part->engine.initialize();
    }),
                 std::runtime_error, "lost");
    divided.initialize();
    check_equal_to_one(divided, one.engine);
  }
}

TEST(a_part_takes_no_rows_of_nodes_that_the_sender_does_not_own) {
  const Setting& setting = kMore[0];
  const EdgeTypeSpec spec{0, 0, setting.options, setting.edge_features};
  SharedStream stream(1);
  Graph graph({kFeatures}, {spec});
  commit(stage_all(graph, stream.next(120)), &graph, {});
  const auto make = [&] { return setting.make(); };
  DividedGraph divided(graph, make, Owners(OwnerRule::kModulo, 2));
  DividedGraph other(graph, make, Owners(OwnerRule::kJump, 2));  // the same parts in number, of other nodes
  CHECK_THROWS(divided.run([&](size_t number, DividedGraph::Part* part) {
    if (number == 0) return part->engine.initialize();
    other.parts[1]->engine.join(&divided.exchange.of(1), &other.parts[1]->graph);
    other.parts[1]->engine.initialize();
  }),
               std::runtime_error, "the parts do not belong together");
}

}  // namespace livegnn::halo_test
