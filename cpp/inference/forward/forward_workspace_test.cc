// Workspaces come back to whoever asks next, and a large pass leaves no memory behind.
#include "inference/forward/forward_workspace.h"

#include "testing/testing.h"

namespace livegnn::forward_workspace_test {

using namespace testing;

TEST(forward_workspaces_are_used_again) {
  ForwardWorkspaces all;
  const ForwardWorkspace* first;
  {
    const ForwardWorkspaces::Lease lease = all.take();
    first = lease.get();
    CHECK(all.take().get() != first);
  }
  CHECK(all.take().get() == first);
}

TEST(a_large_pass_leaves_no_memory_behind) {
  ForwardWorkspaces all;
  const ForwardWorkspaces::Lease lease = all.take();
  constexpr size_t kUsual = size_t{1} << 10, kLarge = size_t{1} << 24;
  lease->memory.reserve(kUsual);
  lease->close(kUsual);
  CHECK(lease->bytes() >= kUsual * sizeof(float));
  lease->memory.reserve(kLarge);
  lease->close(kLarge);
  CHECK(lease->bytes() < kLarge);
  CHECK(lease->peak() >= kLarge * sizeof(float));
}

}  // namespace livegnn::forward_workspace_test
