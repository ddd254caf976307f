#include "presampling/tables/subscription_table.h"

#include <algorithm>
#include <bit>
#include <new>

namespace livegnn {

Subscribed SubscriptionTable::add(uint64_t node, uint32_t worker, int64_t change) {
  uint64_t* const row = nodes_->insert(node);
  try {
    const Subscribed result = add_at(row, worker, change);
    nodes_->release(row);
    return result;
  } catch (...) {
    nodes_->release(row);
    throw;
  }
}

Subscribed SubscriptionTable::add_further(uint64_t* row, uint32_t worker, int64_t change) {
  assert(worker < kMaxServingWorkers);
  if (change == 0) return Subscribed::kAsBefore;
  const Word word = word_of(row);
  Count alone{word.ref, word.count}, *found = nullptr;
  if (row[column_] != 0) {
    const Counts counts = word.count > 0 ? Counts{&alone, 1} : block_at(word.ref);
    found = std::find_if(counts.begin(), counts.end(), [&](const Count& one) { return one.worker == worker; });
    if (found == counts.end()) found = nullptr;
  }
  const int64_t count = (found == nullptr ? 0 : int64_t{found->count}) + change;
  if (count < 0 || count > int64_t{UINT32_MAX}) {
    throw std::runtime_error("subscriptions: worker " + std::to_string(worker) + " would need node " +
                             std::to_string(row[0]) + " " + std::to_string(count) + " times");
  }
  const Count changed{worker, static_cast<uint32_t>(count)};
  if (found != nullptr && count > 0) {
    if (found == &alone) {
      row[column_] = std::bit_cast<uint64_t>(Word{changed.worker, changed.count});
    } else {
      *found = changed;
    }
    return Subscribed::kAsBefore;
  }
  if (count > 0) {
    if (row[column_] == 0) {
      row[column_] = std::bit_cast<uint64_t>(Word{changed.worker, changed.count});
      ++size_;
    } else {
      add_worker(row, changed);
    }
    return Subscribed::kNow;
  }
  if (found == &alone) {
    row[column_] = 0;
    --size_;
  } else {
    remove_worker(row, found);
  }
  return Subscribed::kNoLonger;
}

void SubscriptionTable::add_worker(uint64_t* row, Count count) {
  const Word word = word_of(row);
  Count alone{word.ref, word.count};
  const Counts old = word.count > 0 ? Counts{&alone, 1} : block_at(word.ref);
  const BlockRef block = heap_.allocate(bytes_for(old.size + 1), 0);
  *static_cast<uint64_t*>(heap_.at(block)) = old.size + 1;
  const Counts counts = block_at(block);
  std::copy(old.begin(), old.end(), counts.begin());
  counts.first[old.size] = count;
  if (word.count == 0) heap_.free(word.ref);
  row[column_] = std::bit_cast<uint64_t>(Word{block, 0});
}

void SubscriptionTable::remove_worker(uint64_t* row, Count* removed) {
  const Word word = word_of(row);
  const Counts old = block_at(word.ref);
  if (old.size == 2) {
    const Count left = old.first[removed == old.first ? 1 : 0];
    row[column_] = std::bit_cast<uint64_t>(Word{left.worker, left.count});
  } else {
    const BlockRef block = heap_.allocate(bytes_for(old.size - 1), 0);
    *static_cast<uint64_t*>(heap_.at(block)) = old.size - 1;
    Count* to = block_at(block).first;
    for (const Count& one : old) {
      if (&one != removed) *to++ = one;
    }
    row[column_] = std::bit_cast<uint64_t>(Word{block, 0});
  }
  heap_.free(word.ref);
}

void SubscriptionTable::settle() {
  constexpr size_t kTolerated = size_t{2} << 20;  // bytes
  if (heap_.free_bytes() <= heap_.live_bytes() / 2 + kTolerated) return;
  try {
    if (!heap_.mark_sparse()) return;
    nodes_->for_each([&](uint64_t* row) {
      const Word word = word_of(row);
      if (row[column_] == 0 || word.count > 0 || !heap_.in_sparse(word.ref)) return;
      const BlockRef to = heap_.copy(word.ref);
      heap_.free(word.ref);
      row[column_] = std::bit_cast<uint64_t>(Word{to, 0});
    });
  } catch (const std::bad_alloc&) {
    // The other blocks stay where they are.
  }
  heap_.reclaim();
}

void SubscriptionTable::clear() noexcept {
  nodes_->for_each([&](uint64_t* row) {
    const Word word = word_of(row);
    if (row[column_] != 0 && word.count == 0) heap_.free(word.ref);
    row[column_] = 0;
  });
  size_ = 0;
  nodes_->purge();
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
