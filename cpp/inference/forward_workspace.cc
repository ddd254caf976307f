#include "inference/forward_workspace.h"

#include <utility>

namespace livegnn {

void ForwardWorkspace::close(size_t floats) {
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

ForwardWorkspaces::Lease ForwardWorkspaces::take() {
  std::unique_ptr<ForwardWorkspace> taken;
  {
    std::lock_guard lock(mutex_);
    if (free_ != nullptr) {
      taken = std::move(free_);
      free_ = std::move(taken->next_);
    }
  }
  if (taken == nullptr) taken = std::make_unique<ForwardWorkspace>();
  return {taken.release(), Return{this}};
}

void ForwardWorkspaces::Return::operator()(ForwardWorkspace* workspace) const noexcept {
  std::lock_guard lock(to->mutex_);
  workspace->next_ = std::move(to->free_);
  to->free_.reset(workspace);
}

}  // namespace livegnn
