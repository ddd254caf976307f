#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <vector>

#include "store/graph_model.h"
#include "testing/testing.h"

namespace livegnn::graph_growth_test {

using namespace testing;

namespace {

// Two columns for the first type, another node type, and edges from it to the first.
GraphGrowth growth_of(const Graph& graph) {
  GraphGrowth growth;
  growth.columns.resize(graph.nodes.size());
  growth.columns[0] = {7, -2};
  growth.widths = {3};
  EdgeTypeSpec spec{static_cast<uint32_t>(graph.nodes.size()), 0, {}, 2};
  growth.edge_types = {spec};
  return growth;
}

void fill(Graph* graph) {
  Stage stage(*graph);
  const std::vector<int64_t> ids{5, 6, 7};
  std::vector<float> x(ids.size() * graph->nodes[0].features.width());
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i + 1);
  stage.add_nodes(0, ids.data(), x.data(), graph->nodes[0].features.width(), ids.size());
  apply_delta(stage.finish(), graph);
  Stage removing(*graph);
  removing.remove_nodes(0, ids.data() + 1, 1);
  apply_delta(removing.finish(), graph);
}

}  // namespace

TEST(graph_growth_keeps_old_columns_and_fills_new_ones) {
  Graph graph(kWidths, kEdgeTypes);
  fill(&graph);
  const size_t width = graph.nodes[0].features.width(), node_types = graph.nodes.size();
  const std::vector<float> old(graph.nodes[0].features.row(0), graph.nodes[0].features.row(0) + width);
  graph.prepare_growth(growth_of(graph));
  CHECK_EQ(graph.nodes[0].features.width(), width);  // readers go on
  graph.commit_growth();
  graph.settle_growth();
  const NodeFeatures& features = graph.nodes[0].features;
  CHECK_EQ(features.width(), width + 2);
  CHECK(std::equal(old.begin(), old.end(), features.row(0)));
  CHECK_EQ(features.row(0)[width], 7.0f);
  CHECK_EQ(features.row(0)[width + 1], -2.0f);
  const uint32_t removed = 1;  // a free row is zero
  CHECK(std::all_of(features.row(removed), features.row(removed) + features.stride(), [](float v) { return v == 0; }));
  CHECK(std::equal(old.begin(), old.end(), features.find(width)->row(0)));
  CHECK(features.find(width + 1) == nullptr);
  CHECK_EQ(graph.nodes.size(), node_types + 1);
  CHECK_EQ(graph.edges.back().store->num_targets(), graph.nodes[0].ids.capacity());
  graph.edges.back().store->check();
}

TEST(graph_growth_writes_narrower_rows_with_every_batch) {
  Graph graph(kWidths, kEdgeTypes);
  fill(&graph);
  const size_t width = graph.nodes[0].features.width();
  graph.prepare_growth(growth_of(graph));
  graph.commit_growth();
  graph.settle_growth();
  Stage stage(graph);
  std::vector<int64_t> ids(40);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int64_t>(i);
  std::vector<float> x(ids.size() * (width + 2));
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i);
  stage.add_nodes(0, ids.data(), x.data(), width + 2, ids.size());
  apply_delta(stage.finish(), &graph);
  const NodeFeatures& features = graph.nodes[0].features;
  for (uint32_t node = 0; node < features.rows(); ++node) {
    const float* const narrow = features.find(width)->row(node);
    CHECK(std::equal(narrow, narrow + width, features.row(node)));
  }
  CHECK_EQ(features.find(width)->rows(), features.rows());
}

TEST(graph_growth_that_is_abandoned_changes_nothing) {
  Graph graph(kWidths, kEdgeTypes);
  fill(&graph);
  const size_t width = graph.nodes[0].features.width();
  graph.prepare_growth(growth_of(graph));
  graph.abandon_growth();
  CHECK_EQ(graph.nodes[0].features.width(), width);
  CHECK_EQ(graph.nodes.size(), kWidths.size());
  CHECK_EQ(graph.nodes[0].features.number_of_narrower(), 0u);
}

TEST(graph_keeps_narrower_rows_of_a_width_that_it_has) {
  Graph graph(kWidths, kEdgeTypes);
  fill(&graph);
  const size_t width = graph.nodes[0].features.width();
  graph.keep_narrower(0, width);
  CHECK_EQ(graph.nodes[0].features.number_of_narrower(), 0u);
  if (width > 1) {
    graph.keep_narrower(0, width - 1);
    CHECK_EQ(graph.nodes[0].features.find(width - 1)->row(0)[0], graph.nodes[0].features.row(0)[0]);
  }
  CHECK_THROWS(graph.keep_narrower(0, width + 1), std::invalid_argument, "expected at most 3 columns");
}

}  // namespace livegnn::graph_growth_test
