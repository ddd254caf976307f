#include "inference/forward/forward_workspace.h"

#include <utility>

namespace livegnn {

void ForwardWorkspace::close(size_t floats) {
  peak_ = bytes();
  if (!needs_.outgrown(floats)) return;
  const size_t held = bytes();
  memory = {};
  for (SampledEdges& each : edges) each = {};
  give_back(&located);
  give_back(&order);
  give_back(&ones);
  return_freed(held);
}

size_t ForwardWorkspace::bytes() const {
  size_t total = memory.bytes() + bytes_of(located) + bytes_of(order) + bytes_of(ones);
  for (const SampledEdges& each : edges) total += each.bytes();
  return total;
}

}  // namespace livegnn
