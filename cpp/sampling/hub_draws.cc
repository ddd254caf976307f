#include "sampling/hub_draws.h"

#include <algorithm>
#include <cassert>

namespace livegnn {

template <class Id>
void HubDraws<Id>::alike(const Task& task, uint32_t first, std::vector<Id>* to) {
  const auto order = task.trees->order_of(task.root);
  assert(first <= order.count);
  if (first == 0) return;
  // Without replacement at least a third of them is left to the end (`draws_a_large_share`), so this terminates.
  for (size_t taken = 0; taken < task.count;) {
    const auto at = static_cast<uint32_t>(task.random->below(first));
    const Id id = task.trees->by_time().at(order, at, task.leaves).id;
    if (task.drawn != nullptr && !task.drawn->insert(id)) continue;
    to->push_back(id);
    ++taken;
  }
}

template <class Id>
void HubDraws<Id>::latest(const Task& task, uint32_t first, std::vector<Id>* to) {
  entries_.clear();
  const auto begin = static_cast<uint32_t>(first - std::min<size_t>(task.count, first));
  task.trees->by_time().list(task.trees->order_of(task.root), begin, first, &entries_, task.leaves);
  for (size_t i = entries_.size(); i > 0; --i) to->push_back(entries_[i - 1].id);
}

template <class Id>
void HubDraws<Id>::by_weight(const Task& task, uint32_t first, std::vector<Id>* to) {
  auto skip = [&](Id id) { return task.drawn != nullptr && task.drawn->contains(id); };
  parts_.clear();
  task.trees->by_time().parts(task.trees->order_of(task.root), first, skip, &parts_, task.leaves);
  draw_from_parts(task, task.trees->by_time(), to);
}

template <class Id>
void HubDraws<Id>::by_weight(const Task& task, std::vector<Id>* to) {
  parts_.assign(1, task.trees->part_of(task.root));
  draw_from_parts(task, *task.trees, to);
}

template <class Id>
template <class Tree>
void HubDraws<Id>::draw_from_parts(const Task& task, const Tree& tree, std::vector<Id>* to) {
  auto skip = [&](Id id) { return task.drawn != nullptr && task.drawn->contains(id); };
  bool changed = true;
  for (size_t taken = 0; taken < task.count;) {
    if (changed) {
      sums_.clear();
      double sum = 0;
      for (const auto& part : parts_) sums_.push_back(sum += part.sum);
      changed = false;
    }
    if (parts_.empty() || !(sums_.back() > 0)) return;
    const double at = task.random->uniform() * sums_.back();
    // The first part whose running sum exceeds a number has increased the sum.
    const auto p = static_cast<size_t>(std::upper_bound(sums_.begin(), sums_.end() - 1, at) - sums_.begin());
    const WeightPart<Id> part = parts_[p];
    const double rest = p > 0 ? at - sums_[p - 1] : at;
    Id id = part.id;
    const bool alone = part.node == 0;
    const bool found = alone || tree.find(part, rest, &id, task.leaves);
    if (found && (task.drawn == nullptr || task.drawn->insert(id))) {
      to->push_back(id);
      ++taken;
      if (!alone || task.drawn == nullptr) continue;
    }
    // Removes what was drawn before, or a run of zeros that rounding has led into, from further draws.
    parts_[p] = parts_.back();
    parts_.pop_back();
    if (!alone) tree.take_apart(part, rest, skip, &parts_, task.leaves);
    changed = true;
  }
}

template class HubDraws<uint32_t>;
template class HubDraws<uint64_t>;

}  // namespace livegnn
