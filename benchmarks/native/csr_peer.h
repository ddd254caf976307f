// A peer: rows of sorted ids and cumulative weights, all rows in one array, rebuilt by every batch (CSR).
//
//   offsets  | 0 | 3 | 3 | 7 | ..
//   ids      | 2 5 9 |   | 0 1 4 8 | ..
//   sums     | w w w |   | w w w w | ..      from 0 in each row
//
// A batch is sorted and merged into a second copy, which then takes the place of the first: rows that it does not touch
// are copied as they are, many at once. Both copies are kept, because to ask the system for a new one each time would
// cost more than the merge.
//
// Invariants: ids of a row are distinct and ascend.
// Thread safety: any number of readers, also beside `prepare`; `commit` alone.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "batch.h"
#include "cs_table.h"

namespace livegnn::bench {

class CsrPeer {
  // Memory whose old content nobody wants.
  template <class T>
  class Buffer {
   public:
    void reserve(size_t size) {
      if (size <= capacity_) return;
      data_.reset();
      capacity_ = size + size / 16;
      data_ = std::make_unique_for_overwrite<T[]>(capacity_);
    }
    T* data() { return data_.get(); }
    const T* data() const { return data_.get(); }
    size_t bytes() const { return capacity_ * sizeof(T); }

   private:
    std::unique_ptr<T[]> data_;
    size_t capacity_ = 0;
  };

  struct Copy {
    std::vector<uint64_t> offsets;
    Buffer<uint32_t> ids;
    Buffer<float> sums;

    size_t bytes() const { return offsets.capacity() * sizeof(uint64_t) + ids.bytes() + sums.bytes(); }
  };

  struct Change {
    uint64_t edge;  // row and target
    uint32_t at;    // in the batch
    bool operator<(const Change& other) const { return edge < other.edge; }
  };

 public:
  CsrPeer(Share share, size_t nodes, bool weighted) : share_(share), weighted_(weighted) {
    now_.offsets.resize(share.rows(nodes) + 1);
    next_.offsets.resize(share.rows(nodes) + 1);
  }

  void prepare(const Batch& batch) {
    changes_.clear();
    if (changes_.capacity() > 8 * batch.size) changes_.shrink_to_fit();  // after a first load
    changes_.reserve(batch.size / share_.of);
    for (uint32_t i = 0; i < batch.size; ++i) {
      if (!share_.holds(batch.sources[i])) continue;
      changes_.push_back({uint64_t{share_.row(batch.sources[i])} << 32 | batch.targets[i], i});
    }
    std::sort(changes_.begin(), changes_.end());
    next_.ids.reserve(num_edges() + changes_.size());
    if (weighted_) next_.sums.reserve(num_edges() + changes_.size());

    size_t row = 0, end = 0;  // rows before `row` are done, and end there in the next copy
    for (auto from = changes_.begin(); from != changes_.end();) {
      const auto changed = static_cast<size_t>(from->edge >> 32);
      end = copy_rows(row, changed, end);
      const auto to = std::find_if(from, changes_.end(), [&](const Change& c) { return c.edge >> 32 != changed; });
      end = merge_row(changed, from, to, batch, end);
      row = changed + 1;
      from = to;
    }
    copy_rows(row, now_.offsets.size() - 1, end);
  }

  void commit(const Batch&) { std::swap(now_, next_); }

  size_t num_edges() const { return now_.offsets.back(); }
  size_t bytes() const { return now_.bytes() + next_.bytes() + changes_.capacity() * sizeof(Change); }
  // Without the copy that the next batch is merged into, and exactly as long as the edges need.
  size_t bytes_at_rest() const {
    return now_.offsets.capacity() * sizeof(uint64_t) + num_edges() * (weighted_ ? 8 : 4);
  }

  class View {
   public:
    View(const uint32_t* ids, const float* sums, uint32_t degree) : ids_(ids), sums_(sums), degree_(degree) {}
    uint32_t degree() const { return degree_; }
    float total() const { return CSTable::total(sums_, degree_); }
    uint32_t at(uint32_t i) const { return ids_[i]; }
    uint32_t at_weight(float at) const { return ids_[CSTable::find(sums_, degree_, at)]; }
    template <class Visit>
    void scan(Visit&& visit) const {
      for (uint32_t i = 0; i < degree_; ++i) visit(ids_[i], sums_ == nullptr ? 1.0f : CSTable::weight(sums_, i));
    }

   private:
    const uint32_t* ids_;
    const float* sums_;  // null: without weights
    uint32_t degree_;
  };

  View view(uint32_t node) const {
    const size_t row = share_.row(node);
    const uint64_t begin = now_.offsets[row];
    return View(now_.ids.data() + begin, weighted_ ? now_.sums.data() + begin : nullptr,
                static_cast<uint32_t>(now_.offsets[row + 1] - begin));
  }

 private:
  using Changes = std::vector<Change>::const_iterator;

  // Rows first .. last - 1 as they are, from `to` on in the next copy; returns where they end.
  size_t copy_rows(size_t first, size_t last, size_t to) {
    const uint64_t begin = now_.offsets[first], size = now_.offsets[last] - begin;
    if (size > 0) {
      std::memcpy(next_.ids.data() + to, now_.ids.data() + begin, size * sizeof(uint32_t));
      if (weighted_) std::memcpy(next_.sums.data() + to, now_.sums.data() + begin, size * sizeof(float));
    }
    const uint64_t shift = to - begin;  // modulo 2^64
    for (size_t row = first; row < last; ++row) next_.offsets[row + 1] = now_.offsets[row + 1] + shift;
    return to + size;
  }

  size_t merge_row(size_t row, Changes from, Changes to, const Batch& batch, size_t end) {
    const uint64_t begin = now_.offsets[row];
    const size_t degree = now_.offsets[row + 1] - begin;
    const uint32_t* ids = now_.ids.data() + begin;
    const float* sums = now_.sums.data() + begin;
    size_t i = 0;     // neighbours before it are merged
    float shift = 0;  // what the sums from here on grow by
    float sum = 0;    // of the merged row so far
    const auto keep_until = [&](size_t stop) {
      std::copy(ids + i, ids + stop, next_.ids.data() + end);
      if (weighted_ && stop > i) {
        float* to_sums = next_.sums.data() + end;
        for (size_t j = 0; j < stop - i; ++j) to_sums[j] = sums[i + j] + shift;
        sum = to_sums[stop - i - 1];
      }
      end += stop - i;
      i = stop;
    };
    for (; from != to; ++from) {
      const auto target = static_cast<uint32_t>(from->edge);
      keep_until(static_cast<size_t>(std::lower_bound(ids + i, ids + degree, target) - ids));
      if (i < degree && ids[i] == target) {
        if (weighted_) shift -= CSTable::weight(sums, i);
        ++i;
      }
      if (batch.removes(from->at)) continue;
      next_.ids.data()[end] = target;
      if (weighted_) {
        next_.sums.data()[end] = sum += batch.weight(from->at);
        shift += batch.weight(from->at);
      }
      ++end;
    }
    keep_until(degree);
    next_.offsets[row + 1] = end;
    return end;
  }

  Share share_;
  bool weighted_;
  Copy now_, next_;
  std::vector<Change> changes_;
};

}  // namespace livegnn::bench
