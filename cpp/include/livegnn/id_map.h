// The user's ids outside, dense 32-bit indices inside.
//
// While every node's id is its own index (the common case of a graph that was numbered before it came here) there is no
// hash map at all: a look-up is a comparison. The map is built when the first other id arrives.
// Indices of removed nodes are given out again, the one freed last first.
//
// Invariants: `index_of(id_of(i)) == i` for every index in use; an index in `free_` is not in use.
// Thread safety: any number of readers, or one writer.
#pragma once

#include <tsl/robin_map.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "livegnn/mix_hash.h"

namespace livegnn {

inline constexpr uint32_t kNoIndex = UINT32_MAX;
inline constexpr int64_t kNoId = -1;

class IdMap {
 public:
  // Indices below this have been given out at some time; tables have as many rows.
  size_t capacity() const { return ids_.size(); }
  size_t size() const { return ids_.size() - free_.size(); }
  bool in_use(uint32_t index) const { return index < ids_.size() && ids_[index] != kNoId; }
  int64_t id_of(uint32_t index) const { return ids_[index]; }

  uint32_t index_of(int64_t id) const {
    if (identity_) return id >= 0 && static_cast<size_t>(id) < ids_.size() && ids_[id] == id ? id : kNoIndex;
    auto found = map_.find(id);
    return found == map_.end() ? kNoIndex : found->second;
  }

  // The index that the n-th insertion from now will take (n from 0), if nothing is erased before.
  uint32_t next_index(size_t n) const {
    return n < free_.size() ? free_[free_.size() - 1 - n] : static_cast<uint32_t>(ids_.size() + n - free_.size());
  }

  // With kNoId the index is taken but names nothing, until `release` frees it.
  uint32_t insert(int64_t id) {
    uint32_t index = next_index(0);
    if (identity_ && id != index && id != kNoId) {
      identity_ = false;
      map_.reserve(ids_.size() + 1);
      for (uint32_t i = 0; i < ids_.size(); ++i) {
        if (ids_[i] != kNoId) map_[ids_[i]] = i;
      }
    }
    if (free_.empty()) {
      ids_.push_back(id);
    } else {
      free_.pop_back();
      ids_[index] = id;
    }
    if (!identity_ && id != kNoId) map_[id] = index;
    return index;
  }
  void release(uint32_t index) { free_.push_back(index); }

  // The id may have been inserted again under another index: then it stays known by that one.
  void erase(uint32_t index) {
    auto found = map_.find(ids_[index]);
    if (found != map_.end() && found->second == index) map_.erase(found);
    ids_[index] = kNoId;
    free_.push_back(index);
  }

  const std::vector<int64_t>& ids() const { return ids_; }
  const std::vector<uint32_t>& free_list() const { return free_; }
  void restore(std::vector<int64_t> ids, std::vector<uint32_t> free) {
    ids_ = std::move(ids);
    free_ = std::move(free);
    map_ = {};
    identity_ = true;
    for (uint32_t i = 0; i < ids_.size(); ++i) identity_ = identity_ && (ids_[i] == kNoId || ids_[i] == i);
    if (identity_) return;
    map_.reserve(ids_.size());
    for (uint32_t i = 0; i < ids_.size(); ++i) {
      if (ids_[i] != kNoId) map_[ids_[i]] = i;
    }
  }

  size_t bytes() const {
    return ids_.capacity() * sizeof(int64_t) + free_.capacity() * sizeof(uint32_t) +
           map_.bucket_count() * (sizeof(int64_t) + sizeof(uint64_t));
  }

 private:
  bool identity_ = true;
  std::vector<int64_t> ids_;  // by index; kNoId where free
  std::vector<uint32_t> free_;
  tsl::robin_map<int64_t, uint32_t, MixHash> map_;
};

// Texts as integers: the rest of the core knows integer ids alone. Texts are numbered in the order in which they are
// first seen; the number says nothing and is never saved.
class TextIds {
 public:
  int64_t intern(std::string_view text) {
    auto found = numbers_.find(std::string(text));
    if (found != numbers_.end()) return found->second;
    auto number = static_cast<int64_t>(texts_.size());
    texts_.emplace_back(text);
    numbers_.emplace(texts_.back(), number);
    return number;
  }
  int64_t find(std::string_view text) const {
    auto found = numbers_.find(std::string(text));
    return found == numbers_.end() ? kNoId : found->second;
  }
  const std::string& text(int64_t number) const { return texts_[static_cast<size_t>(number)]; }

 private:
  std::vector<std::string> texts_;
  tsl::robin_map<std::string, int64_t> numbers_;
};

}  // namespace livegnn
