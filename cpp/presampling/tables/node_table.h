// One row of words for each node that any of several tables knows, so that all that is asked of a node together lies in
// one cache line: where its cells are, and who needs them.
//
//   id ─► home, by the upper bits of the hash ─►  .. | row | row | free | ..        row | id | word | word | ..
//
// A table that has a column here keeps 8 bytes of each node, 0 if it knows nothing of the node. A row whose words are
// all 0 leaves, and the rows after it move up, so there are no tombstones. Because the upper bits of the hash decide,
// growing and shrinking traverse both arrays sequentially. The table grows when five eighths are full, and shrinks when
// a sixteenth is.
//
// Invariants: a free row has node 0, and node 0 has a row elsewhere; there is no free row between a row and its home; a
// node has one row.
// Thread safety: any number of readers, or one writer. A row is where it is until `moves` changes.
#pragma once

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <utility>
#include <vector>

#include "hashing/mix_hash.h"
#include "memory/prefetch.h"
#include "memory/table.h"

namespace livegnn {

class NodeTable {
 public:
  NodeTable() = default;
  NodeTable(const NodeTable&) = delete;
  NodeTable& operator=(const NodeTable&) = delete;

  // Its number, from 1: `row[column]` is its word, and `row[0]` the node. Requires: there is no row yet.
  size_t add_column() {
    assert(size_ == 0 && block_.size() == 0);
    row_of_0_.push_back(0);
    return words_++;
  }

  size_t size() const { return size_ + (has_0_ ? 1 : 0); }
  size_t bytes() const { return block_.size() * sizeof(float); }
  // A number that grows when rows move.
  uint64_t moves() const { return moves_; }

  static uint64_t hash_of(uint64_t node) { return MixHash{}(node); }
  void prefetch(uint64_t hash) const {
    if (size_ == 0) return;
    const uint64_t* const home = row_at(hash >> shift_);
    livegnn::prefetch(home);
    livegnn::prefetch(home + 2 * words_ - 1);  // the end of the next row, which is the node's as often as not
  }

  // Null if the node has no row.
  uint64_t* find(uint64_t node, uint64_t hash) {
    if (node == 0) [[unlikely]]
      return has_0_ ? row_of_0_.data() : nullptr;
    if (size_ == 0) return nullptr;
    uint64_t* const row = place_of(node, hash);
    return *row == node ? row : nullptr;
  }
  uint64_t* find(uint64_t node) { return find(node, hash_of(node)); }
  const uint64_t* find(uint64_t node) const { return const_cast<NodeTable*>(this)->find(node); }

  // Makes room, so that so many insertions need no memory. If it throws std::bad_alloc, nothing has changed.
  void reserve(size_t more) {
    const size_t rows = rows_for(size_ + more);
    if (rows > num_rows()) rebuild(rows);
  }
  // The row of this node; a new one has words of 0, and the caller writes one, or calls `release`. Until then it leaves
  // when rows move. If it throws std::bad_alloc, nothing has changed.
  uint64_t* insert(uint64_t node, uint64_t hash) {
    if (node == 0) [[unlikely]] {
      has_0_ = true;
      return row_of_0_.data();
    }
    if (size_ > 0) {
      uint64_t* const row = place_of(node, hash);
      if (*row == node) return row;
      if ((size_ + 1) * 8 <= num_rows() * 5) return take(row, node);
    }
    reserve(std::max<size_t>(1, size_ / 2));
    return take(place_of(node, hash), node);
  }
  uint64_t* insert(uint64_t node) { return insert(node, hash_of(node)); }
  // Erases a row if all its words are 0. Returns whether it has.
  bool release(uint64_t* row) noexcept {
    if (!is_blank(row)) return false;
    ++moves_;
    if (*row == 0) {
      has_0_ = false;
    } else {
      erase(row);
    }
    return true;
  }
  // Erases all rows whose words are 0, after a column was set to 0 as a whole. Without memory for that they stay.
  void purge() noexcept {
    size_t left = 0;
    for_each([&](const uint64_t* row) { left += *row != 0 && !is_blank(row); });
    has_0_ = has_0_ && !is_blank(row_of_0_.data());
    if (left == size_) return;
    if (left == 0) return clear_rows();
    try {
      rebuild(rows_for(left));
    } catch (const std::bad_alloc&) {
      // They are in nobody's way.
    }
  }
  void clear() noexcept {
    clear_rows();
    has_0_ = false;
    std::fill(row_of_0_.begin(), row_of_0_.end(), 0);
  }

  // `visit(uint64_t* row)`, in no order. It may write words, and must neither insert nor release.
  template <class Visit>
  void for_each(Visit&& visit) {
    for (size_t i = 0, n = num_rows(); i < n; ++i) {
      if (*row_at(i) != 0) visit(row_at(i));
    }
    if (has_0_) visit(row_of_0_.data());
  }
  template <class Visit>
  void for_each(Visit&& visit) const {
    for (size_t i = 0, n = num_rows(); i < n; ++i) {
      if (*row_at(i) != 0) visit(static_cast<const uint64_t*>(row_at(i)));
    }
    if (has_0_) visit(row_of_0_.data());
  }

 private:
  static constexpr size_t kFewest = 16;

  uint64_t* take(uint64_t* row, uint64_t node) {
    *row = node;
    ++size_;
    return row;
  }
  bool is_blank(const uint64_t* row) const {
    // Nearly always the first word says it.
    for (size_t i = 1; i < words_; ++i) {
      if (row[i] != 0) return false;
    }
    return true;
  }
  static size_t rows_for(size_t size) { return std::bit_ceil(std::max(kFewest, size + (size * 3 + 4) / 5)); }
  size_t num_rows() const { return block_.size() > 0 ? mask_ + 1 : 0; }
  uint64_t* rows() const { return reinterpret_cast<uint64_t*>(const_cast<float*>(block_.data())); }
  uint64_t* row_at(size_t place) const { return rows() + place * words_; }
  size_t home_of(uint64_t node) const { return static_cast<size_t>(hash_of(node) >> shift_); }
  // The node's row, or the free one that it would get.
  uint64_t* place_of(uint64_t node, uint64_t hash) const {
    for (size_t i = static_cast<size_t>(hash >> shift_);; i = (i + 1) & mask_) {
      uint64_t* const row = row_at(i);
      if (*row == node || *row == 0) return row;
    }
  }

  void erase(uint64_t* row) noexcept {
    size_t hole = static_cast<size_t>(row - rows()) / words_;
    // Later rows move up, as far as their own homes allow.
    for (size_t i = (hole + 1) & mask_; *row_at(i) != 0; i = (i + 1) & mask_) {
      if (((i - home_of(*row_at(i))) & mask_) < ((i - hole) & mask_)) continue;
      std::memcpy(row_at(hole), row_at(i), words_ * sizeof(uint64_t));
      hole = i;
    }
    std::memset(row_at(hole), 0, words_ * sizeof(uint64_t));
    --size_;
    shrink();
  }

  void rebuild(size_t num) {
    NodeTable next;
    next.words_ = words_;
    next.block_ = FloatBlock(num * words_ * sizeof(uint64_t) / sizeof(float));
    next.mask_ = num - 1;
    next.shift_ = 64 - std::countr_zero(num);
    size_t size = 0;
    for (size_t i = 0, n = num_rows(); i < n; ++i) {
      const uint64_t* const row = row_at(i);
      // A blank one was inserted, and not written yet: whoever wants it sees that rows have moved.
      if (*row == 0 || is_blank(row)) continue;
      std::memcpy(next.place_of(*row, hash_of(*row)), row, words_ * sizeof(uint64_t));
      ++size;
    }
    std::swap(block_, next.block_);
    mask_ = next.mask_;
    shift_ = next.shift_;
    size_ = size;
    ++moves_;
  }
  void clear_rows() noexcept {
    ++moves_;
    block_ = FloatBlock();
    mask_ = size_ = 0;
    shift_ = 63;
  }
  void shrink() noexcept {
    if (size_ == 0) return clear_rows();
    if (num_rows() <= kFewest || size_ * 16 > num_rows()) return;
    try {
      rebuild(rows_for(size_ * 2));
    } catch (const std::bad_alloc&) {
      // The larger table does as well.
    }
  }

  FloatBlock block_;  // zeroed, in huge pages if it is large
  std::vector<uint64_t> row_of_0_{0};
  bool has_0_ = false;
  size_t words_ = 1, mask_ = 0, size_ = 0;
  int shift_ = 63;
  uint64_t moves_ = 0;
};

}  // namespace livegnn
