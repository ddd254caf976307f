// The features of the edges of one type: a row for each edge, and a free list of rows.
//
//   lists of an edge ─► EdgeValue::row ─► | width floats | padding |        both lists of an edge refer to the same row
//
// A batch gets rows for the edges that it adds: first the free ones, starting with the one freed last, then new ones.
// Rows of edges that it removes are free from the next batch on, so the assignment of rows to edges depends on the
// batches alone. A row that a batch writes or frees keeps its contents until the commit, because the preparation reads
// the old values there.
//
// Invariants: a row is either free, and then zero, or belongs to exactly one edge.
// Thread safety: `prepare` and `settle` may run concurrently with readers; `commit` and `restore` need exclusive
// access.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "memory/growing_array.h"
#include "memory/table.h"
#include "store/samtree/leaf.h"

namespace livegnn {

// What a batch changes in the features.
struct EdgeFeaturesDelta {
  std::vector<uint32_t> featured;  // edges with new features: positions in the type's changes, sorted
  std::vector<float> features;  // rows of `featured`, at the table's stride; an added edge that is not in it has zeros
  std::vector<uint32_t> rows;   // by `featured`
  std::vector<uint32_t> freed;  // rows of removed edges
  size_t taken = 0;             // number of added edges
};

class EdgeFeatures {
 public:
  EdgeFeatures(size_t width, const std::string& directory) : table_(width, directory) {}

  const Table& table() const { return table_; }
  const std::vector<uint32_t>& free_list() const { return free_.values(); }
  size_t bytes() const { return table_.bytes() + free_.capacity() * sizeof(uint32_t); }

  // The row of the n-th edge that a batch adds, counted from 0.
  uint32_t next_row(size_t n) const {
    return n < free_.size() ? free_[free_.size() - 1 - n] : static_cast<uint32_t>(table_.rows() + n - free_.size());
  }
  // How many more edges can be added.
  size_t room() const { return kNoRow - table_.rows() + free_.size(); }

  // If it throws, nothing has changed.
  void prepare(const EdgeFeaturesDelta& delta) {
    table_.prepare(rows_after(delta));
    free_.prepare(free_.size() + delta.freed.size());
  }
  // Requires: `prepare` of the same delta was the last call.
  void commit(const EdgeFeaturesDelta& delta) noexcept {
    const size_t rows = rows_after(delta);
    free_.resize(free_.size() - std::min(free_.size(), delta.taken));
    table_.resize(rows);
    for (uint32_t row : delta.freed) table_.clear_row(row);
    for (uint32_t row : delta.freed) free_.push_back(row);
    for (size_t i = 0; i < delta.rows.size(); ++i) {
      table_.write(delta.rows[i], delta.features.data() + i * table_.stride());
    }
  }

  // Call it after `commit`, or instead of it.
  void settle() noexcept {
    table_.settle();
    free_.settle();
  }

  // `values` are all rows without padding, `used` the rows of all edges. Throws std::runtime_error if a row is neither
  // free nor used exactly once.
  void restore(const float* values, size_t rows, std::vector<uint32_t> free, std::span<const uint32_t> used) {
    std::vector<bool> seen(rows);
    for (const auto& some : {std::span<const uint32_t>(free), used}) {
      for (uint32_t row : some) {
        if (row >= rows || seen[row]) {
          throw std::runtime_error("free_rows: expected each row of " + std::to_string(rows) +
                                   " once, free or of an edge, got row " + std::to_string(row) +
                                   ", which is not there, or has two owners");
        }
        seen[row] = true;
      }
    }
    if (free.size() + used.size() != rows) {
      throw std::runtime_error("free_rows: expected each row of " + std::to_string(rows) +
                               " once, free or of an edge, got rows that no edge names");
    }
    table_.resize(rows);
    for (size_t i = 0; i < rows; ++i) table_.write(i, values + i * table_.width());
    free_ = std::move(free);
  }

 private:
  size_t rows_after(const EdgeFeaturesDelta& delta) const {
    return table_.rows() + (delta.taken > free_.size() ? delta.taken - free_.size() : 0);
  }

  Table table_;
  GrowingArray<uint32_t> free_;
};

}  // namespace livegnn
