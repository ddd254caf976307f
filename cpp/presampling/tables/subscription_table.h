// Which serving workers need something of a node, and how often: reference counts by node and worker. There is one
// table for the cells of each one-hop query whose key nodes are neighbours, and one for the features of each node type.
//
//   id ─► row of a NodeTable | id | .. | worker, count | .. |     one worker: 8 bytes a node
//                            | id | .. | block, 0      | .. | ─► | number of workers | worker, count | worker, count |
//                            ..
//
// Invariants: counts are positive; the word of a node without a count is 0; a node with one worker has no block.
// Thread safety: any number of readers, or one writer.
#pragma once

#include <bit>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "memory/block_heap.h"
#include "presampling/tables/node_table.h"
#include "views/arrays.h"

namespace livegnn {

inline constexpr uint32_t kMaxServingWorkers = 4000;  // so that the workers of a node fit into a block

enum class Subscribed : uint8_t { kAsBefore, kNow, kNoLonger };

class SubscriptionTable {
 public:
  // The rows are those of `nodes`, which has none yet and outlives this table; null: it has rows of its own.
  explicit SubscriptionTable(NodeTable* nodes = nullptr)
      : own_(nodes == nullptr ? std::make_unique<NodeTable>() : nullptr),
        nodes_(nodes == nullptr ? own_.get() : nodes),
        column_(nodes_->add_column()) {}
  SubscriptionTable(const SubscriptionTable&) = delete;
  SubscriptionTable& operator=(const SubscriptionTable&) = delete;

  size_t size() const { return size_; }  // nodes that somebody needs
  // Without rows that are not its own.
  size_t bytes() const { return (own_ == nullptr ? 0 : own_->bytes()) + heap_.resident_bytes(); }
  NodeTable* nodes() const { return nodes_; }

  // -- reading. Rows may be null.

  bool has(uint64_t node) const { return has_at(nodes_->find(node)); }
  bool has_at(const uint64_t* row) const { return row != nullptr && row[column_] != 0; }
  uint32_t count(uint64_t node, uint32_t worker) const { return count_at(nodes_->find(node), worker); }
  uint32_t count_at(const uint64_t* row, uint32_t worker) const {
    uint32_t count = 0;
    for_each_at(row, [&](const Count& one) { count += one.worker == worker ? one.count : 0; });
    return count;
  }
  // `visit(worker)` for each that needs the node, in no order.
  template <class Visit>
  void for_each_worker(uint64_t node, Visit&& visit) const {
    for_each_worker_at(nodes_->find(node), visit);
  }
  template <class Visit>
  void for_each_worker_at(const uint64_t* row, Visit&& visit) const {
    for_each_at(row, [&](const Count& one) { visit(one.worker); });
  }
  // `visit(node, worker, count)`, in no order.
  template <class Visit>
  void for_each(Visit&& visit) const {
    std::as_const(*nodes_).for_each([&](const uint64_t* row) {
      for_each_at(row, [&](const Count& one) { visit(row[0], one.worker, one.count); });
    });
  }

  // Adds to a count, and says whether the worker needs the node now, or no longer. Throws std::runtime_error if the
  // count would be negative, or more than 32 bits hold, and std::bad_alloc; then nothing has changed.
  Subscribed add(uint64_t node, uint32_t worker, int64_t change);
  // The same in the node's row, which stays if it becomes blank.
  Subscribed add_at(uint64_t* row, uint32_t worker, int64_t change) {
    // Nearly always the one worker that a node has, or its first, once more or less.
    const Word word = word_of(row);
    if (row[column_] == 0 && change == 1) {
      row[column_] = std::bit_cast<uint64_t>(Word{worker, 1});
      ++size_;
      return Subscribed::kNow;
    }
    const int64_t count = int64_t{word.count} + change;
    if (word.count == 0 || word.ref != worker || count <= 0 || count > int64_t{UINT32_MAX}) {
      return add_further(row, worker, change);
    }
    row[column_] = std::bit_cast<uint64_t>(Word{worker, static_cast<uint32_t>(count)});
    return Subscribed::kAsBefore;
  }
  // Gives memory back if much is free; call it after a batch.
  void settle();
  void clear() noexcept;

  // As arrays whose names begin with `prefix`. `load` throws std::runtime_error if they are no such table, and then it
  // is empty.
  void save(const std::string& prefix, Arrays* to) const;
  void load(const std::string& prefix, const ArrayViews& from);

 private:
  struct Count {
    uint32_t worker, count;
  };
  struct Word {
    uint32_t ref;    // the worker; or the block of several, if `count` is 0
    uint32_t count;  // of the one worker
  };
  static_assert(sizeof(Word) == sizeof(uint64_t));
  struct Counts {
    Count* first;
    size_t size;
    Count* begin() const { return first; }
    Count* end() const { return first + size; }
  };

  static size_t bytes_for(size_t workers) { return sizeof(uint64_t) + workers * sizeof(Count); }
  Word word_of(const uint64_t* row) const { return std::bit_cast<Word>(row[column_]); }
  Counts block_at(BlockRef block) const {
    auto* const words = static_cast<uint64_t*>(heap_.at(block));
    return {reinterpret_cast<Count*>(words + 1), static_cast<size_t>(*words)};
  }
  template <class Visit>
  void for_each_at(const uint64_t* row, const Visit& visit) const {
    if (!has_at(row)) return;
    const Word word = word_of(row);
    if (word.count > 0) return visit(Count{word.ref, word.count});
    for (const Count& one : block_at(word.ref)) visit(one);
  }
  Subscribed add_further(uint64_t* row, uint32_t worker, int64_t change);
  void add_worker(uint64_t* row, Count count);
  void remove_worker(uint64_t* row, Count* removed);

  std::unique_ptr<NodeTable> own_;
  NodeTable* nodes_;
  size_t column_;
  size_t size_ = 0;
  BlockHeap heap_;
};

}  // namespace livegnn
