// A view, and what its samples are put together in: one assembly for each thread that reads, kept for the next reads.
//
// Thread safety: that of the view; any number of threads may take assemblies.
#pragma once

#include <cstddef>
#include <memory>

#include "memory/leases.h"
#include "presampling/view/presampling_view.h"
#include "presampling/view/sample_assembly.h"

namespace livegnn {

struct HeldPresampling : PresamplingView {
  using PresamplingView::PresamplingView;

  Leases<SampleAssembly>::Lease take() {
    return assemblies.take([&] { return std::make_unique<SampleAssembly>(*this); });
  }
  size_t bytes() const override { return PresamplingView::bytes() + assemblies.bytes(); }

  Leases<SampleAssembly> assemblies{4, size_t{1} << 20};
};

}  // namespace livegnn
