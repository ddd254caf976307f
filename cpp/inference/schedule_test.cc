// Batches depth by depth: several at once, and what may happen between two depths.
#include "inference/schedule.h"

#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "inference/engine_model.h"
#include "inference/rows/changes_model.h"
#include "testing/testing.h"

namespace livegnn::schedule_test {

using namespace testing;

namespace {

// All that a prepared batch makes of the nodes that there were.
struct Outcome {
  Outcome(const Engine& engine, const Prepared& prepared) : changed(prepared.changed) {
    const std::vector<uint32_t> nodes = nodes_in_use(engine);
    for (uint32_t value = 0; value < engine.program().values.size(); ++value) {
      rows.emplace_back(nodes.size() * engine.program().values[value].width);
      engine.read_rows(prepared, value, nodes, rows.back().data());
    }
  }
  bool operator==(const Outcome& other) const { return changed == other.changed && same_bits(rows, other.rows); }

  std::vector<uint32_t> changed;
  std::vector<Floats> rows;
};

// A back end of another kind: it says what it is asked for, and wants the first batch twice.
class Witness final : public Backend {
 public:
  struct Nothing final : Prepared {
    size_t settle() override { return 0; }
  };

  const Program& program() const override { return program_; }
  void initialize() override {}
  std::unique_ptr<Prepared> new_prepared() const override { return std::make_unique<Nothing>(); }
  size_t depths() const override { return 3; }
  void begin(const Delta&, Prepared*) override { said += "begin "; }
  void prepare_depth(size_t depth, Prepared*) override { said += std::to_string(depth) + " "; }
  bool finish(Prepared*) override {
    said += "finish ";
    return again-- > 0;
  }
  void reserve(const Delta&, const Prepared&) override {}
  void commit(const Delta&, const Prepared&) noexcept override {}
  void release() noexcept override {}
  void read_rows(uint32_t, std::span<const uint32_t>, float*) const override {}
  void read_rows(const Prepared&, uint32_t, std::span<const uint32_t>, float*) const override {}
  void save(Arrays*) const override {}
  void load(const ArrayViews&) override {}

  std::string said;
  int again = 1;

 private:
  Program program_;
};

}  // namespace

TEST(a_batch_goes_from_depth_to_depth_with_an_exchange_before_each_but_the_first) {
  Witness backend;
  const std::unique_ptr<Prepared> prepared = backend.new_prepared();
  prepare_depths(&backend, Delta(), prepared.get(),
                 [&](size_t depth) { backend.said += "rows for " + std::to_string(depth) + ": "; });
  CHECK_EQ(backend.said, std::string("begin 0 rows for 1: 1 rows for 2: 2 finish "
                                     "0 rows for 1: 1 rows for 2: 2 finish "));
  backend.said.clear();
  backend.again = 0;
  prepare_depths(&backend, Delta(), prepared.get());
  CHECK_EQ(backend.said, std::string("begin 0 1 2 finish "));
}

TEST(batches_prepared_at_once_come_out_as_one_after_the_other) {
  for (const Setting& setting : kSettings) {
    Graph graph({kFeatures}, {{0, 0, setting.options, setting.edge_features}});
    EventStream stream(&graph);
    commit(stream.begin(60, 250), &graph, {});
    Engine engine(graph, setting.make(), 2);
    engine.initialize();
    constexpr size_t kBatches = 4;
    for (int round = 0; round < 3; ++round) {
      std::vector<Delta> deltas;
      std::vector<Outcome> expected;
      Preparation alone;
      for (size_t b = 0; b < kBatches; ++b) {
        deltas.push_back(stream.branch(b).next(20));  // each knows nothing of the others
        engine.prepare(deltas.back(), &alone);
        expected.emplace_back(engine, alone);
      }
      Preparation prepared[kBatches];
      std::vector<std::thread> threads;
      for (size_t b = 0; b < kBatches; ++b) {
        threads.emplace_back([&, b] {
          for (int i = 0; i < 5; ++i) engine.prepare(deltas[b], &prepared[b]);
        });
      }
      for (std::thread& thread : threads) thread.join();
      for (size_t b = 0; b < kBatches; ++b) CHECK(Outcome(engine, prepared[b]) == expected[b]);
      const Delta next = stream.next(30);
      engine.prepare(next, &alone);
      commit(next, &graph, {{&engine, &alone}});
    }
  }
}

TEST(rows_that_a_depth_reads_are_complete_before_it) {
  for (const Setting& setting : kSettings) {
    Graph graph({kFeatures}, {{0, 0, setting.options, setting.edge_features}});
    EventStream stream(&graph);
    commit(stream.begin(60, 250), &graph, {});
    Engine engine(graph, setting.make(), 1);
    engine.initialize();
    const std::vector<PropagateStep>& steps = engine.program().propagations;
    CHECK_EQ(engine.depths(), steps.size() + 1);
    Preparation prepared;
    for (int batch = 0; batch < 10; ++batch) {
      const Delta delta = stream.next(8);
      std::vector<std::vector<Floats>> seen(engine.depths());
      // What the propagation of a depth reads of its sources.
      const auto read = [&](size_t depth) {
        const PropagateStep& step = steps[depth - 1];
        std::vector<uint32_t> values;
        if (step.message == kNoIndex) values.push_back(step.input);
        if (step.message != kNoIndex) {
          for (const MessageSource& source : engine.program().messages[step.message].sources) {
            if (source.side == MessageSource::kSource) values.push_back(source.value);
          }
        }
        std::vector<Floats> rows;
        for (uint32_t value : values) {
          const std::vector<uint32_t> nodes = nodes_in_use(engine);
          rows.emplace_back(nodes.size() * engine.program().values[value].width);
          engine.read_rows(prepared, value, nodes, rows.back().data());
        }
        return rows;
      };
      size_t last = 0;
      prepare_depths(&engine, delta, &prepared, [&](size_t depth) {
        CHECK(depth == last + 1 || depth == 1);  // from the first one again, where units have fallen
        last = depth;
        seen[depth] = read(depth);
      });
      CHECK_EQ(last, engine.depths() - 1);
      for (size_t depth = 1; depth < engine.depths(); ++depth) CHECK(same_bits(seen[depth], read(depth)));
      commit(delta, &graph, {{&engine, &prepared}});
    }
  }
}

// Another machine has reached the nodes that it sends in an order of its own.
TEST(an_exchange_may_change_the_order_of_rows) {
  Random random;
  for (const Setting& setting : kSettings) {
    Graph graph({kFeatures}, {{0, 0, setting.options, setting.edge_features}});
    EventStream stream(&graph);
    commit(stream.begin(150, 900), &graph, {});
    Engine engine(graph, setting.make(), 1), other(graph, setting.make(), 1);
    engine.initialize();
    other.initialize();
    Preparation prepared, shuffled;
    for (size_t batch = 0; batch < 12; ++batch) {
      const Delta delta = stream.next(batch % 4 == 3 ? 300 : 8);
      engine.prepare(delta, &prepared);
      prepare_depths(&other, delta, &shuffled, [&](size_t) {
        for (uint32_t v = 0; v < other.program().values.size(); ++v) {
          shuffle(other.program().values[v].width, &random, &shuffled.batch.changes.rows[v]);
        }
      });
      commit(delta, &graph, {{&engine, &prepared}, {&other, &shuffled}});
      CHECK(Kept(&engine) == Kept(&other));
    }
  }
}

TEST(an_exchange_that_fails_leaves_the_engine_as_it_was) {
  for (const Setting& setting : kSettings) {
    Graph graph({kFeatures}, {{0, 0, setting.options, setting.edge_features}});
    EventStream stream(&graph);
    commit(stream.begin(60, 250), &graph, {});
    Engine engine(graph, setting.make(), 1), other(graph, setting.make(), 1);
    engine.initialize();
    other.initialize();
    Preparation prepared, plainly;
    for (size_t batch = 0; batch < 10; ++batch) {
      const Delta delta = stream.next(8);
      const Kept before(&engine);
      CHECK_THROWS(prepare_depths(&engine, delta, &prepared,
                                  [&](size_t depth) {
                                    if (depth == 1 + batch % (engine.depths() - 1)) throw std::runtime_error("lost");
                                  }),
                   std::runtime_error, "lost");
      CHECK(Kept(&engine) == before);
      engine.prepare(delta, &prepared);
      other.prepare(delta, &plainly);
      CHECK(Outcome(engine, prepared) == Outcome(other, plainly));
      commit(delta, &graph, {{&engine, &prepared}, {&other, &plainly}});
      CHECK(Kept(&engine) == Kept(&other));
    }
  }
}

}  // namespace livegnn::schedule_test
