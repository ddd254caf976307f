#include "inference/rows/changes.h"

namespace livegnn {

void Changes::begin(size_t width) {
  nodes_.clear();
  positions_.clear();
  reached.clear();
  elsewhere_ = nullptr;
  stride_ = row_stride(width);
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
