// A leaf of a samtree: up to a few hundred neighbours, unordered, in one block.
//
//   | room | 0 | bits | base | times | weights | rows | FSTable of the weights | ids |     absent columns take no space
//
// Each column has room for `room` entries, which is close to the number of entries, because a block grows by a
// sixteenth. The number of entries is not stored in the leaf but above it, in the root or the inner node. So an
// appended entry is invisible until there is a new root; all other changes make a new leaf. Readers need no latch. The
// last entry replaces a deleted one.
//
// Invariants: as in fs_table.h and id_codec.h; ids are distinct.
// Thread safety: any number of readers, and one writer that appends after the entries that they know of.
#pragma once

#include <cstddef>
#include <cstdint>

#include "store/samtree/fs_table.h"
#include "store/samtree/id_codec.h"

namespace livegnn {

inline constexpr uint32_t kNoRow = UINT32_MAX;

// Bound on the magnitude of a weight: with it, the sum of a whole list fits into a float.
inline constexpr float kMaxWeight = 0x1p96f;

// The columns of an edge besides the id. `featured`: the row of its features.
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

// The common beginning of leaves and inner nodes.
struct SamtreeNode {
  uint16_t size;   // room for entries, or number of children
  uint8_t height;  // 0: a leaf
};

template <class Id>
struct Leaf {
  uint16_t room;
  uint8_t height;
  uint8_t bits;
  Id base;

  IdFormat<Id> format() const { return {base, bits}; }

  static size_t bytes(EdgeColumns columns, uint32_t room, uint32_t bits) {
    return ids_at(columns, room) + IdCodec<Id>::bytes(bits, room);
  }

  const double* times() const { return reinterpret_cast<const double*>(this + 1); }
  const float* weights(EdgeColumns columns) const {
    return reinterpret_cast<const float*>(times() + columns.timed * room);
  }
  const uint32_t* rows(EdgeColumns columns) const {
    return reinterpret_cast<const uint32_t*>(weights(columns) + columns.weighted * room);
  }
  const float* sums(EdgeColumns columns) const {
    return reinterpret_cast<const float*>(rows(columns) + columns.featured * room);
  }
  const uint8_t* ids(EdgeColumns columns) const {
    return reinterpret_cast<const uint8_t*>(this) + ids_at(columns, room);
  }

  // For the code that makes the leaf.
  double* times() { return const_cast<double*>(static_cast<const Leaf*>(this)->times()); }
  float* weights(EdgeColumns c) { return const_cast<float*>(static_cast<const Leaf*>(this)->weights(c)); }
  uint32_t* rows(EdgeColumns c) { return const_cast<uint32_t*>(static_cast<const Leaf*>(this)->rows(c)); }
  float* sums(EdgeColumns c) { return const_cast<float*>(static_cast<const Leaf*>(this)->sums(c)); }
  uint8_t* ids(EdgeColumns c) { return const_cast<uint8_t*>(static_cast<const Leaf*>(this)->ids(c)); }

  // `size` is the number of entries that the caller knows of.
  uint32_t find(EdgeColumns columns, uint32_t size, Id id) const {
    return IdCodec<Id>::find(format(), ids(columns), room, size, id);
  }
  Id id(EdgeColumns columns, uint32_t i) const { return IdCodec<Id>::get(format(), ids(columns), room, i); }
  void decode(EdgeColumns columns, uint32_t size, Id* to) const {
    IdCodec<Id>::decode(format(), ids(columns), room, size, to);
  }
  EdgeValue value(EdgeColumns columns, uint32_t i) const {
    return {columns.weighted ? weights(columns)[i] : 1.0f, columns.timed ? times()[i] : 0.0,
            columns.featured ? rows(columns)[i] : kNoRow};
  }
  double weight_sum(EdgeColumns columns, uint32_t size) const {
    return columns.weighted ? FSTable::total(weights(columns), size, sums(columns)) : size;
  }

 private:
  static size_t ids_at(EdgeColumns columns, uint32_t room) {
    return sizeof(Leaf) +
           room * (columns.timed * sizeof(double) + columns.weighted * sizeof(float) +
                   columns.featured * sizeof(uint32_t)) +
           (columns.weighted ? FSTable::size(room) * sizeof(float) : 0);
  }
};

// A leaf, and the number of entries that a reader may read.
template <class Id>
struct LeafView {
  const Leaf<Id>* leaf = nullptr;
  uint32_t size = 0;

  Id id(EdgeColumns columns, uint32_t i) const { return leaf->id(columns, i); }
  EdgeValue value(EdgeColumns columns, uint32_t i) const { return leaf->value(columns, i); }
  // The entry at which the running sum of weights first exceeds `at`; `size` if no weight is positive.
  uint32_t at_weight(EdgeColumns columns, double at) const {
    return FSTable::find(leaf->weights(columns), size, leaf->sums(columns), at);
  }
};

static_assert(sizeof(Leaf<uint32_t>) == 8 && sizeof(Leaf<uint64_t>) == 16);

}  // namespace livegnn
