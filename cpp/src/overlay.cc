#include "overlay.h"

namespace livegnn {

void Overlay::place(uint32_t node) {
  uint32_t slot;
  if (!free_.empty()) {
    slot = free_.back();
    free_.pop_back();
  } else {
    slot = static_cast<uint32_t>(errors_.size());
    if (slot / kChunk >= chunks_.size()) chunks_.emplace_back(kChunk * stride_);
    errors_.push_back(0);
  }
  slots_[node] = slot + kFirst;
  --num_stale_;
}

void Overlay::clear() {
  for (uint32_t node : nodes_) {
    bits_[node / 64] = 0;
    slots_[node] = kClean;
  }
  nodes_ = std::vector<uint32_t>();
  free_ = std::vector<uint32_t>();
  errors_ = std::vector<float>();
  // The next rows are written to pages that are at hand, as long as that is not much beside the slabs.
  const size_t kept = slots_.size() / kChunk / 8 + 1;
  while (chunks_.size() > kept) chunks_.pop_back();
  num_stale_ = 0;
}

size_t Overlay::bytes() const {
  return bits_.capacity() * sizeof(uint64_t) +
         (slots_.capacity() + nodes_.capacity() + free_.capacity() + errors_.capacity()) * sizeof(uint32_t) +
         chunks_.size() * kChunk * stride_ * sizeof(float);
}

}  // namespace livegnn
