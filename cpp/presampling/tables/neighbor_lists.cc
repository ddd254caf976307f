#include "presampling/tables/neighbor_lists.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <optional>
#include <stdexcept>
#include <tuple>

#include "memory/prefetch.h"
#include "memory/recent_needs.h"

namespace livegnn {
namespace {

// How many changes ahead numbers are fetched, roots of lists, and what is below a root.
constexpr size_t kNumberAhead = 32, kRootAhead = 16, kLeafAhead = 8;

}  // namespace

size_t NeighborLists::bytes() const {
  return numbers_.bytes() + bytes_of(nodes_) + bytes_of(free_numbers_) + bytes_of(order_) + bytes_of(items_) +
         bytes_of(late_) + lists_->trees.bytes() + lists_->updater.bytes();
}

uint32_t NeighborLists::number_of(uint64_t node) {
  if (const Slot* slot = numbers_.find(node)) return slot->number - 1;
  const bool reused = !free_numbers_.empty();
  const auto number = reused ? free_numbers_.back() : static_cast<uint32_t>(nodes_.size());
  if (!reused) {
    nodes_.reserve(std::bit_ceil(nodes_.size() + 1));
    free_numbers_.reserve(nodes_.capacity());
  }
  numbers_.insert(node)->number = number + 1;
  if (reused) {
    free_numbers_.pop_back();
    nodes_[number] = node;
  } else {
    nodes_.push_back(node);
  }
  return number;
}

void NeighborLists::release_empty(uint64_t node) noexcept {
  Slot* slot = numbers_.find(node);
  if (slot == nullptr || lists_->trees.degree(slot->number - 1) > 0) return;
  free_numbers_.push_back(slot->number - 1);
  numbers_.erase(slot);
}

// What becomes of the changes of two nodes, at `begin` to `end` of `order_`; null if nothing does.
const NeighborLists::Change* NeighborLists::outcome_of(std::span<const Change> changes, size_t begin, size_t end) {
  if (!columns_.timed) return &changes[order_[end - 1].place];
  const Slot* const slot = numbers_.find(order_[begin].node);
  const auto there = slot == nullptr ? std::nullopt : lists_->trees.find(slot->number - 1, order_[begin].id);
  const Change* last = nullptr;
  double time = there ? there->time : -std::numeric_limits<double>::infinity();
  for (size_t i = begin; i < end; ++i) {
    const Change& change = changes[order_[i].place];
    if (change.has && change.neighbor.time < time) continue;
    last = &change;
    time = change.has ? change.neighbor.time : -std::numeric_limits<double>::infinity();
  }
  for (size_t i = begin; i < end; ++i) {
    const Change& change = changes[order_[i].place];
    late_[order_[i].place] = change.has && time > change.neighbor.time;
  }
  return last;
}

// Fetches what a later change reads, in steps, each of which reads what the one before has fetched.
void NeighborLists::fetch_ahead(size_t change) const {
  if (change + kNumberAhead < order_.size()) numbers_.prefetch(order_[change + kNumberAhead].node);
  if (!columns_.timed) return;  // then lists are read by the updater alone, which does this itself
  const auto slot_at = [&](size_t i) { return i < order_.size() ? numbers_.find(order_[i].node) : nullptr; };
  if (const Slot* slot = slot_at(change + kRootAhead)) lists_->trees.prefetch_root(slot->number - 1);
  if (const Slot* slot = slot_at(change + kLeafAhead)) livegnn::prefetch(lists_->trees.address(slot->number - 1));
}

void NeighborLists::apply(std::span<const Change> changes) {
  order_.clear();
  items_.clear();
  if (columns_.timed) late_.resize(changes.size());
  bool removes = false;
  for (size_t i = 0; i < changes.size(); ++i) {
    removes = removes || !changes[i].has;
    order_.push_back({changes[i].node, changes[i].neighbor.id, static_cast<uint32_t>(i)});
  }
  std::sort(order_.begin(), order_.end(), [](const Ordered& a, const Ordered& b) {
    return std::tie(a.node, a.id, a.place) < std::tie(b.node, b.id, b.place);
  });
  try {
    for (size_t begin = 0, end = 0; begin < order_.size(); begin = end) {
      fetch_ahead(begin);
      while (end < order_.size() && order_[end].node == order_[begin].node && order_[end].id == order_[begin].id) ++end;
      const Change* const change = outcome_of(changes, begin, end);
      if (change == nullptr || (!change->has && numbers_.find(change->node) == nullptr)) continue;
      const EdgeValue value{columns_.weighted ? change->neighbor.weight : 1.0f,
                            columns_.timed ? change->neighbor.time : 0.0};
      items_.push_back({number_of(change->node), {change->neighbor.id, change->has, value}});
    }
    lists_->trees.prepare_size(nodes_.size());
    lists_->trees.resize(nodes_.size());
    lists_->updater.prepare(items_, &pool_);
  } catch (...) {
    lists_->updater.abandon();
    for (const Ordered& one : order_) release_empty(one.node);
    throw;
  }
  lists_->updater.commit();
  lists_->updater.settle();
  lists_->trees.settle_size();
  if (removes) {
    for (const Ordered& one : order_) release_empty(one.node);
  }
  if (numbers_.size() == 0) {
    clear();
  } else {
    compact();
  }
}

void NeighborLists::compact() {
  try {
    if (!lists_->updater.prepare_compaction()) return;
    lists_->updater.commit();
    lists_->updater.settle();
  } catch (const std::bad_alloc&) {
    lists_->updater.abandon();
  }
}

void NeighborLists::clear() {
  auto lists = std::make_unique<Lists>(columns_);
  lists_ = std::move(lists);
  numbers_.clear();
  give_back(&nodes_);
  give_back(&free_numbers_);
  give_back(&order_);
  give_back(&items_);
  give_back(&late_);
}

void NeighborLists::save(const std::string& prefix, Arrays* to) const {
  std::vector<int64_t> nodes, ids;
  std::vector<float> weights;
  std::vector<double> times;
  for_each([&](uint64_t node, const Neighbor& neighbor) {
    nodes.push_back(std::bit_cast<int64_t>(node));
    ids.push_back(std::bit_cast<int64_t>(neighbor.id));
    if (columns_.weighted) weights.push_back(neighbor.weight);
    if (columns_.timed) times.push_back(neighbor.time);
  });
  to->put(prefix + "nodes", std::move(nodes));
  to->put(prefix + "ids", std::move(ids));
  if (columns_.weighted) to->put(prefix + "weights", std::move(weights));
  if (columns_.timed) to->put(prefix + "times", std::move(times));
}

void NeighborLists::load(const std::string& prefix, const ArrayViews& from) {
  clear();
  const auto nodes = from.at<int64_t>(prefix + "nodes");
  const auto ids = from.of_size<int64_t>(prefix + "ids", nodes.size());
  std::span<const float> weights;
  std::span<const double> times;
  if (columns_.weighted) weights = from.of_size<float>(prefix + "weights", nodes.size());
  if (columns_.timed) times = from.of_size<double>(prefix + "times", nodes.size());
  std::vector<Change> changes;
  constexpr size_t kAtOnce = size_t{1} << 16;
  for (size_t i = 0; i < nodes.size(); ++i) {
    Change change{std::bit_cast<uint64_t>(nodes[i]), {std::bit_cast<uint64_t>(ids[i])}, true};
    if (columns_.weighted) change.neighbor.weight = weights[i];
    if (columns_.timed) change.neighbor.time = times[i];
    changes.push_back(change);
    if (changes.size() < kAtOnce && i + 1 < nodes.size()) continue;
    apply(changes);
    changes.clear();
  }
}

}  // namespace livegnn
