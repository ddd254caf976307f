#include "inference/forward/sampled_edges.h"

#include <algorithm>

#include "memory/recent_needs.h"

namespace livegnn {

void SampledEdges::group(const SampledGraph::Edges& edges, uint32_t type, bool reversed, size_t senders,
                         size_t receivers, bool may_loop) {
  moved_ = !read(edges, type, reversed, senders, receivers);
  weights_ = edges.weight;
  offsets_.assign(receivers + 1, 0);
  for (uint32_t node : receivers_) ++offsets_[node + 1];
  for (size_t node = 0; node < receivers; ++node) offsets_[node + 1] += offsets_[node];
  if (moved_) move(edges, receivers);
  has_loops_ = has_parallel_loops_ = false;
  if (may_loop) find_loops(receivers);
}

bool SampledEdges::read(const SampledGraph::Edges& edges, uint32_t type, bool reversed, size_t senders,
                        size_t receivers) {
  const int64_t* const from = reversed ? edges.col : edges.row;
  const int64_t* const to = reversed ? edges.row : edges.col;
  senders_.resize(edges.count);
  receivers_.resize(edges.count);
  bool known = true, ascending = true;
  int64_t before = 0;
  for (size_t i = 0; i < edges.count; ++i) {
    // As unsigned numbers, so that negative ones are too large.
    known &= static_cast<uint64_t>(from[i]) < senders && static_cast<uint64_t>(to[i]) < receivers;
    ascending &= before <= to[i];
    before = to[i];
    senders_[i] = static_cast<uint32_t>(from[i]);
    receivers_[i] = static_cast<uint32_t>(to[i]);
  }
  if (known) return ascending;
  for (size_t i = 0;; ++i) {
    const bool sends = static_cast<uint64_t>(from[i]) < senders;
    if (sends && static_cast<uint64_t>(to[i]) < receivers) continue;
    throw BadSampledGraph(sends != reversed ? BadSampledGraph::kTarget : BadSampledGraph::kSource, type, i);
  }
}

void SampledEdges::move(const SampledGraph::Edges& edges, size_t receivers) {
  next_.assign(offsets_.begin(), offsets_.begin() + static_cast<std::ptrdiff_t>(receivers));
  order_.resize(edges.count);
  given_.swap(senders_);
  senders_.resize(edges.count);
  moved_weights_.resize(edges.weight == nullptr ? 0 : edges.count);
  for (uint32_t i = 0; i < edges.count; ++i) {
    const uint32_t place = next_[receivers_[i]]++;
    order_[place] = i;
    senders_[place] = given_[i];
    if (edges.weight != nullptr) moved_weights_[place] = edges.weight[i];
  }
  if (edges.weight != nullptr) weights_ = moved_weights_.data();
}

void SampledEdges::find_loops(size_t receivers) {
  const auto find = [&](uint32_t node, auto&& found) {
    for (uint32_t place = offsets_[node]; place < offsets_[node + 1]; ++place) {
      if (senders_[place] == node) found(place);
    }
  };
  for (uint32_t node = 0; node < receivers && !has_loops_; ++node) {
    find(node, [&](uint32_t) { has_loops_ = true; });
  }
  if (!has_loops_) return;
  loops_.assign(receivers, {});
  for (uint32_t node = 0; node < receivers; ++node) {
    find(node, [&](uint32_t place) { loops_[node] = {loops_[node].count + 1, place}; });
    has_parallel_loops_ |= loops_[node].count > 1;
  }
}

size_t SampledEdges::reach(size_t receivers) const {
  uint32_t most = 0;
  for (uint32_t place = 0; place < offsets_[receivers]; ++place) most = std::max(most, senders_[place] + 1);
  return most;
}

size_t SampledEdges::bytes() const {
  return bytes_of(offsets_) + bytes_of(senders_) + bytes_of(receivers_) + bytes_of(given_) + bytes_of(order_) +
         bytes_of(next_) + bytes_of(moved_weights_) + bytes_of(loops_);
}

}  // namespace livegnn
