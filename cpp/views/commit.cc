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

}  // namespace livegnn
