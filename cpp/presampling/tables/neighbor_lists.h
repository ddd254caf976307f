// The whole lists of neighbours of a sampling worker's nodes, for one edge type and direction: from them cells are
// drawn anew after removals. Samtrees (store/samtree/samtree.h) of 64-bit ids; nodes have dense numbers here, which are
// given out again.
//
// Invariants: a node without neighbours has no number; an id occurs once in a list.
// Thread safety: any number of readers, or one writer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "memory/slot_table.h"
#include "presampling/tables/cell_heap.h"
#include "store/samtree/batch_updater.h"
#include "threads/parallel.h"
#include "views/arrays.h"

namespace livegnn {

class NeighborLists {
 public:
  struct Change {
    uint64_t node;
    Neighbor neighbor;
    bool has;  // false: it is removed
  };

  // Whether edges keep their weights, or times.
  NeighborLists(bool weighted, bool timed) : columns_{weighted, timed, false}, lists_(new Lists(columns_)) {}

  size_t size() const { return numbers_.size(); }  // nodes that have neighbours
  size_t bytes() const;

  // In their order. With times, as in the graph, an edge that is there with a later time stays. If it throws, nothing
  // has changed.
  void apply(std::span<const Change> changes);
  void prefetch(uint64_t node) const { numbers_.prefetch(node); }
  // Whether a neighbour that a change of the last `apply` has added was there, or came in it, with a later time.
  bool was_late(size_t change) const { return columns_.timed && late_[change] != 0; }
  // `visit(Neighbor)` for each neighbour of a node.
  template <class Visit>
  void scan(uint64_t node, Visit&& visit) const {
    const Slot* slot = numbers_.find(node);
    if (slot != nullptr) scan_number(slot->number - 1, visit);
  }
  // `visit(node, Neighbor)` for each list.
  template <class Visit>
  void for_each(Visit&& visit) const {
    for (uint32_t number = 0; number < nodes_.size(); ++number) {
      scan_number(number, [&](const Neighbor& neighbor) { visit(nodes_[number], neighbor); });
    }
  }
  void clear();

  // As arrays whose names begin with `prefix`. `load` throws std::runtime_error if they are no such lists, and then
  // there are none.
  void save(const std::string& prefix, Arrays* to) const;
  void load(const std::string& prefix, const ArrayViews& from);

 private:
  using Trees = Samtrees<uint64_t>;
  using Updater = BasicBatchUpdater<uint64_t>;

  struct Slot {
    uint64_t key;
    uint32_t number, spare;  // plus 1

    bool empty() const { return number == 0; }
  };
  struct Lists {
    explicit Lists(EdgeColumns columns) : trees(columns, {}) {}
    Trees trees;
    Updater updater{&trees};
  };
  struct Ordered {
    uint64_t node, id;
    uint32_t place;
  };

  template <class Visit>
  void scan_number(uint32_t number, const Visit& visit) const {
    lists_->trees.scan(number, [&](const BasicNeighborSpan<uint64_t>& span) {
      for (size_t i = 0; i < span.size; ++i) {
        visit(Neighbor{span.ids[i], span.weights == nullptr ? 1.0f : span.weights[i],
                       span.times == nullptr ? 0.0 : span.times[i]});
      }
    });
  }
  const Change* outcome_of(std::span<const Change> changes, size_t begin, size_t end);
  void fetch_ahead(size_t change) const;
  uint32_t number_of(uint64_t node);
  void release_empty(uint64_t node) noexcept;
  void compact();

  EdgeColumns columns_;
  ThreadPool pool_{1};
  std::unique_ptr<Lists> lists_;
  SlotTable<Slot> numbers_;
  std::vector<uint64_t> nodes_;         // by number
  std::vector<uint32_t> free_numbers_;  // has room for all
  std::vector<Ordered> order_;          // working memory of `apply`
  std::vector<Updater::Item> items_;
  std::vector<uint8_t> late_;  // by change of the last `apply`, if edges have times
};

}  // namespace livegnn
