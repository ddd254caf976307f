#include "presampling/subscription_table.h"

#include <algorithm>
#include <bit>
#include <new>

namespace livegnn {

Subscribed SubscriptionTable::add_to(Slot* slot, uint64_t node, uint32_t worker, int64_t change) {
  assert(worker < kMaxServingWorkers);
  if (change == 0) return Subscribed::kAsBefore;
  Count* found = nullptr;
  if (slot != nullptr) {
    const Counts counts = counts_of(*slot);
    found = std::find_if(counts.begin(), counts.end(), [&](const Count& one) { return one.worker == worker; });
    if (found == counts.end()) found = nullptr;
  }
  const int64_t count = (found == nullptr ? 0 : int64_t{found->count}) + change;
  if (count < 0 || count > int64_t{UINT32_MAX}) {
    throw std::runtime_error("subscriptions: worker " + std::to_string(worker) + " would need node " +
                             std::to_string(node) + " " + std::to_string(count) + " times");
  }
  if (found != nullptr && count > 0) {
    found->count = static_cast<uint32_t>(count);
    return Subscribed::kAsBefore;
  }
  if (count > 0) {
    const Count added{worker, static_cast<uint32_t>(count)};
    if (slot == nullptr) {
      slot = slots_.insert(node);
      slot->ref = added.worker;
      slot->count = added.count;
    } else {
      add_worker(slot, added);
    }
    return Subscribed::kNow;
  }
  if (slot->count > 0) {
    slots_.erase(slot);
  } else {
    remove_worker(slot, found);
  }
  return Subscribed::kNoLonger;
}

void SubscriptionTable::add_worker(Slot* slot, Count count) {
  const Counts old = counts_of(*slot);
  const BlockRef block = heap_.allocate(bytes_for(old.size + 1), 0);
  *static_cast<uint64_t*>(heap_.at(block)) = old.size + 1;
  const Counts counts = block_at(block);
  std::copy(old.begin(), old.end(), counts.begin());
  counts.first[old.size] = count;
  if (slot->count == 0) heap_.free(slot->ref);
  slot->ref = block;
  slot->count = 0;
}

void SubscriptionTable::remove_worker(Slot* slot, Count* removed) {
  const Counts old = block_at(slot->ref);
  const BlockRef replaced = slot->ref;
  if (old.size == 2) {
    const Count left = old.first[removed == old.first ? 1 : 0];
    slot->ref = left.worker;
    slot->count = left.count;
  } else {
    const BlockRef block = heap_.allocate(bytes_for(old.size - 1), 0);
    *static_cast<uint64_t*>(heap_.at(block)) = old.size - 1;
    Count* to = block_at(block).first;
    for (const Count& one : old) {
      if (&one != removed) *to++ = one;
    }
    slot->ref = block;
  }
  heap_.free(replaced);
}

void SubscriptionTable::settle() {
  constexpr size_t kTolerated = size_t{2} << 20;  // bytes
  if (heap_.free_bytes() <= heap_.live_bytes() / 2 + kTolerated) return;
  try {
    if (!heap_.mark_sparse()) return;
    slots_.for_each([&](Slot& slot) {
      if (slot.count > 0 || !heap_.in_sparse(slot.ref)) return;
      const BlockRef to = heap_.copy(slot.ref);
      heap_.free(slot.ref);
      slot.ref = to;
    });
  } catch (const std::bad_alloc&) {
    // The other blocks stay where they are.
  }
  heap_.reclaim();
}

void SubscriptionTable::clear() noexcept {
  slots_.for_each([&](Slot& slot) {
    if (slot.count == 0) heap_.free(slot.ref);
  });
  slots_.clear();
  settle();
}

void SubscriptionTable::save(const std::string& prefix, Arrays* to) const {
  std::vector<int64_t> nodes;
  std::vector<uint32_t> workers, counts;
  for_each([&](uint64_t node, uint32_t worker, uint32_t count) {
    nodes.push_back(std::bit_cast<int64_t>(node));
    workers.push_back(worker);
    counts.push_back(count);
  });
  to->put(prefix + "nodes", std::move(nodes));
  to->put(prefix + "workers", std::move(workers));
  to->put(prefix + "counts", std::move(counts));
}

void SubscriptionTable::load(const std::string& prefix, const ArrayViews& from) {
  clear();
  const auto nodes = from.at<int64_t>(prefix + "nodes");
  const auto workers = from.of_size<uint32_t>(prefix + "workers", nodes.size());
  const auto counts = from.of_size<uint32_t>(prefix + "counts", nodes.size());
  try {
    for (size_t i = 0; i < nodes.size(); ++i) {
      const auto node = std::bit_cast<uint64_t>(nodes[i]);
      if (workers[i] >= kMaxServingWorkers || counts[i] == 0 || count(node, workers[i]) > 0) {
        throw std::runtime_error("subscriptions: an unknown worker, a count of 0, or one that is there twice");
      }
      add(node, workers[i], counts[i]);
    }
  } catch (...) {
    clear();
    throw;
  }
}

}  // namespace livegnn
