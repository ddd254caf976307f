// The reservoir table of a one-hop query: the cells of all nodes that have neighbours to sample, by the nodes' ids.
//
//   id ─► slot | id | block, size, worst |  ─► cell (cell_heap.h)        16 bytes a node, and 8 or more an entry
//
// The slot of a full cell of SampleBy::kUniform knows the first bits of its worst priority. Most neighbours of a node
// that has many do not come into its cell, and for them the cell is not read.
//
// A change is a chain of two cache misses, slot and cell, on tables larger than the caches. So callers that change many
// cells fetch in steps: `prefetch` for a group of nodes, then `prefetch_cell` for the group, then the changes.
// `insert_all` does so.
//
// Invariants: those of cell_heap.h; a cell that becomes empty leaves the table; `settle` gives memory back where nodes
// have gone, and no change by itself moves more than one cell or grows the table more than to twice its size.
// Thread safety: any number of readers, or one writer. A view of a cell is good until the next change.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "presampling/cell_heap.h"
#include "presampling/slot_table.h"
#include "views/arrays.h"

namespace livegnn {

class CellTable {
 public:
  struct Edge {
    uint64_t node;
    Neighbor neighbor;
  };

  explicit CellTable(const CellOptions& options) : cells_(options), draw_(&cells_.format()) {}
  CellTable(const CellTable&) = delete;
  CellTable& operator=(const CellTable&) = delete;

  const CellFormat& format() const { return cells_.format(); }
  size_t size() const { return slots_.size(); }  // nodes that have a cell
  size_t bytes() const { return slots_.bytes() + cells_.bytes(); }

  // -- reading

  // Empty if the node has no cell.
  CellView find(uint64_t node) const {
    const Slot* slot = slots_.find(node);
    return slot == nullptr ? CellView{} : cells_.view(slot->root());
  }
  // `visit(node, CellView)`, in no order.
  template <class Visit>
  void for_each(Visit&& visit) const {
    slots_.for_each([&](const Slot& slot) { visit(slot.key, cells_.view(slot.root())); });
  }
  void prefetch(uint64_t node) const { slots_.prefetch(node); }
  // Fetches the cell, unless this neighbour cannot come into it. Reads what `prefetch` fetches.
  void prefetch_cell(uint64_t node, uint64_t neighbor) const {
    const Slot* slot = slots_.find(node);
    if (slot != nullptr && !is_beyond(*slot, neighbor)) cells_.prefetch(slot->root());
  }
  void prefetch_cell(uint64_t node) const {
    if (const Slot* slot = slots_.find(node)) cells_.prefetch(slot->root());
  }

  // -- changes. If one throws std::bad_alloc, nothing has changed.

  // Adds a neighbour of a node, or gives it other values.
  CellChange insert(uint64_t node, const Neighbor& neighbor) {
    if (!format().can_be_drawn(neighbor)) return erase(node, neighbor.id);
    const uint64_t salt = format().salt_of(node), priority = format().priority(salt, neighbor);
    return change(node, salt, [&](Slot* slot, CellRoot* root) {
      if (!slot->empty() && priority >> 48 > slot->worst) return CellChange{};
      return cells_.insert(salt, priority, root, neighbor);
    });
  }
  CellChange erase(uint64_t node, uint64_t neighbor) {
    if (slots_.find(node) == nullptr) return {};
    return change(node, format().salt_of(node), [&](Slot*, CellRoot* root) { return cells_.erase(root, neighbor); });
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
  // Inserts edges in their order; `changed(i, CellChange)` hears of those that have changed a cell.
  template <class Changed>
  void insert_all(std::span<const Edge> edges, const Changed& changed) {
    for (size_t begin = 0; begin < edges.size(); begin += kGroup) {
      const size_t end = std::min(edges.size(), begin + kGroup);
      for (size_t i = begin; i < end; ++i) prefetch(edges[i].node);
      for (size_t i = begin; i < end; ++i) prefetch_cell(edges[i].node, edges[i].neighbor.id);
      for (size_t i = begin; i < end; ++i) {
        const CellChange change = insert(edges[i].node, edges[i].neighbor);
        if (change.changed || change.incomplete) changed(i, change);
      }
    }
    settle();
  }
  void clear() noexcept;
  // Gives memory back if much is free; call it after a batch. It goes through the whole table, but not often.
  void settle() noexcept {
    if (!cells_.is_sparse()) return;
    cells_.compact([&](const auto& move) { slots_.for_each([&](Slot& slot) { move(&slot.block); }); });
  }

  // A cell that has changed, for callers that work through them later: until it is taken, further changes are not its
  // `first`. A cell that leaves the table, or that `assign` makes, is as one that was taken.
  CellView take(uint64_t node) {
    Slot* slot = slots_.find(node);
    if (slot == nullptr) return {};
    slot->changed = 0;
    return cells_.view(slot->root());
  }

  // The whole state, as arrays whose names begin with `prefix`; `load` throws std::runtime_error if they are no cells
  // of this table, and then it is empty.
  void save(const std::string& prefix, Arrays* to) const;
  void load(const std::string& prefix, const ArrayViews& from);

  // Throws std::logic_error that names a violated invariant.
  void check() const;

 private:
  static constexpr size_t kGroup = 32;  // edges whose slots and cells are fetched at once
  static constexpr uint16_t kNotFull = UINT16_MAX;

  struct Slot {
    uint64_t key;
    BlockRef block;
    uint16_t size : 15;
    uint16_t changed : 1;
    uint16_t worst;  // the first bits of the last priority of a full cell; else all bits

    bool empty() const { return size == 0; }
    CellRoot root() const { return {block, size}; }
  };
  static_assert(sizeof(Slot) == 16);

  bool is_beyond(const Slot& slot, uint64_t neighbor) const {
    if (slot.worst == kNotFull) return false;
    return uniform_priority(format().salt_of(slot.key), neighbor) >> 48 > slot.worst;
  }
  void set_root(Slot* slot, CellRoot root, uint64_t salt) {
    slot->block = root.block;
    slot->size = static_cast<uint16_t>(root.size) & 0x7fff;
    slot->worst = kNotFull;
    if (format().has_priorities() || root.size < format().options().count) return;
    const CellView cell = cells_.view(root);
    slot->worst = static_cast<uint16_t>(format().priority_at(cell, salt, root.size - 1) >> 48);
  }
  // Changes the root of a node, which need not have a cell before or after.
  template <class Change>
  CellChange change(uint64_t node, uint64_t salt, const Change& change_root) {
    Slot* slot = slots_.insert(node);
    CellRoot root = slot->root();
    try {
      CellChange result = change_root(slot, &root);
      if (!result.changed) {
        if (slot->empty()) slots_.erase(slot);
        return result;
      }
      result.first = slot->changed == 0;
      if (root.size == 0) {
        slots_.erase(slot);
      } else {
        slot->changed = 1;
        set_root(slot, root, salt);
      }
      return result;
    } catch (...) {
      if (slot->empty()) slots_.erase(slot);
      throw;
    }
  }
  // Sets the cell of a node, which need not have one before or after.
  void set_cell(uint64_t node, std::span<const CellEntry> entries) {
    change(node, format().salt_of(node), [&](Slot*, CellRoot* root) {
      cells_.assign(root, entries);
      return CellChange{true};
    });
    take(node);
  }
  template <class Removed, class Added>
  bool assign(uint64_t node, std::span<const CellEntry> entries, const Removed& removed, const Added& added);
  bool is_same(const CellView& cell, std::span<const CellEntry> entries) const;

  SlotTable<Slot> slots_;
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
