// What every contestant of the store's benchmark is given, and what it is counted with.
//
// A contestant holds directed edges from source to target, at most one of each pair, weighted or not. An edge of a
// batch that is there already gets the new weight; one that is to be removed and is not there is no error. No edge
// occurs twice in a batch. A batch has two steps: `prepare` may go on while others read, `commit` has the contestant
// for itself; who cannot build aside does everything in `commit`. So a reader sees the edges before a batch or after
// it, never between.
//
// For Linux with glibc, which says how large a block of memory really is.
#pragma once

#include <malloc.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace livegnn::bench {

// Columns of equal length. Null: every weight is 1; nothing is removed.
struct Batch {
  const uint32_t* sources;
  const uint32_t* targets;
  const float* weights;
  const uint8_t* removed;
  size_t size;

  float weight(size_t i) const { return weights != nullptr ? weights[i] : 1.0f; }
  bool removes(size_t i) const { return removed != nullptr && removed[i] != 0; }
};

// Who of several that share the sources out among themselves: every thread has its own lists, and no locks.
struct Share {
  uint32_t index = 0, of = 1;
  bool holds(uint32_t source) const { return source % of == index; }
  uint32_t row(uint32_t source) const { return source / of; }
  size_t rows(size_t nodes) const { return (nodes + of - 1 - index) / of; }
};

// A draw costs two multiplications (the mixer of SplitMix64 over a counter).
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15ULL) {}
  uint64_t bits() {
    uint64_t key = state_ += 0x9e3779b97f4a7c15ULL;
    key = (key ^ (key >> 30)) * 0xbf58476d1ce4e5b9ULL;
    key = (key ^ (key >> 27)) * 0x94d049bb133111ebULL;
    return key ^ (key >> 31);
  }
  uint32_t below(uint32_t n) { return static_cast<uint32_t>(((bits() >> 32) * n) >> 32); }
  // In [0, 1).
  double unit() { return static_cast<double>(bits() >> 11) * 0x1p-53; }

 private:
  uint64_t state_;
};

// What malloc has set aside for a block: its size as rounded, and the word before it.
inline size_t heap_bytes(const void* block) {
  return block == nullptr ? 0 : malloc_usable_size(const_cast<void*>(block)) + sizeof(size_t);
}
template <class T>
size_t heap_bytes(const std::vector<T>& values) {
  return heap_bytes(values.data());
}

// The buckets of a hash map: a value each, its hash and how far it is from home.
template <class Map>
size_t bucket_bytes(const Map& map) {
  struct Bucket {
    uint32_t hash, distance;
    typename Map::value_type value;
  };
  return map.bucket_count() * sizeof(Bucket);
}

// Where an id stands, or n. Sixteen at a time without a branch between them, which compilers turn into vectors.
inline size_t find_id(const uint32_t* ids, size_t n, uint32_t id) {
  size_t i = 0;
  for (; i + 16 <= n; i += 16) {
    uint32_t found = 0;
    for (size_t j = 0; j < 16; ++j) found |= ids[i + j] == id ? 1u : 0u;
    if (found != 0) break;
  }
  while (i < n && ids[i] != id) ++i;
  return i;
}

}  // namespace livegnn::bench
