#include "inference/commit.h"

#include <mutex>

namespace livegnn {

void prepare(Graph* graph, const Delta& delta, std::span<const Follower> followers) {
  // What a batch has left that came to nothing between `prepare` and `commit`.
  abandon(graph, followers);
  try {
    graph->prepare(delta);
    for (const Follower& follower : followers) follower.engine->reserve(delta, *follower.prepared);
  } catch (...) {
    abandon(graph, followers);
    throw;
  }
}

void commit(Graph* graph, const Delta& delta, std::span<const Follower> followers) noexcept {
  {
    std::unique_lock alone(graph->lock);
    graph->commit(delta);
    for (const Follower& follower : followers) follower.engine->commit(delta, *follower.prepared);
  }
  for (const Follower& follower : followers) follower.engine->release();
  graph->settle();
  size_t given_back = 0;
  for (const Follower& follower : followers) given_back += follower.prepared->settle();
  if (given_back > 0) return_freed(given_back);
}

void abandon(Graph* graph, std::span<const Follower> followers) noexcept {
  graph->abandon();
  for (const Follower& follower : followers) follower.engine->release();
}

}  // namespace livegnn
