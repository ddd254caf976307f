// Cells: the sample of one node for one one-hop query, and the heap in which they lie.
//
//   cell    | ids | priorities, unless they are hashes | times | weights |     columns of `room` entries, best first
//
// A cell holds the `count` neighbours with the smallest (priority, id) (priority.h). Uniform priorities are hashes,
// which are computed again when they are needed: a cell is then 8 bytes for each entry. The room is a function of the
// number of entries, so that three neighbours take the place of four and not of `count`; a cell that grows or shrinks
// past it moves to another block.
//
// A cell alone knows no neighbours but its own. Where the caller has the node's whole list, it draws the cell anew
// (`CellDraw`) when a change reports that it is `incomplete`, and the cell is a function of the list. Where it has not,
// the place of a removed neighbour stays empty until another neighbour comes.
//
// Invariants: ids are distinct, entries are sorted, and there are at most `count`; a root of size 0 has no block; with
// SampleBy::kWeight no weight is 0, negative or NaN.
// Thread safety: any number of readers, or one writer.
#pragma once

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <span>
#include <utility>
#include <vector>

#include "memory/block_heap.h"
#include "memory/prefetch.h"
#include "presampling/tables/priority.h"
#include "sampling/neighbor_draws.h"

namespace livegnn {

inline constexpr uint32_t kMaxCellCount = 1024;  // so that a cell fits into a block

struct CellOptions {
  SampleBy by = SampleBy::kUniform;
  uint32_t count = 1;     // from 1 to kMaxCellCount
  bool weighted = false;  // entries keep the weights of their edges
  bool timed = false;     // and the times
  uint64_t seed = 0, query = 0;
};

struct Neighbor {
  uint64_t id;
  float weight = 1.0f;
  double time = 0.0;
};

struct CellEntry {
  uint64_t priority;
  Neighbor neighbor;

  friend bool operator<(const CellEntry& a, const CellEntry& b) {
    return a.priority != b.priority ? a.priority < b.priority : a.neighbor.id < b.neighbor.id;
  }
};

struct CellRoot {
  BlockRef block = 0;
  uint32_t size = 0;
};

// The entries of a cell, best first; columns that it lacks are null.
struct CellView {
  const uint64_t* ids = nullptr;
  const uint64_t* priorities = nullptr;
  const double* times = nullptr;
  const float* weights = nullptr;
  uint32_t size = 0;
};

struct CellChange {
  bool changed : 1 = false;     // the ids, their order, or the values that are kept; else nothing else is true
  bool first : 1 = false;       // it has not changed before since it was taken (CellTable::take)
  bool added : 1 = false;       // the neighbour was not in the cell and is now
  bool removed : 1 = false;     // `removed_id` was in the cell and is not now
  bool incomplete : 1 = false;  // a neighbour that is not in the cell may belong there
  uint64_t removed_id = 0;
};

// How cells of one query look: what is a function of its options.
class CellFormat {
 public:
  explicit CellFormat(const CellOptions& options) : options_(options), salt_(query_salt(options.seed, options.query)) {
    assert(options.count >= 1 && options.count <= kMaxCellCount);
    ids_alone_ = !has_priorities() && !has_times() && !options.weighted;
    for (uint32_t size = 0, step = 4; size <= options.count; ++size) {
      if (step * 4 < size) step *= 2;
      rooms_.push_back(static_cast<uint16_t>(std::min(options.count, (size + step - 1) / step * step)));
    }
  }

  const CellOptions& options() const { return options_; }
  // Ids are the only column.
  bool has_ids_alone() const { return ids_alone_; }
  bool has_priorities() const { return options_.by != SampleBy::kUniform; }
  // Times are the priorities of SampleBy::kLatest.
  bool has_times() const { return options_.timed && options_.by != SampleBy::kLatest; }

  // A weight that is not positive is never drawn.
  bool can_be_drawn(const Neighbor& neighbor) const { return options_.by != SampleBy::kWeight || neighbor.weight > 0; }
  uint64_t salt_of(uint64_t node) const { return node_salt(salt_, node); }
  // Requires: `can_be_drawn`.
  uint64_t priority(uint64_t salt_of_node, const Neighbor& neighbor) const {
    if (options_.by == SampleBy::kLatest) return latest_priority(neighbor.time);
    const uint64_t uniform = uniform_priority(salt_of_node, neighbor.id);
    return options_.by == SampleBy::kUniform ? uniform : weight_priority(uniform, neighbor.weight);
  }
  uint64_t priority_at(const CellView& cell, uint64_t salt_of_node, uint32_t i) const {
    return has_priorities() ? cell.priorities[i] : uniform_priority(salt_of_node, cell.ids[i]);
  }
  // Requires: an entry of a query with times, or with SampleBy::kLatest.
  double time_at(const CellView& cell, uint32_t i) const {
    return has_times() ? cell.times[i] : time_of_priority(cell.priorities[i]);
  }
  Neighbor neighbor_at(const CellView& cell, uint32_t i) const {
    const bool timed = has_times() || options_.by == SampleBy::kLatest;
    return {cell.ids[i], options_.weighted ? cell.weights[i] : 1.0f, timed ? time_at(cell, i) : 0.0};
  }

  // How many entries a cell of this size has room for: three more at most, and past eight less than half more.
  uint32_t room(uint32_t size) const { return rooms_[size]; }
  size_t bytes(uint32_t room) const {
    return room * (sizeof(uint64_t) * (1 + has_priorities() + has_times()) + sizeof(float) * options_.weighted);
  }

 private:
  CellOptions options_;
  uint64_t salt_;
  bool ids_alone_ = false;
  std::vector<uint16_t> rooms_;  // by size
};

// Draws a cell from a whole list: the best `count` of all that are offered.
class CellDraw {
 public:
  explicit CellDraw(const CellFormat* format) : format_(format) {}

  void begin(uint64_t node) {
    salt_ = format_->salt_of(node);
    best_.clear();
    bounded_ = false;
  }
  void offer(const Neighbor& neighbor) {
    if (!format_->can_be_drawn(neighbor)) return;
    const CellEntry entry{format_->priority(salt_, neighbor), neighbor};
    if (bounded_ && !(entry < bound_)) return;
    best_.push_back(entry);
    if (best_.size() >= 2 * size_t{format_->options().count} + 16) cut();
  }
  // Sorted; good until `begin`.
  std::span<const CellEntry> finish() {
    if (best_.size() > format_->options().count) cut();
    std::sort(best_.begin(), best_.end());
    return best_;
  }

 private:
  void cut() {
    const auto end = best_.begin() + format_->options().count;
    std::nth_element(best_.begin(), end - 1, best_.end());
    bound_ = *(end - 1);
    bounded_ = true;
    best_.erase(end, best_.end());
  }

  const CellFormat* format_;
  uint64_t salt_ = 0;
  std::vector<CellEntry> best_;
  CellEntry bound_{};
  bool bounded_ = false;
};

class CellHeap {
 public:
  explicit CellHeap(const CellOptions& options) : format_(options) {}

  const CellFormat& format() const { return format_; }
  const BlockHeap& heap() const { return heap_; }
  // Requires: a cell of ids alone that is not empty.
  uint64_t* ids_of(BlockRef block) const { return static_cast<uint64_t*>(heap_.at(block)); }
  size_t bytes() const { return heap_.resident_bytes(); }

  CellView view(CellRoot root) const {
    if (root.size == 0) return {};
    if (format_.has_ids_alone()) return {ids_of(root.block), nullptr, nullptr, nullptr, root.size};
    const Columns columns = columns_of(root.block, format_.room(root.size));
    return {columns.ids, columns.priorities, columns.times, columns.weights, root.size};
  }
  // Fetches the ids, and what else a change reads first.
  void prefetch(CellRoot root) const {
    if (root.size == 0) return;
    const auto* const from = static_cast<const unsigned char*>(heap_.at(root.block));
    const size_t bytes = std::min<size_t>(format_.bytes(format_.room(root.size)), 8 * kCacheLine);
    for (size_t i = 0; i < bytes; i += kCacheLine) livegnn::prefetch(from + i);
  }

  // Each of these changes the cell of a node, and moves it if need be. If one throws std::bad_alloc, nothing has
  // changed.

  // Adds a neighbour, or gives it other values.
  CellChange insert(uint64_t node, CellRoot* root, const Neighbor& neighbor) {
    if (!format_.can_be_drawn(neighbor)) return erase(root, neighbor.id);
    const uint64_t salt = format_.salt_of(node);
    return insert(salt, format_.priority(salt, neighbor), root, neighbor);
  }
  // The same for a neighbour that can be drawn, with the salt of the node and the priority.
  CellChange insert(uint64_t salt, uint64_t priority, CellRoot* root, const Neighbor& neighbor) {
    return format_.has_ids_alone() ? insert_id(salt, priority, root, neighbor.id)
                                   : insert_entry(salt, priority, root, neighbor);
  }
  // The same into a cell of ids alone.
  CellChange insert_id(uint64_t salt, uint64_t priority, CellRoot* root, uint64_t id);
  CellChange erase(CellRoot* root, uint64_t id);
  // Replaces the whole cell. Requires: sorted, distinct, at most `count` entries that can be drawn.
  void assign(CellRoot* root, std::span<const CellEntry> entries);
  // The same by columns, in the order in which they are. Requires: the columns of this heap, without priorities.
  void assign(CellRoot* root, const CellView& cell);
  void free(CellRoot* root) noexcept {
    if (root->size > 0) heap_.free(root->block);
    *root = {};
  }

  // Whether so much memory is free between blocks that it should be given back. `compact` does so:
  // `for_each_root(move)` calls `move(&root.block)` for every root there is. Without memory to move blocks into, they
  // stay where they are.
  // `tight`: less of it is tolerated, because memory is what is short.
  bool is_sparse(bool tight = false) const {
    return tight ? heap_.free_bytes() > heap_.live_bytes() / 8 + kTolerated / 4
                 : heap_.free_bytes() > heap_.live_bytes() / 2 + kTolerated;
  }
  template <class ForEachRoot>
  void compact(const ForEachRoot& for_each_root) noexcept {
    try {
      if (!heap_.mark_sparse()) return;
      for_each_root([&](BlockRef* block) {
        if (!heap_.in_sparse(*block)) return;
        const BlockRef to = heap_.copy(*block);
        heap_.free(*block);
        *block = to;
      });
    } catch (const std::bad_alloc&) {
      // The other blocks stay.
    }
    heap_.reclaim();
  }

 private:
  static constexpr size_t kCacheLine = 64;
  static constexpr size_t kTolerated = size_t{2} << 20;  // bytes

  struct Columns {
    uint64_t *ids, *priorities;
    double* times;
    float* weights;
  };
  Columns columns_of(BlockRef block, uint32_t room) const {
    auto* at = static_cast<uint64_t*>(heap_.at(block));
    Columns columns{at, nullptr, nullptr, nullptr};
    at += room;
    if (format_.has_priorities()) columns.priorities = std::exchange(at, at + room);
    if (format_.has_times()) columns.times = reinterpret_cast<double*>(std::exchange(at, at + room));
    if (format_.options().weighted) columns.weights = reinterpret_cast<float*>(at);
    return columns;
  }
  // Moves so many entries of all columns.
  void move(const Columns& to, uint32_t to_place, const Columns& from, uint32_t from_place, uint32_t count) const {
    if (count == 0) return;
    const auto column = [&](auto* a, auto* b) { std::memmove(a + to_place, b + from_place, count * sizeof(*a)); };
    column(to.ids, from.ids);
    if (to.priorities != nullptr) column(to.priorities, from.priorities);
    if (to.times != nullptr) column(to.times, from.times);
    if (to.weights != nullptr) column(to.weights, from.weights);
  }
  static void write(const Columns& to, uint32_t place, uint64_t priority, const Neighbor& neighbor) {
    to.ids[place] = neighbor.id;
    if (to.priorities != nullptr) to.priorities[place] = priority;
    if (to.times != nullptr) to.times[place] = neighbor.time;
    if (to.weights != nullptr) to.weights[place] = neighbor.weight;
  }

  void insert_moving(CellRoot* root, uint32_t place, uint64_t id);
  CellChange insert_entry(uint64_t salt, uint64_t priority, CellRoot* root, const Neighbor& neighbor);
  // Makes room for so many entries, whose columns are to be written.
  Columns resize(CellRoot* root, uint32_t size);
  // Cuts the cell to its first `keep` entries and makes a hole among them; all of it may move.
  Columns open(CellRoot* root, uint32_t hole, uint32_t keep);
  void close(CellRoot* root, uint32_t hole);
  // Where an entry stands or would stand.
  uint32_t lower_bound(const CellView& cell, uint64_t salt, uint64_t priority, uint64_t id) const;
  uint32_t place_of(const CellView& cell, uint64_t id) const {
    return static_cast<uint32_t>(std::find(cell.ids, cell.ids + cell.size, id) - cell.ids);
  }
  CellChange update(uint64_t salt, CellRoot* root, uint32_t place, uint64_t priority, const Neighbor& neighbor);

  CellFormat format_;
  BlockHeap heap_;
};

namespace id_cells {

// How many of the first `size` ids have smaller priorities. It looks at all `kRoom` ids, because a branch on a priority
// is guessed wrong half of the time, and that costs more.
template <uint32_t kRoom>
uint32_t rank_of(const uint64_t* ids, uint32_t size, uint64_t salt, uint64_t priority) {
  uint32_t smaller = 0;
  for (uint32_t i = 0; i < kRoom; ++i) {
    smaller |= static_cast<uint32_t>(uniform_priority(salt, ids[i]) < priority) << i;
  }
  return static_cast<uint32_t>(std::countr_one(smaller & ((1u << size) - 1)));
}
// All bits, or none: what is chosen with it is chosen without a branch, which compilers make of `?:`.
inline uint64_t mask_if(bool condition) { return 0 - static_cast<uint64_t>(condition); }

// The same by halves, without a branch that depends on a priority either.
inline uint32_t rank_of(const uint64_t* ids, uint32_t size, uint64_t salt, uint64_t priority) {
  if (size == 0) return 0;
  const uint64_t* from = ids;
  for (uint32_t left = size; left > 1;) {
    const uint32_t half = left / 2;
    from += half & mask_if(uniform_priority(salt, from[half - 1]) < priority);
    left -= half;
  }
  return static_cast<uint32_t>(from - ids) + (uniform_priority(salt, *from) < priority ? 1 : 0);
}

// Moves all ids from `place` on up by one, over the last.
template <uint32_t kRoom>
void make_hole(uint64_t* ids, uint32_t place) {
  for (uint32_t i = kRoom - 1; i > 0; --i) ids[i] ^= (ids[i] ^ ids[i - 1]) & mask_if(i > place);
}

}  // namespace id_cells

inline CellChange CellHeap::insert_id(uint64_t salt, uint64_t priority, CellRoot* root, uint64_t id) {
  const uint32_t size = root->size, room = size > 0 ? format_.room(size) : 0;
  uint64_t* const ids = size > 0 ? ids_of(root->block) : nullptr;
  const uint32_t place = room == 4   ? id_cells::rank_of<4>(ids, size, salt, priority)
                         : room == 8 ? id_cells::rank_of<8>(ids, size, salt, priority)
                                     : id_cells::rank_of(ids, size, salt, priority);
  CellChange change;
  if (place < size && ids[place] == id) return change;  // no two ids have the same priority
  if (size == format_.options().count) {
    if (place == size) return change;
    change.removed = true;
    change.removed_id = ids[size - 1];
  } else if (format_.room(size + 1) != room) {
    insert_moving(root, place, id);
    change.changed = change.added = true;
    return change;
  } else {
    root->size = size + 1;
  }
  change.changed = change.added = true;
  if (room == 4) {
    id_cells::make_hole<4>(ids, place);
  } else if (room == 8) {
    id_cells::make_hole<8>(ids, place);
  } else if (root->size - 1 > place) {
    std::memmove(ids + place + 1, ids + place, (root->size - 1 - place) * sizeof(uint64_t));
  }
  ids[place] = id;
  return change;
}

}  // namespace livegnn
