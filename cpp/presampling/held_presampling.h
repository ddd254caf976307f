// A view, and what its samples are put together in: one assembly for each thread that reads, kept for the next reads.
//
// Invariant: an assembly is idle, or belongs to who took it.
// Thread safety: that of the view; any number of threads may `take` and `give`.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "presampling/presampling_view.h"
#include "presampling/sample_assembly.h"

namespace livegnn {

struct HeldPresampling : PresamplingView {
  using PresamplingView::PresamplingView;

  std::unique_ptr<SampleAssembly> take() {
    std::lock_guard lock(mutex);
    if (idle.empty()) return std::make_unique<SampleAssembly>(*this);
    auto assembly = std::move(idle.back());
    idle.pop_back();
    return assembly;
  }
  void give(std::unique_ptr<SampleAssembly> assembly) {
    constexpr size_t kMostIdle = 4, kMostBytes = size_t{1} << 20;
    std::lock_guard lock(mutex);
    if (idle.size() < kMostIdle && assembly->bytes() <= kMostBytes) idle.push_back(std::move(assembly));
  }

  size_t bytes() const override {
    size_t bytes = PresamplingView::bytes();
    std::lock_guard lock(mutex);
    for (const auto& assembly : idle) bytes += assembly->bytes();
    return bytes;
  }

  mutable std::mutex mutex;
  std::vector<std::unique_ptr<SampleAssembly>> idle;
};

}  // namespace livegnn
