// Which entries of a cache may have been evicted: a Bloom filter of their keys. A key that was added is found; one that
// was not is rarely.
//
// Invariant: all bits of a key are in one line of the cache, so a look-up costs one miss.
// Thread safety: any number of readers, or one writer.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "hashing/mix_hash.h"

namespace livegnn {

class EvictedFilter {
 public:
  // Of one bit in a hundred or less that should not be found, while there are at most `bytes * 8 / 12` keys.
  explicit EvictedFilter(size_t bytes) : words_(std::bit_ceil(std::max<size_t>(bytes, 4096)) / sizeof(uint64_t)) {}

  size_t bytes() const { return words_.capacity() * sizeof(uint64_t); }
  void add(uint64_t key) {
    for_each_bit(key, [&](size_t word, uint64_t bit) {
      words_[word] |= bit;
      return true;
    });
  }
  bool may_have(uint64_t key) const {
    return for_each_bit(key, [&](size_t word, uint64_t bit) { return (words_[word] & bit) != 0; });
  }
  void clear() { std::fill(words_.begin(), words_.end(), 0); }

 private:
  static constexpr size_t kWordsOfLine = 8;
  static constexpr int kBits = 6;

  // `visit(word, bit)` for the bits of a key, as long as it returns true.
  template <class Visit>
  bool for_each_bit(uint64_t key, const Visit& visit) const {
    const uint64_t line = MixHash{}(key) & (words_.size() / kWordsOfLine - 1);
    uint64_t bits = MixHash{}(key ^ 0x9e3779b97f4a7c15ULL);
    for (int i = 0; i < kBits; ++i, bits >>= 9) {
      if (!visit(line * kWordsOfLine + (bits >> 6 & 7), uint64_t{1} << (bits & 63))) return false;
    }
    return true;
  }

  std::vector<uint64_t> words_;
};

}  // namespace livegnn
