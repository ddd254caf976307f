// The features of the nodes of a type. An undivided graph has a row for each index; a part of one holds rows of some
// nodes (part_features.h), and reads zeros for all others.
//
//   table      | old columns | new ones | padding |      a graph that has grown (graph_growth.cc)
//   narrower   | old columns | padding |                 for readers of the old columns: they compute with whole
//   strides
//
// Invariants: each narrower table has the rows of the table, without its last columns.
// Thread safety: one writer; `prepare` and `settle` run concurrently with readers, everything else alone.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "memory/held_rows.h"
#include "memory/table.h"

namespace livegnn {

class NodeFeatures {
 public:
  // As a table's.
  explicit NodeFeatures(size_t width, const std::string& directory = "") : table_(width, directory) {}

  // From now on rows are of some nodes alone, or again of all. Requires: there are no rows.
  void divide(bool divided) {
    held_.reset();
    if (divided && width() > 0) held_.emplace();
  }

  size_t width() const { return table_.width(); }
  size_t stride() const { return table_.stride(); }
  size_t rows() const { return held_ ? held_->capacity() : table_.rows(); }  // as many as there are indices
  const ScratchFile* file() const { return table_.file(); }
  size_t bytes() const {
    size_t bytes = table_.bytes() + (held_ ? held_->bytes() : 0);
    for (const Table& table : narrower_) bytes += table.bytes();
    return bytes;
  }
  size_t mapped_bytes() const {
    size_t bytes = table_.mapped_bytes();
    for (const Table& table : narrower_) bytes += table.mapped_bytes();
    return bytes;
  }

  // The table whose rows are the first `width` columns alone; null if there is none.
  const Table* find(size_t width) const {
    if (width == table_.width()) return &table_;
    for (const Table& table : narrower_) {
      if (table.width() == width) return &table;
    }
    return nullptr;
  }

  // Requires: there is such an index.
  bool holds(uint32_t node) const { return !held_ || held_->has(node); }
  const float* row(uint32_t node) const { return table_.row(held_ ? held_->slots()[node] : node); }
  // The rows in memory; and, of a part, the row of each index, else null.
  const float* data() const { return table_.row(0); }
  const uint32_t* slots() const { return held_ ? held_->slots() : nullptr; }

  // The nodes whose rows a part holds, ascending.
  std::vector<uint32_t> held() const {
    std::vector<uint32_t> nodes;
    for (uint32_t node = 0; node < rows(); ++node) {
      if (holds(node)) nodes.push_back(node);
    }
    return nodes;
  }

  // Makes as many rows as there are indices; of a part, of these nodes, each once, and of no others. Rows that are
  // there stay, new ones are zero.
  void hold(std::span<const uint32_t> nodes, size_t capacity) {
    if (!held_) return commit(capacity);
    std::vector<float> kept;
    kept.reserve(nodes.size() * stride());
    for (uint32_t node : nodes) {
      if (node < held_->capacity() && holds(node)) {
        kept.insert(kept.end(), row(node), row(node) + stride());
      } else {
        kept.resize(kept.size() + stride());
      }
    }
    held_->assign(nodes, capacity, &table_);
    for (size_t i = 0; i < nodes.size(); ++i) write(nodes[i], kept.data() + i * stride());
  }

  // Makes room for the rows that a batch writes; of a part also for their slots, as `HeldRows::prepare`. If it throws,
  // call `settle` next; nothing has changed.
  void prepare(size_t capacity) {
    table_.prepare(capacity);
    for (Table& table : narrower_) table.prepare(capacity);
  }
  void prepare(std::vector<uint32_t> written, std::vector<uint32_t> leaving, size_t capacity) {
    if (!held_) return prepare(capacity);
    held_->prepare(std::move(written), std::move(leaving), capacity, &table_);
  }
  void commit(size_t capacity) noexcept {
    held_ ? held_->commit(capacity, &table_) : table_.resize(capacity);
    for (Table& table : narrower_) table.resize(capacity);
  }
  void settle() noexcept {
    table_.settle();
    for (Table& table : narrower_) table.settle();
    if (held_) held_->settle();
  }

  // Do nothing if the row is not held.
  void write(uint32_t node, const float* values) {
    if (!holds(node)) return;
    table_.write(place(node), values);
    for (Table& table : narrower_) table.write(node, values);
  }
  void clear_row(uint32_t node) {
    if (!holds(node)) return;
    table_.clear_row(place(node));
    for (Table& table : narrower_) table.clear_row(node);
  }

  // A copy with other columns, which are `added` or cut off, in memory or in `directory`. `used(node)`: whether the row
  // is a node's, and not a free one, which stays zero. Requires: rows of all indices.
  template <class Used>
  Table with_columns(size_t width, std::span<const float> added, const std::string& directory, const Used& used) const {
    Table to(width, directory);
    to.resize(table_.rows());
    const size_t kept = width - added.size();
    for (uint32_t node = 0; node < table_.rows(); ++node) {
      if (!used(node)) continue;
      std::copy_n(table_.row(node), kept, to.row(node));
      std::copy(added.begin(), added.end(), to.row(node) + kept);
    }
    return to;
  }
  // Keeps such a copy of the first columns beside the table from now on.
  void keep_narrower(Table copy) { narrower_.push_back(std::move(copy)); }
  // Makes a copy with more columns the table, and keeps the old one for readers of its columns. Cannot fail after
  // `narrower->reserve(number_of_narrower() + 1)`; frees `narrower`.
  void widen(Table wider, std::vector<Table>* narrower) noexcept {
    for (Table& table : narrower_) narrower->push_back(std::move(table));
    if (width() > 0) narrower->push_back(std::move(table_));
    narrower_.swap(*narrower);
    table_ = std::move(wider);
  }
  size_t number_of_narrower() const { return narrower_.size(); }

 private:
  size_t place(uint32_t node) const { return held_ ? held_->slots()[node] : node; }

  Table table_;
  std::vector<Table> narrower_;   // of an undivided graph
  std::optional<HeldRows> held_;  // of a part
};

}  // namespace livegnn
