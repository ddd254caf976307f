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
  stride_ = row_stride(width);
}

void Changes::append_halo(std::span<const HaloRows> rows, size_t width) {
  size_t count = nodes_.size(), at = 0;
  for (const HaloRows& each : rows) count += each.nodes.size();
  if (count == nodes_.size()) return;
  float* const joined = joined_.reserve(count * stride_);
  for (; at < nodes_.size(); ++at) std::memcpy(joined + at * stride_, row(at), stride_ * sizeof(float));
  for (const HaloRows& each : rows) {
    nodes_.insert(nodes_.end(), each.nodes.begin(), each.nodes.end());
    for (size_t i = 0; i < each.nodes.size(); ++i, ++at) {
      std::memcpy(joined + at * stride_, each.rows + i * width, width * sizeof(float));
      std::fill(joined + at * stride_ + width, joined + (at + 1) * stride_, 0.0f);
    }
    halo_ += each.nodes.size();
  }
  positions_.resize(count);
  std::iota(positions_.begin(), positions_.end(), 0u);
  elsewhere_ = joined;
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
