// Aggregates that are kept of nodes with many in-edges alone.
#include <set>
#include <vector>

#include "inference/engine_model.h"
#include "testing/testing.h"

namespace livegnn::kept_nodes_test {

using namespace testing;

TEST(kept_nodes_keep_what_all_would) {
  size_t came = 0;  // batches with more kept nodes after them: of all settings, since one alone may have none
  for (const Setting& setting : kSettings) {
    if (!setting.make().messages.empty()) continue;  // those are kept of every node
    for (size_t threads : {1, 2}) {
      Graph graph({kFeatures}, {{0, 0, setting.options, setting.edge_features}});
      EventStream stream(&graph);
      commit(stream.begin(60, 250), &graph, {});
      constexpr size_t kDegree = 5;
      Engine plain(graph, setting.make(), threads);
      Engine sparse(graph, keeping_aggregates(setting.make()), threads, "", kDegree);
      for (Engine* engine : {&plain, &sparse}) engine->initialize();
      Preparation prepared[2];
      for (size_t batch = 0; batch < testing::draws(10, 30); ++batch) {
        const std::vector<uint32_t> before = sparse.state().rows.kept_nodes_of(0);
        const Delta delta = stream.next(batch % 10 == 9 ? 150 : 8);
        plain.prepare(delta, &prepared[0]);
        sparse.prepare(delta, &prepared[1]);
        commit(delta, &graph, {{&plain, &prepared[0]}, {&sparse, &prepared[1]}});
        check_near({all_predictions(sparse)}, {all_predictions(plain)});
        // Whoever has come below the degree may stay for one edge less.
        const std::vector<uint32_t> kept_nodes = sparse.state().rows.kept_nodes_of(0);
        std::set<uint32_t> kept;
        for (uint32_t node : kept_nodes) {
          if (node == kNoIndex) continue;
          CHECK(kept.insert(node).second);
          CHECK(graph.edges[0].store->degree_in(node) + 1 >= kDegree);
        }
        for (uint32_t node : nodes_in_use(sparse)) {
          CHECK(kept.contains(node) || graph.edges[0].store->degree_in(node) < kDegree);
        }
        came += kept.size() > before.size();
        const std::vector<uint32_t> nodes = nodes_in_use(sparse);
        for (size_t p = 0; p < plain.program().propagations.size(); ++p) check_scrub(sparse.scrub(p, nodes));
      }
    }
  }
  CHECK(came > 0);
}

}  // namespace livegnn::kept_nodes_test
