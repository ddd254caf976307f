// The features of the nodes of a type. An undivided graph has a row for each index; a part of one holds rows of some
// nodes (part_features.h), and reads zeros for all others.
//
// Thread safety: one writer; `prepare` and `settle` run concurrently with readers, everything else alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
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
  size_t bytes() const { return table_.bytes() + (held_ ? held_->bytes() : 0); }
  size_t mapped_bytes() const { return table_.mapped_bytes(); }

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
    if (!held_) return table_.resize(capacity);
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
  void prepare(size_t capacity) { table_.prepare(capacity); }
  void prepare(std::vector<uint32_t> written, std::vector<uint32_t> leaving, size_t capacity) {
    if (!held_) return prepare(capacity);
    held_->prepare(std::move(written), std::move(leaving), capacity, &table_);
  }
  void commit(size_t capacity) noexcept { held_ ? held_->commit(capacity, &table_) : table_.resize(capacity); }
  void settle() noexcept {
    table_.settle();
    if (held_) held_->settle();
  }

  // Do nothing if the row is not held.
  void write(uint32_t node, const float* values) {
    if (holds(node)) table_.write(place(node), values);
  }
  void clear_row(uint32_t node) {
    if (holds(node)) table_.clear_row(place(node));
  }

 private:
  size_t place(uint32_t node) const { return held_ ? held_->slots()[node] : node; }

  Table table_;
  std::optional<HeldRows> held_;  // of a part
};

}  // namespace livegnn
