// A hash for integer keys. The standard library's hash is the identity, but the keys here (pairs of indices, the users'
// ids) differ more in their high bits than in the low bits that choose a bucket.
// Source: the finaliser of SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014).
#pragma once

#include <cstddef>
#include <cstdint>

namespace livegnn {

struct MixHash {
  size_t operator()(uint64_t key) const {
    key = (key ^ (key >> 30)) * 0xbf58476d1ce4e5b9ULL;
    key = (key ^ (key >> 27)) * 0x94d049bb133111ebULL;
    return key ^ (key >> 31);
  }
};

}  // namespace livegnn
