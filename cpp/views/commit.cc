#include "views/commit.h"

#include <mutex>

#include "memory/recent_needs.h"

namespace livegnn {

void commit(Graph* graph, const Delta& delta, std::span<View* const> views) noexcept {
  {
    std::unique_lock alone(graph->lock);
    graph->commit(delta);
    for (View* view : views) view->commit();
  }
  graph->settle();
  size_t given_back = 0;
  for (View* view : views) given_back += view->settle();
  if (given_back > 0) return_freed(given_back);
}

void prepare_growth(Graph* graph, const GraphGrowth& growth, std::span<View* const> views) {
  graph->prepare_growth(growth);
  try {
    std::unique_lock alone(graph->lock);
    for (View* view : views) view->prepare_growth(growth);
  } catch (...) {
    graph->abandon_growth();
    throw;
  }
}

void commit_growth(Graph* graph, std::span<View* const> views) noexcept {
  {
    std::unique_lock alone(graph->lock);
    graph->commit_growth();
    for (View* view : views) view->commit_growth();
  }
  graph->settle_growth();
}

}  // namespace livegnn
