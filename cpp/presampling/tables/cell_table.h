// The reservoir table of a one-hop query: the cells of all nodes that have neighbours to sample, by the nodes' ids.
//
//   id ─► row of a NodeTable | id | .. | block, size, beyond | .. |  ─► cell (cell_heap.h)
//
// 8 bytes a node in a row that other tables may have their words in too, and 8 or more an entry. The word of a full
// cell of SampleBy::kUniform knows the first bits of its worst priority. Most neighbours of a node that has many do not
// come into its cell, and for them the cell is not read.
//
// A change is a chain of two cache misses, row and cell, on tables larger than the caches. So callers that change many
// cells fetch in steps: the rows of a group of nodes, then `prefetch_cell` for the group, then the changes.
//
// Invariants: those of cell_heap.h; the word of a node without a cell is 0; `settle` gives memory back where nodes have
// gone, and no change by itself moves more than one cell or grows the table more than to twice its size.
// Thread safety: any number of readers, or one writer. A view of a cell is good until the next change.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "presampling/tables/cell_heap.h"
#include "presampling/tables/node_table.h"
#include "views/arrays.h"

namespace livegnn {

class CellTable {
 public:
  // What a change of a cell starts from: functions of the node, and of the neighbour.
  struct Draw {
    uint64_t salt, priority;
  };

  // The rows are those of `nodes`, which has none yet and outlives this table; null: it has rows of its own.
  explicit CellTable(const CellOptions& options, NodeTable* nodes = nullptr)
      : own_(nodes == nullptr ? std::make_unique<NodeTable>() : nullptr),
        nodes_(nodes == nullptr ? own_.get() : nodes),
        column_(nodes_->add_column()),
        cells_(options),
        draw_(&cells_.format()) {}
  CellTable(const CellTable&) = delete;
  CellTable& operator=(const CellTable&) = delete;

  const CellFormat& format() const { return cells_.format(); }
  const NodeTable& nodes() const { return *nodes_; }
  size_t size() const { return size_; }  // nodes that have a cell
  // Without rows that are not its own.
  size_t bytes() const { return (own_ == nullptr ? 0 : own_->bytes()) + cells_.bytes(); }

  // -- reading. Rows may be null.

  // Empty if the node has no cell.
  CellView find(uint64_t node) const { return at(nodes_->find(node)); }
  CellView at(const uint64_t* row) const { return row == nullptr ? CellView{} : cells_.view(word_of(row).root()); }
  // `visit(node, CellView)`, in no order.
  template <class Visit>
  void for_each(Visit&& visit) const {
    std::as_const(*nodes_).for_each([&](const uint64_t* row) {
      if (row[column_] != 0) visit(row[0], at(row));
    });
  }
  // Fetches a cell, unless a neighbour of this priority cannot come into it.
  void prefetch_cell(const uint64_t* row, uint64_t priority) const {
    const Word word = word_of(row);
    if (!word.is_past(priority)) cells_.prefetch(word.root());
  }
  // The same for a table of ids alone.
  void prefetch_ids(const uint64_t* row, uint64_t priority) const {
    const Word word = word_of(row);
    if (word.size == 0 || word.is_past(priority)) return;
    const uint64_t* const ids = cells_.ids_of(word.block);
    livegnn::prefetch(ids);
    for (uint32_t i = 8; i < word.size; i += 8) livegnn::prefetch(ids + i);
  }
  void prefetch_cell(const uint64_t* row) const { cells_.prefetch(word_of(row).root()); }

  // -- changes. If one throws std::bad_alloc, nothing has changed.

  // Requires: a neighbour that can be drawn.
  Draw draw_of(uint64_t node, const Neighbor& neighbor) const {
    const uint64_t salt = format().salt_of(node);
    return {salt, format().priority(salt, neighbor)};
  }
  // Adds a neighbour of a node, or gives it other values.
  CellChange insert(uint64_t node, const Neighbor& neighbor) {
    if (!format().can_be_drawn(neighbor)) return erase(node, neighbor.id);
    return change(node, [&](uint64_t* row) { return insert_at(row, draw_of(node, neighbor), neighbor); });
  }
  // The same in the node's row, which stays if it becomes blank. Requires: a neighbour that can be drawn, and its draw.
  CellChange insert_at(uint64_t* row, const Draw& draw, const Neighbor& neighbor) {
    const Word word = word_of(row);
    if (word.is_past(draw.priority)) return {};
    CellRoot root = word.root();
    CellChange result = cells_.insert(draw.salt, draw.priority, &root, neighbor);
    if (result.changed) result.first = set_root(row, root, draw.salt);
    return result;
  }
  // The same for a table of ids alone.
  Draw draw_of_id(uint64_t node, uint64_t id) const {
    const uint64_t salt = format().salt_of(node);
    return {salt, uniform_priority(salt, id)};
  }
  CellChange insert_id_at(uint64_t* row, const Draw& draw, uint64_t id) {
    Word word = word_of(row);
    if (word.is_past(draw.priority)) return {};
    CellRoot root = word.root();
    CellChange result = cells_.insert_id(draw.salt, draw.priority, &root, id);
    if (!result.changed) return result;
    result.first = word.changed == 0;
    size_ += word.size == 0 ? 1 : 0;
    word = {root.block, static_cast<uint16_t>(root.size & 0x7fff), 1, 0};
    if (root.size == format().options().count) word.beyond = beyond_of(root, draw.salt);
    row[column_] = std::bit_cast<uint64_t>(word);
    return result;
  }
  CellChange erase(uint64_t node, uint64_t neighbor) {
    uint64_t* const row = nodes_->find(node);
    if (row == nullptr) return {};
    const CellChange result = erase_at(row, neighbor);
    nodes_->release(row);
    return result;
  }
  // The same in the node's row, which stays if it becomes blank.
  CellChange erase_at(uint64_t* row, uint64_t neighbor) {
    CellRoot root = word_of(row).root();
    CellChange result = cells_.erase(&root, neighbor);
    if (result.changed) result.first = set_root(row, root, format().salt_of(row[0]));
    return result;
  }
  // Replaces a cell by the best of the neighbours that `scan(offer)` hands to `offer(Neighbor)`: by none if it hands
  // none. `removed(id)` and `added(id)` hear how the cell differs. Returns whether anything of it has changed.
  template <class Scan, class Removed, class Added>
  bool redraw(uint64_t node, const Scan& scan, const Removed& removed, const Added& added) {
    draw_.begin(node);
    scan([&](const Neighbor& neighbor) { draw_.offer(neighbor); });
    return assign(node, draw_.finish(), removed, added);
  }
  // Removes a cell; `removed(id)` hears of all that was in it.
  template <class Removed>
  bool erase_cell(uint64_t node, const Removed& removed) {
    return assign(node, {}, removed, [](uint64_t) {});
  }
  void clear() noexcept;
  // Gives memory back if much is free; call it after a batch. It goes through the whole table, but not often.
  void settle() noexcept {
    if (!cells_.is_sparse()) return;
    cells_.compact([&](const auto& move) {
      nodes_->for_each([&](uint64_t* row) {
        Word word = word_of(row);
        if (word.size == 0) return;
        move(&word.block);
        row[column_] = std::bit_cast<uint64_t>(word);
      });
    });
  }

  // A cell that has changed, for callers that work through them later: until it is taken, further changes are not its
  // `first`. A cell that leaves the table, or that `assign` makes, is as one that was taken.
  CellView take(uint64_t node) { return take_at(nodes_->find(node)); }
  CellView take_at(uint64_t* row) {
    if (row == nullptr) return {};
    Word word = word_of(row);
    word.changed = 0;
    row[column_] = std::bit_cast<uint64_t>(word);
    return cells_.view(word.root());
  }

  // The whole state, as arrays whose names begin with `prefix`; `load` throws std::runtime_error if they are no cells
  // of this table, and then it is empty.
  void save(const std::string& prefix, Arrays* to) const;
  void load(const std::string& prefix, const ArrayViews& from);

  // Throws std::logic_error that names a violated invariant.
  void check() const;

 private:
  static constexpr uint64_t kGreatestBits = UINT16_MAX;

  struct Word {
    BlockRef block;
    uint16_t size : 15;
    uint16_t changed : 1;
    uint16_t beyond;  // of a full cell, by how much the first bits of its last priority are less than all bits

    CellRoot root() const { return {block, size}; }
    // Whether this priority is worse than all of a full cell.
    bool is_past(uint64_t priority) const { return (priority >> 48) + beyond > kGreatestBits; }
  };
  static_assert(sizeof(Word) == sizeof(uint64_t));

  Word word_of(const uint64_t* row) const { return std::bit_cast<Word>(row[column_]); }
  // Of a full cell of SampleBy::kUniform.
  uint16_t beyond_of(CellRoot root, uint64_t salt) const {
    const uint64_t worst = uniform_priority(salt, cells_.ids_of(root.block)[root.size - 1]);
    return static_cast<uint16_t>(kGreatestBits - (worst >> 48));
  }
  // Returns whether the cell has changed for the first time since it was taken.
  bool set_root(uint64_t* row, CellRoot root, uint64_t salt) {
    const Word old = word_of(row);
    size_ += static_cast<size_t>(root.size > 0) - static_cast<size_t>(old.size > 0);
    Word word{};
    if (root.size > 0) {
      word = {root.block, static_cast<uint16_t>(root.size & 0x7fff), 1, 0};
      if (!format().has_priorities() && root.size == format().options().count) word.beyond = beyond_of(root, salt);
    }
    row[column_] = std::bit_cast<uint64_t>(word);
    return old.changed == 0;
  }
  // Changes something of a node, which need not have a row before or after.
  template <class Change>
  CellChange change(uint64_t node, const Change& change_row) {
    uint64_t* const row = nodes_->insert(node);
    try {
      const CellChange result = change_row(row);
      nodes_->release(row);
      return result;
    } catch (...) {
      nodes_->release(row);
      throw;
    }
  }
  // Sets the cell of a node, which need not have one before or after.
  void set_cell(uint64_t node, std::span<const CellEntry> entries) {
    change(node, [&](uint64_t* row) {
      CellRoot root = word_of(row).root();
      cells_.assign(&root, entries);
      set_root(row, root, format().salt_of(node));
      take_at(row);
      return CellChange{true};
    });
  }
  bool is_same(const CellView& cell, std::span<const CellEntry> entries) const;
  template <class Removed, class Added>
  bool assign(uint64_t node, std::span<const CellEntry> entries, const Removed& removed, const Added& added);

  std::unique_ptr<NodeTable> own_;
  NodeTable* nodes_;
  size_t column_;
  size_t size_ = 0;
  CellHeap cells_;
  CellDraw draw_;
  std::vector<uint64_t> before_, after_;  // working memory of `assign`
};

template <class Removed, class Added>
bool CellTable::assign(uint64_t node, std::span<const CellEntry> entries, const Removed& removed, const Added& added) {
  const CellView cell = find(node);
  if (is_same(cell, entries)) return false;
  before_.assign(cell.ids, cell.ids + cell.size);
  after_.clear();
  for (const CellEntry& entry : entries) after_.push_back(entry.neighbor.id);
  set_cell(node, entries);
  std::sort(before_.begin(), before_.end());
  std::sort(after_.begin(), after_.end());
  for (size_t i = 0, j = 0; i < before_.size() || j < after_.size();) {
    if (j == after_.size() || (i < before_.size() && before_[i] < after_[j])) {
      removed(before_[i++]);
    } else if (i == before_.size() || after_[j] < before_[i]) {
      added(after_[j++]);
    } else {
      ++i, ++j;
    }
  }
  return true;
}

}  // namespace livegnn
