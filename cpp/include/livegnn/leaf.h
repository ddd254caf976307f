// A leaf of a samtree: up to a few hundred neighbours, in no order, in one block without gaps.
//
//   | size | 0 | bits | base | times | weights | rows | FSTable of the weights | ids |     absent columns take no space
//
// A leaf is never changed once it can be seen: a change makes a new one, as long as its entries need. So readers need no
// latch, and no leaf keeps room for entries to come. A deleted entry is replaced by the last.
//
// Invariants: as in fs_table.h and id_codec.h; ids are distinct.
// Thread safety: any number of readers.
#pragma once

#include <cstddef>
#include <cstdint>

#include "livegnn/fs_table.h"
#include "livegnn/id_codec.h"

namespace livegnn {

inline constexpr uint32_t kNoRow = UINT32_MAX;

// Which columns an edge carries beside the id. `featured`: the row of its features.
struct EdgeColumns {
  bool weighted = false;
  bool timed = false;
  bool featured = false;
};

struct EdgeValue {
  float weight = 1.0f;
  double time = 0.0;
  uint32_t row = kNoRow;
};

// What leaves and inner nodes begin with.
struct SamtreeNode {
  uint16_t size;   // entries or children
  uint8_t height;  // 0: a leaf
};

template <class Id>
struct Leaf {
  uint16_t size;
  uint8_t height;
  uint8_t bits;
  Id base;

  IdFormat<Id> format() const { return {base, bits}; }

  static size_t bytes(EdgeColumns columns, uint32_t size, uint32_t bits) {
    return ids_at(columns, size) + IdCodec<Id>::bytes(bits, size);
  }

  const double* times() const { return reinterpret_cast<const double*>(this + 1); }
  const float* weights(EdgeColumns columns) const { return reinterpret_cast<const float*>(times() + columns.timed * size); }
  const uint32_t* rows(EdgeColumns columns) const {
    return reinterpret_cast<const uint32_t*>(weights(columns) + columns.weighted * size);
  }
  const float* sums(EdgeColumns columns) const {
    return reinterpret_cast<const float*>(rows(columns) + columns.featured * size);
  }
  const uint8_t* ids(EdgeColumns columns) const {
    return reinterpret_cast<const uint8_t*>(this) + ids_at(columns, size);
  }

  // For whoever makes the leaf.
  double* times() { return const_cast<double*>(static_cast<const Leaf*>(this)->times()); }
  float* weights(EdgeColumns c) { return const_cast<float*>(static_cast<const Leaf*>(this)->weights(c)); }
  uint32_t* rows(EdgeColumns c) { return const_cast<uint32_t*>(static_cast<const Leaf*>(this)->rows(c)); }
  float* sums(EdgeColumns c) { return const_cast<float*>(static_cast<const Leaf*>(this)->sums(c)); }
  uint8_t* ids(EdgeColumns c) { return const_cast<uint8_t*>(static_cast<const Leaf*>(this)->ids(c)); }

  uint32_t find(EdgeColumns columns, Id id) const { return IdCodec<Id>::find(format(), ids(columns), size, id); }
  Id id(EdgeColumns columns, uint32_t i) const { return IdCodec<Id>::get(format(), ids(columns), size, i); }
  void decode(EdgeColumns columns, Id* to) const { IdCodec<Id>::decode(format(), ids(columns), size, to); }
  EdgeValue value(EdgeColumns columns, uint32_t i) const {
    return {columns.weighted ? weights(columns)[i] : 1.0f, columns.timed ? times()[i] : 0.0,
            columns.featured ? rows(columns)[i] : kNoRow};
  }
  double weight_sum(EdgeColumns columns) const {
    return columns.weighted ? FSTable::total(weights(columns), size, sums(columns)) : size;
  }

 private:
  static size_t ids_at(EdgeColumns columns, uint32_t size) {
    return sizeof(Leaf) +
           size * (columns.timed * sizeof(double) + columns.weighted * sizeof(float) + columns.featured * sizeof(uint32_t)) +
           (columns.weighted ? FSTable::size(size) * sizeof(float) : 0);
  }
};

static_assert(sizeof(Leaf<uint32_t>) == 8 && sizeof(Leaf<uint64_t>) == 16);

}  // namespace livegnn
