#include "views/commit.h"

#include <mutex>
#include <shared_mutex>
#include <vector>

#include "store/graph_model.h"
#include "testing/testing.h"
#include "views/view.h"

namespace livegnn::commit_test {

using namespace testing;

namespace {

// Says what is done with it, and in which state it finds graph and lock.
class Witness : public View {
 public:
  explicit Witness(Graph* graph) : graph_(graph) {}

  void prepare(const Change&) override { prepared = true; }
  void commit() noexcept override {
    committed_alone = prepared && !graph_->lock.try_lock_shared();
    edges_at_commit = graph_->edges[0].store->num_edges();
  }
  void abandon() noexcept override { prepared = false; }
  size_t settle() noexcept override {
    settled_unlocked = graph_->lock.try_lock_shared();
    if (settled_unlocked) graph_->lock.unlock_shared();
    return 0;
  }
  void save(Arrays*) const override {}
  void load(const ArrayViews&) override {}
  size_t bytes() const override { return 0; }

  bool prepared = false, committed_alone = false, settled_unlocked = false;
  size_t edges_at_commit = 0;

 private:
  Graph* graph_;
};

}  // namespace

TEST(commit_shows_graph_and_views_under_one_lock) {
  SmallGraph small;
  for (int batch = 0; batch < 3; ++batch) {
    Stage stage(small.graph);
    add_edge(stage, batch, batch + 1);
    const Delta delta = stage.finish();
    Witness one(&small.graph), two(&small.graph);
    View* const views[] = {&one, &two};
    small.graph.prepare(delta);
    for (View* view : views) view->prepare(Change(small.graph, delta));
    commit(&small.graph, delta, views);
    for (const Witness* view : {&one, &two}) {
      CHECK(view->committed_alone);
      CHECK(view->settled_unlocked);
      CHECK_EQ(view->edges_at_commit, static_cast<size_t>(batch) + 1);
    }
  }
}

}  // namespace livegnn::commit_test
