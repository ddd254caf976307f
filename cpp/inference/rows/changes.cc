#include "inference/rows/changes.h"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace livegnn {

void Changes::begin(size_t width) {
  nodes_.clear();
  positions_.clear();
  reached.clear();
  elsewhere_ = nullptr;
  halo_ = 0;
  halo_from_ = ~size_t{0};
  stride_ = row_stride(width);
}

void Changes::append_halo(std::span<const HaloRows> rows, size_t width) {
  size_t count = 0;
  for (const HaloRows& each : rows) count += each.nodes.size();
  if (count == 0) return;
  halo_from_ = positions_.empty() ? 0 : size_t{*std::max_element(positions_.begin(), positions_.end())} + 1;
  float* to = halo_rows_.reserve(count * stride_);
  for (const HaloRows& each : rows) {
    nodes_.insert(nodes_.end(), each.nodes.begin(), each.nodes.end());
    for (size_t i = 0; i < each.nodes.size(); ++i, to += stride_) {
      std::memcpy(to, each.rows + i * width, width * sizeof(float));
      std::fill(to + width, to + stride_, 0.0f);
    }
  }
  const size_t own = positions_.size();
  positions_.resize(own + count);
  std::iota(positions_.begin() + static_cast<ptrdiff_t>(own), positions_.end(), static_cast<uint32_t>(halo_from_));
  halo_ += count;
}

void Changes::keep(const std::vector<uint32_t>& nodes, const std::vector<uint8_t>& marks) {
  const size_t before = nodes_.size();
  nodes_.resize(before + nodes.size());
  positions_.resize(before + nodes.size());
  // Without a branch, because marks follow no pattern.
  size_t at = before;
  for (size_t i = 0; i < nodes.size(); ++i) {
    nodes_[at] = nodes[i];
    positions_[at] = static_cast<uint32_t>(i);
    at += marks[i] != 0 ? 1 : 0;
  }
  nodes_.resize(at);
  positions_.resize(at);
}

}  // namespace livegnn
