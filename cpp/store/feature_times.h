// The times of the features of a type's nodes, by index, in a type whose features have times; else nothing. Each part
// of a graph has the times of all nodes, so that all parts agree on which features are late.
//
// Invariants: a node whose features no event has set, and an index that no node has, has the time `kNever`.
// Thread safety: one writer; `prepare` and `settle` run concurrently with readers, everything else alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "memory/growing_array.h"

namespace livegnn {

class FeatureTimes {
 public:
  // Before every time.
  static constexpr double kNever = -std::numeric_limits<double>::infinity();

  explicit FeatureTimes(bool kept) : kept_(kept) {}

  bool kept() const { return kept_; }
  size_t bytes() const { return times_.capacity() * sizeof(double); }
  const std::vector<double>& values() const { return times_.values(); }
  // `kNever` if there is no such index yet.
  double at(uint32_t node) const { return node < times_.size() ? times_[node] : kNever; }

  // Makes room for as many indices. If it throws, nothing has changed.
  void prepare(size_t capacity) {
    if (kept_) times_.prepare(capacity);
  }
  void commit(size_t capacity) noexcept {
    if (kept_) times_.resize(capacity, kNever);
  }
  void settle() noexcept { times_.settle(); }

  // Do nothing in a type whose features have no times. Requires: there is such an index.
  void write(uint32_t node, double time) {
    if (kept_) times_[node] = time;
  }
  void clear(uint32_t node) { write(node, kNever); }

  // Requires: the features have times.
  void load(std::vector<double> times) { times_ = std::move(times); }

 private:
  bool kept_;
  GrowingArray<double> times_;
};

}  // namespace livegnn
