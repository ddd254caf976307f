#include "inference/lazy/overlay.h"

namespace livegnn {

namespace {

template <class T>
void make_room(std::vector<T>* for_all, size_t size) {
  if (size > for_all->capacity()) for_all->reserve(size + size / 2);
}

}  // namespace

void Overlay::reserve(size_t capacity, size_t invalidated, size_t placed) {
  bits_.prepare((capacity + 63) / 64);
  const size_t pages = (capacity + kPage - 1) / kPage;
  make_room(&pages_, pages);
  while (pages_.size() < pages) pages_.push_back(std::make_unique<uint32_t[]>(kPage));
  make_room(&nodes_, nodes_.size() + invalidated);
  reserve_rows(errors_.size() + placed);
}

void Overlay::reserve_rows(size_t slots) {
  make_room(&free_, slots);
  make_room(&errors_, slots);
  make_room(&chunks_, (slots + kChunk - 1) / kChunk);
  while (chunks_.size() * kChunk < slots) chunks_.emplace_back(kChunk * stride_);
}

void Overlay::place(uint32_t node) {
  assert(stale(node) || wanted(node));
  if (free_.empty()) {
    reserve_rows(errors_.size() + 1);
    free_.push_back(static_cast<uint32_t>(errors_.size()));
    errors_.push_back({});
  }
  slot(node) = free_.back() + kFirst;
  free_.pop_back();
  --num_stale_;
}

void Overlay::clear() {
  for (uint32_t node : nodes_) {
    bits_[node / 64] = 0;
    slot(node) = kClean;
  }
  nodes_ = std::vector<uint32_t>();
  free_ = std::vector<uint32_t>();
  errors_ = {};
  errors_.shrink_to_fit();
  // Keep some chunks for the next rows, as long as they are small compared with the slabs.
  const size_t kept = pages_.size() * kPage / kChunk / 8 + 1;
  while (chunks_.size() > kept) chunks_.pop_back();
  num_stale_ = 0;
}

size_t Overlay::bytes() const {
  return bits_.capacity() * sizeof(uint64_t) +
         (pages_.size() * kPage + nodes_.capacity() + free_.capacity()) * sizeof(uint32_t) +
         errors_.capacity() * sizeof(errors_[0]) + chunks_.size() * kChunk * stride_ * sizeof(float);
}

}  // namespace livegnn
