// The nodes whose features a part holds, edge by edge. Random streams are followed in graph_part_test.cc, and the rows
// that parts send each other in inference/halo/halo_test.cc.
#include "store/part_features.h"

#include <memory>
#include <mutex>
#include <vector>

#include "store/stage.h"
#include "testing/allocations.h"
#include "testing/testing.h"

namespace livegnn::part_features_test {

using namespace testing;

namespace {

using Nodes = std::vector<uint32_t>;

// Part 0 of two: it owns the even ones of six nodes.
struct Evens {
  Evens() {
    graph.divide(std::make_unique<GraphPart>(Owners(OwnerRule::kTable, 2), 0, 1));
    graph.part->give(0, std::vector<uint16_t>{0, 1, 0, 1, 0, 1});
    graph.part->read_features({true, false});
    Stage stage(graph);
    for (int64_t id = 0; id < 6; ++id) {
      const float x = static_cast<float>(id + 1);
      stage.add_nodes(0, &id, &x, 1, 1);
    }
    apply(&stage);
  }

  // A batch in whose preparation any allocation may fail.
  void apply(Stage* stage) {
    const Delta delta = stage->finish();
    const Nodes before = held();
    const auto unchanged = [&] { CHECK(held() == before); };
    fail_each_allocation(
        [&] {
          graph.abandon();
          graph.prepare(delta);
        },
        unchanged);
    unchanged();
    {
      std::unique_lock lock(graph.lock);
      graph.commit(delta);
    }
    graph.settle();
  }
  void change_edge(int64_t source, int64_t target, bool add) {
    Stage stage(graph);
    if (add) {
      stage.add_edges(0, &source, &target, nullptr, nullptr, nullptr, 0, 1);
    } else {
      stage.remove_edges(0, &source, &target, 1);
    }
    apply(&stage);
  }
  void set(int64_t id, float x) {
    Stage stage(graph);
    stage.set_features(0, &id, &x, 1, 1);
    apply(&stage);
  }
  Nodes held() const { return graph.nodes[0].features.held(); }
  float x(uint32_t node) const { return graph.nodes[0].features.row(node)[0]; }

  Graph graph{{1}, {{0, 0, {{false, false}, false, true}}}};
};

}  // namespace

TEST(a_part_has_room_for_the_features_of_nodes_that_send_to_its_own) {
  Evens part;
  CHECK(part.held() == Nodes({0, 2, 4}));
  CHECK_EQ(part.x(2), 3.0f);
  CHECK_EQ(part.x(1), 0.0f);
  part.change_edge(1, 0, true);
  part.change_edge(1, 2, true);
  part.change_edge(0, 5, true);
  CHECK(part.held() == Nodes({0, 1, 2, 4}));  // 5 sends nothing
  CHECK_EQ(part.x(1), 0.0f);                  // whoever reads it writes it
  part.set(1, 7);
  part.set(5, 8);
  CHECK_EQ(part.x(1), 7.0f);
  CHECK_EQ(part.x(5), 0.0f);
  CHECK(held_nodes(part.graph, 0) == Nodes({0, 1, 2, 4, 5}));
  part.change_edge(1, 0, false);
  CHECK_EQ(part.x(1), 7.0f);
  part.change_edge(1, 2, false);
  CHECK(part.held() == Nodes({0, 2, 4}));
  part.change_edge(3, 0, true);
  CHECK_EQ(part.x(3), 0.0f);  // in the place of node 1
}

TEST(a_part_whose_engine_reads_other_directions_holds_other_features) {
  Evens part;
  part.change_edge(1, 0, true);
  part.change_edge(0, 5, true);
  part.set(1, 7);
  part.graph.part->read_features({true, true});
  hold_features(&part.graph);
  CHECK(part.held() == Nodes({0, 1, 2, 4, 5}));
  CHECK_EQ(part.x(1), 7.0f);
  part.graph.part->read_features({false, true});
  hold_features(&part.graph);
  CHECK(part.held() == Nodes({0, 2, 4, 5}));
  CHECK_EQ(part.x(4), 5.0f);
}

}  // namespace livegnn::part_features_test
