// A small cache by key: a new entry replaces the least recently used one.
//
// Invariants: at most `Most` entries, the most recently used first. The address of an entry does not change while it
// exists.
// Thread safety: none; meant for memory that belongs to one thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

namespace livegnn {

template <class Key, class Value, size_t Most>
class Recent {
 public:
  // The entry of `key`; a new one is initialized to Value().
  Value& at(const Key& key) {
    auto found = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) { return entry.first == key; });
    if (found == entries_.end()) {
      if (entries_.size() == Most) entries_.pop_back();
      entries_.emplace_back(key, std::make_unique<Value>());
      found = entries_.end() - 1;
    }
    std::rotate(entries_.begin(), found, found + 1);
    return *entries_.front().second;
  }

  size_t size() const { return entries_.size(); }

 private:
  using Entry = std::pair<Key, std::unique_ptr<Value>>;

  std::vector<Entry> entries_;
};

}  // namespace livegnn
