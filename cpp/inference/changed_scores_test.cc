#include "inference/changed_scores.h"

#include <cstring>
#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "inference/engine_model.h"
#include "inference/evaluation/edge_scores.h"
#include "testing/testing.h"

namespace livegnn::changed_scores_test {

using namespace testing;

namespace {

constexpr uint32_t kScores = 3;
using Name = std::tuple<int64_t, int64_t, uint32_t>;
using Scores = std::map<Name, std::vector<uint32_t>>;  // the bits of each row

std::vector<uint32_t> bits_of(const float* row) {
  std::vector<uint32_t> bits(kScores);
  std::memcpy(bits.data(), row, sizeof(float) * kScores);
  return bits;
}

// An edge output on the prediction at the source, a computed output at the target, and the edge's own columns.
Program with_scores(const Setting& setting, bool reads_targets) {
  Program program = setting.make();
  Random random;
  program.on_demand.push_back(
      RowsBuilder::on_edges(&program, {kClasses}, [](RowsBuilder* rows) { rows->apply(OpKind::kRelu, {0}); }));
  program.on_demand.back().sources = {program.output};
  program.on_demand.back().sinks = {{1, 0}};
  program.others.push_back({false, static_cast<uint32_t>(program.on_demand.size() - 1)});
  EdgeOutput output{0, 0, 0, {}, {}};
  output.sources = {{MessageSource::kSource, 0}, {MessageSource::kWeight, 0}};
  std::vector<uint32_t> widths = {kClasses, 1};
  if (reads_targets) {
    output.sources.push_back({MessageSource::kTarget, 1});
    widths.push_back(kClasses);
  }
  if (setting.edge_features > 0) {
    output.sources.push_back({MessageSource::kFeatures, 0});
    widths.push_back(kEdgeFeatures);
  }
  output.step = RowsBuilder::on_edges(&program, widths, [&](RowsBuilder* rows) {
    std::vector<uint32_t> inputs;
    uint32_t width = 0;
    for (uint32_t i = 0; i < widths.size(); ++i) {
      inputs.push_back(i);
      width += widths[i];
    }
    rows->linear(rows->apply(OpKind::kConcat, inputs, width), kScores, &random);
  });
  output.step.sinks = {{static_cast<uint32_t>(output.step.registers.size()) - 1, 0}};
  program.edge_outputs.push_back(std::move(output));
  return program;
}

// All edges, one by one.
Scores scores_of(const Engine& engine) {
  Scores all;
  const Graph& graph = engine.graph();
  const Table& table = graph.edges[0].features.table();
  const IdMap& ids = graph.nodes[0].ids;
  const ReadOutput read = [&](std::span<const uint32_t> nodes, size_t output, float* out) {
    engine.predict(nodes, out, output);
  };
  for (uint32_t source = 0; source < graph.edges[0].store->num_sources(); ++source) {
    graph.edges[0].store->scan_out(source, [&](const NeighborSpan& span) {
      for (size_t i = 0; i < span.size; ++i) {
        const float weight = span.weights == nullptr ? 1.0f : span.weights[i];
        const float* const features = table.width() == 0 ? nullptr : table.row(span.rows[i]);
        float row[kScores];
        score_pairs(engine.program(), 0, {{&source, 1}, {&span.ids[i], 1}, features, &weight}, read, row);
        all[{ids.id_of(source), ids.id_of(span.ids[i]), key_at(span, i)}] = bits_of(row);
      }
    });
  }
  return all;
}

Name name_at(const EdgeIds& edges, size_t i) { return {edges.sources[i], edges.targets[i], edges.keys[i]}; }

}  // namespace

TEST(changed_scores_are_those_that_differ_among_all_edges) {
  size_t changed = 0, removed = 0, kept = 0;
  for (const Setting& setting : kSettings) {
    for (bool reads_targets : {true, false}) {
      Graph graph({kFeatures}, {{0, 0, setting.options, setting.edge_features}});
      EventStream stream(&graph);
      commit(stream.begin(60, 900), &graph, {});
      Engine engine(graph, with_scores(setting, reads_targets), 1);
      engine.initialize();
      Preparation prepared;
      for (size_t batch = 0; batch < 12; ++batch) {
        const Delta delta = stream.next(batch % 4 == 0 ? 40 : 2);
        engine.prepare(delta, &prepared);
        const Scores before = scores_of(engine);
        const ChangedScores found = changed_scores(engine, prepared, 0, ~size_t{0});
        const ChangedScores refused = changed_scores(engine, prepared, 0, found.reached - 1);
        CHECK(found.complete);
        CHECK_EQ(found.rows.size(), found.edges.size() * kScores);
        if (found.reached > 0) {
          CHECK(!refused.complete && refused.edges.size() == 0 && refused.removed.size() == 0);
          CHECK_EQ(refused.reached, found.reached);
        }
        commit(delta, &graph, {{&engine, &prepared}});
        const Scores after = scores_of(engine);
        Scores expected;
        std::set<Name> gone, listed;
        for (const auto& [name, bits] : after) {
          const auto old = before.find(name);
          if (old == before.end() || old->second != bits) expected[name] = bits;
        }
        for (const auto& [name, bits] : before) {
          if (after.find(name) == after.end()) gone.insert(name);
        }
        Scores given;
        for (size_t i = 0; i < found.edges.size(); ++i) {
          given[name_at(found.edges, i)] = bits_of(found.rows.data() + i * kScores);
        }
        for (size_t i = 0; i < found.removed.size(); ++i) listed.insert(name_at(found.removed, i));
        CHECK_EQ(given.size(), found.edges.size());
        CHECK_EQ(listed.size(), found.removed.size());
        CHECK(given == expected);
        CHECK(listed == gone);
        CHECK(found.reached >= given.size() + listed.size());
        changed += given.size();
        removed += listed.size();
        kept += after.size() - given.size();
      }
    }
  }
  CHECK(changed > 1000 && removed > 100 && kept > 1000);
}

// A node that is removed and added again has another index; an edge of it is not removed for the user.
TEST(an_edge_whose_end_is_replaced_is_changed_and_not_removed) {
  const Setting& setting = kSettings[0];
  Graph graph({kFeatures}, {{0, 0, setting.options, 0}});
  EventStream stream(&graph);
  commit(stream.begin(8, 20), &graph, {});
  Engine engine(graph, with_scores(setting, true), 1);
  engine.initialize();
  Name edge;
  const Scores before = scores_of(engine);
  for (const auto& [name, bits] : before) {
    if (std::get<0>(name) != std::get<1>(name)) edge = name;
  }
  const auto [source, target, key] = edge;
  Stage stage(graph);
  const float weight = 1.5f;
  const double time = 99;
  stage.remove_nodes(0, &source, 1);
  stage.add_nodes(0, &source, nullptr, 0, 1);
  stage.add_edges(0, &source, &target, &weight, &time, nullptr, 0, 1);
  const Delta delta = stage.finish();
  Preparation prepared;
  engine.prepare(delta, &prepared);
  const ChangedScores found = changed_scores(engine, prepared, 0, ~size_t{0});
  std::set<Name> listed, gone;
  for (size_t i = 0; i < found.edges.size(); ++i) listed.insert(name_at(found.edges, i));
  for (size_t i = 0; i < found.removed.size(); ++i) gone.insert(name_at(found.removed, i));
  CHECK(listed.count(edge) == 1 && gone.count(edge) == 0);
  commit(delta, &graph, {{&engine, &prepared}});
  const Scores after = scores_of(engine);
  for (const Name& name : gone) CHECK(before.count(name) == 1 && after.count(name) == 0);
  CHECK_EQ(before.size() - gone.size(), after.size());
}

}  // namespace livegnn::changed_scores_test
