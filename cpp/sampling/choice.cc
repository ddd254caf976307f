#include "sampling/choice.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>
#include <limits>
#include <numeric>
#include <tuple>
#include <utility>

namespace livegnn {

template <class Number>
void NumberSet<Number>::clear(size_t expected) {
  slots_.assign(std::bit_ceil(2 * expected + 2), kEmpty);
  size_ = 0;
}

template <class Number>
void NumberSet<Number>::grow() {
  std::vector<Number> old = std::move(slots_);
  slots_.assign(std::max<size_t>(8, 2 * old.size()), kEmpty);
  for (Number number : old) {
    if (number != kEmpty) *find(number) = number;
  }
}

template class NumberSet<uint32_t>;
template class NumberSet<uint64_t>;

void Choice::uniform(size_t candidates, size_t count, bool replace, RandomStream* random, std::vector<uint32_t>* to) {
  if (candidates == 0) return;
  if (replace) {
    for (size_t i = 0; i < count; ++i) to->push_back(static_cast<uint32_t>(random->below(candidates)));
    return;
  }
  if (!draws_a_large_share(candidates, count)) {
    drawn_.clear(count);
    for (size_t taken = 0; taken < count;) {
      const auto at = static_cast<uint32_t>(random->below(candidates));
      if (!drawn_.insert(at)) continue;
      to->push_back(at);
      ++taken;
    }
    return;
  }
  order_.resize(candidates);
  std::iota(order_.begin(), order_.end(), 0);
  if (count < candidates) {
    for (size_t i = 0; i < count; ++i) std::swap(order_[i], order_[i + random->below(candidates - i)]);
    order_.resize(count);
  }
  to->insert(to->end(), order_.begin(), order_.end());
}

template <class Weight>
void Choice::by_weight(std::span<const Weight> weights, size_t count, bool replace, RandomStream* random,
                       std::vector<uint32_t>* to) {
  size_t taken = 0;
  if (!replace) drawn_.clear(count);
  if (replace || !draws_a_large_share(weights.size(), count)) {
    sums_.resize(weights.size());
    double sum = 0;
    for (size_t i = 0; i < weights.size(); ++i) {
      if (weights[i] > 0) sum += static_cast<double>(weights[i]);
      sums_[i] = sum;
    }
    if (!(sum > 0)) return;
    for (size_t rejected = 0; taken < count && rejected <= tolerated_rejections(weights.size(), count);) {
      // The first position whose running sum exceeds a number has increased the sum, so its weight is positive.
      const auto found = std::upper_bound(sums_.begin(), sums_.end(), random->uniform() * sum);
      const auto at = static_cast<uint32_t>(found - sums_.begin());
      if (!replace && !drawn_.insert(at)) {
        ++rejected;
        continue;
      }
      to->push_back(at);
      ++taken;
    }
  }
  if (taken == count) return;
  keys_.clear();
  for (uint32_t i = 0; i < weights.size(); ++i) {
    if (!(weights[i] > 0) || drawn_.contains(i)) continue;
    // In doubles, because the smallest float weights would overflow a float.
    keys_.emplace_back(-std::log(random->positive()) / static_cast<double>(weights[i]), i);
  }
  if (count - taken < keys_.size()) {
    const auto end = keys_.begin() + static_cast<std::ptrdiff_t>(count - taken);
    std::nth_element(keys_.begin(), end, keys_.end());
    keys_.erase(end, keys_.end());
  }
  std::sort(keys_.begin(), keys_.end());
  for (const auto& [key, i] : keys_) to->push_back(i);
}

template void Choice::by_weight(std::span<const float>, size_t, bool, RandomStream*, std::vector<uint32_t>*);
template void Choice::by_weight(std::span<const double>, size_t, bool, RandomStream*, std::vector<uint32_t>*);

template <class Id>
void Choice::latest(std::span<const double> times, std::span<const Id> ids, size_t count, std::vector<uint32_t>* to) {
  assert(times.size() == ids.size());
  order_.resize(times.size());
  std::iota(order_.begin(), order_.end(), 0);
  auto earlier_drawn = [=](uint32_t a, uint32_t b) {
    return times[a] != times[b] ? times[a] > times[b] : ids[a] < ids[b];
  };
  if (count < order_.size()) {
    const auto end = order_.begin() + static_cast<std::ptrdiff_t>(count);
    std::nth_element(order_.begin(), end, order_.end(), earlier_drawn);
    order_.erase(end, order_.end());
  }
  std::sort(order_.begin(), order_.end(), earlier_drawn);
  to->insert(to->end(), order_.begin(), order_.end());
}

template void Choice::latest(std::span<const double>, std::span<const uint32_t>, size_t, std::vector<uint32_t>*);
template void Choice::latest(std::span<const double>, std::span<const uint64_t>, size_t, std::vector<uint32_t>*);

std::vector<int64_t> draw_of_lists(std::span<const int64_t> offsets, std::span<const int64_t> nodes,
                                   std::span<const int64_t> neighbors, std::span<const float> weights,
                                   std::span<const double> times, size_t count, uint64_t seed) {
  constexpr double kNever = std::numeric_limits<double>::infinity();
  const auto mix = [](uint64_t key) { return MixHash{}(key + 0x9e3779b97f4a7c15ULL); };
  std::vector<std::tuple<double, int64_t, int64_t>> ranked;  // the smallest first; equal times by the neighbours
  std::vector<int64_t> drawn;
  for (size_t i = 0; i < nodes.size(); ++i) {
    const uint64_t of_node = mix(static_cast<uint64_t>(nodes[i]) ^ mix(seed));
    ranked.clear();
    for (int64_t at = offsets[i]; at < offsets[i + 1]; ++at) {
      if (!times.empty()) {
        ranked.emplace_back(std::isnan(times[at]) ? kNever : -times[at], neighbors[at], at);
        continue;
      }
      const uint64_t bits = mix(of_node + static_cast<uint64_t>(at - offsets[i])) >> 11;
      double rank = (static_cast<double>(bits) + 0.5) * 0x1p-53;  // in (0, 1)
      // The least of exponential variables of these rates: Efraimidis and Spirakis draw without replacement.
      if (!weights.empty()) rank = weights[at] > 0 ? -std::log(rank) / static_cast<double>(weights[at]) : kNever;
      if (rank < kNever) ranked.emplace_back(rank, 0, at);
    }
    if (count < ranked.size()) {
      std::nth_element(ranked.begin(), ranked.begin() + static_cast<ptrdiff_t>(count), ranked.end());
      ranked.resize(count);
    }
    const auto first = static_cast<ptrdiff_t>(drawn.size());
    for (const auto& [rank, neighbor, at] : ranked) drawn.push_back(at);
    std::sort(drawn.begin() + first, drawn.end());
  }
  return drawn;
}

}  // namespace livegnn
