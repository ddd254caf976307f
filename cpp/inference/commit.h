// One batch made visible: a graph and the engines that follow it, all of it or nothing.
//
//   prepare   the graph's lists and whatever has to grow, aside       may fail, and then nothing has happened
//   commit    everything visible at once, under the graph's lock      cannot fail; then what was replaced is freed
//   abandon   instead of commit                                       cannot fail
//
// Each engine has computed what the delta does to it (`Engine::prepare_batch`) before.
//
// Thread safety: one batch at a time; readers share the graph's lock.
#pragma once

#include <span>

#include "inference/engine.h"
#include "store/graph.h"

namespace livegnn {

struct Follower {
  Engine* engine;
  Prepared* prepared;
};

void prepare(Graph* graph, const Delta& delta, std::span<const Follower> followers);
void commit(Graph* graph, const Delta& delta, std::span<const Follower> followers) noexcept;
void abandon(Graph* graph, std::span<const Follower> followers) noexcept;

}  // namespace livegnn
