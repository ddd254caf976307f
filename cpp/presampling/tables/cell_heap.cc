#include "presampling/tables/cell_heap.h"

#include <bit>

namespace livegnn {

CellHeap::Columns CellHeap::open(CellRoot* root, uint32_t hole, uint32_t keep) {
  const uint32_t room = format_.room(keep + 1);
  if (root->size > 0 && format_.room(root->size) == room) {
    const Columns columns = columns_of(root->block, room);
    move(columns, hole + 1, columns, hole, keep - hole);
    root->size = keep + 1;
    return columns;
  }
  const BlockRef block = heap_.allocate(format_.bytes(room), 0);
  const Columns columns = columns_of(block, room);
  if (root->size > 0) {
    const Columns old = columns_of(root->block, format_.room(root->size));
    move(columns, 0, old, 0, hole);
    move(columns, hole + 1, old, hole, keep - hole);
    heap_.free(root->block);
  }
  *root = {block, keep + 1};
  return columns;
}

// Into a cell that needs another block for one more.
void CellHeap::insert_moving(CellRoot* root, uint32_t place, uint64_t id) {
  const BlockRef block = heap_.allocate(format_.room(root->size + 1) * sizeof(uint64_t), 0);
  auto* const to = static_cast<uint64_t*>(heap_.at(block));
  if (root->size > 0) {
    const auto* const ids = static_cast<const uint64_t*>(heap_.at(root->block));
    for (uint32_t i = 0; i < root->size; ++i) to[i + (i >= place ? 1 : 0)] = ids[i];
    heap_.free(root->block);
  }
  to[place] = id;
  *root = {block, root->size + 1};
}

void CellHeap::close(CellRoot* root, uint32_t hole) {
  const uint32_t size = root->size - 1;
  if (size == 0) return free(root);
  const uint32_t room = format_.room(size);
  const Columns old = columns_of(root->block, format_.room(root->size));
  if (format_.room(root->size) == room) {
    move(old, hole, old, hole + 1, size - hole);
  } else {
    const BlockRef block = heap_.allocate(format_.bytes(room), 0);
    const Columns columns = columns_of(block, room);
    move(columns, 0, old, 0, hole);
    move(columns, hole, old, hole + 1, size - hole);
    heap_.free(root->block);
    root->block = block;
  }
  root->size = size;
}

uint32_t CellHeap::lower_bound(const CellView& cell, uint64_t salt, uint64_t priority, uint64_t id) const {
  uint32_t from = 0, count = cell.size;
  while (count > 0) {
    const uint32_t half = count / 2, middle = from + half;
    const uint64_t other = format_.priority_at(cell, salt, middle);
    if (other < priority || (other == priority && cell.ids[middle] < id)) {
      from = middle + 1;
      count -= half + 1;
    } else {
      count = half;
    }
  }
  return from;
}

CellChange CellHeap::insert_entry(uint64_t salt, uint64_t priority, CellRoot* root, const Neighbor& neighbor) {
  const CellView cell = view(*root);
  if (format_.has_priorities()) {
    const uint32_t place = place_of(cell, neighbor.id);
    if (place < cell.size) return update(salt, root, place, priority, neighbor);
  }
  const uint32_t place = lower_bound(cell, salt, priority, neighbor.id);
  if (place < cell.size && cell.ids[place] == neighbor.id) return update(salt, root, place, priority, neighbor);
  CellChange change;
  const bool full = cell.size == format_.options().count;
  if (full && place == cell.size) return change;
  change.changed = change.added = true;
  change.removed = full;
  if (full) change.removed_id = cell.ids[cell.size - 1];
  const uint32_t keep = full ? cell.size - 1 : cell.size;
  write(open(root, place, keep), place, priority, neighbor);
  return change;
}

CellChange CellHeap::update(uint64_t salt, CellRoot* root, uint32_t place, uint64_t priority,
                            const Neighbor& neighbor) {
  const CellView cell = view(*root);
  const Columns columns = columns_of(root->block, format_.room(root->size));
  const uint64_t old = format_.priority_at(cell, salt, place);
  CellChange change;
  change.changed =
      old != priority ||
      (cell.times != nullptr && std::bit_cast<uint64_t>(cell.times[place]) != std::bit_cast<uint64_t>(neighbor.time)) ||
      (cell.weights != nullptr &&
       std::bit_cast<uint32_t>(cell.weights[place]) != std::bit_cast<uint32_t>(neighbor.weight));
  change.incomplete = priority > old && cell.size == format_.options().count;
  uint32_t to = place;
  if (priority != old) {
    // The place among the others: before this entry if it became better, else past it.
    const uint32_t at = lower_bound(cell, salt, priority, neighbor.id);
    to = at > place ? at - 1 : at;
    if (to < place) move(columns, to + 1, columns, to, place - to);
    if (to > place) move(columns, place, columns, place + 1, to - place);
  }
  write(columns, to, priority, neighbor);
  return change;
}

CellChange CellHeap::erase(CellRoot* root, uint64_t id) {
  CellChange change;
  const CellView cell = view(*root);
  const uint32_t place = place_of(cell, id);
  if (place == cell.size) return change;
  change.incomplete = cell.size == format_.options().count;
  close(root, place);
  change.changed = change.removed = true;
  change.removed_id = id;
  return change;
}

CellHeap::Columns CellHeap::resize(CellRoot* root, uint32_t size) {
  const uint32_t room = format_.room(size);
  BlockRef block = root->block;
  if (root->size == 0 || format_.room(root->size) != room) {
    block = heap_.allocate(format_.bytes(room), 0);
    if (root->size > 0) heap_.free(root->block);
  }
  *root = {block, size};
  return columns_of(block, room);
}

void CellHeap::assign(CellRoot* root, std::span<const CellEntry> entries) {
  assert(entries.size() <= format_.options().count);
  if (entries.empty()) return free(root);
  const Columns columns = resize(root, static_cast<uint32_t>(entries.size()));
  for (uint32_t i = 0; i < root->size; ++i) write(columns, i, entries[i].priority, entries[i].neighbor);
}

void CellHeap::assign(CellRoot* root, const CellView& cell) {
  assert(cell.size <= format_.options().count && !format_.has_priorities());
  if (cell.size == 0) return free(root);
  const Columns columns = resize(root, cell.size);
  std::memcpy(columns.ids, cell.ids, cell.size * sizeof(uint64_t));
  if (columns.times != nullptr) std::memcpy(columns.times, cell.times, cell.size * sizeof(double));
  if (columns.weights != nullptr) std::memcpy(columns.weights, cell.weights, cell.size * sizeof(float));
}

}  // namespace livegnn
