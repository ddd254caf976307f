// Random numbers that depend only on the place where they are used.
//
// A stream belongs to a place, for example the third node of a hop, and is a function of (seed, purpose, place) alone;
// its i-th number is a hash of the i-th number after the stream's start. So it does not matter which thread draws for
// which place, or when: results are the same for any number of threads.
// The hash is the finaliser of SplitMix64 (mix_hash.h), which passes the usual test batteries as a generator.
//
// Thread safety: a stream belongs to one thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "hashing/mix_hash.h"

namespace livegnn {

class RandomStream {
 public:
  RandomStream() = default;
  RandomStream(uint64_t seed, uint64_t purpose, uint64_t place)
      : state_(mix(mix(mix(seed + kStep) + purpose) + place)) {}

  uint64_t bits() {
    state_ += kStep;
    return mix(state_);
  }

  // In [0, 1), in steps of 2^-53. The product with a double is less than that double.
  double uniform() { return static_cast<double>(bits() >> 11) * 0x1p-53; }

  // In (0, 1], so that its logarithm is finite.
  double positive() { return static_cast<double>((bits() >> 11) + 1) * 0x1p-53; }

  // In [0, n), for n up to 2^53. Probabilities of two numbers differ by at most a factor of 1 + n * 2^-53.
  uint64_t below(uint64_t n) { return static_cast<uint64_t>(uniform() * static_cast<double>(n)); }

 private:
  static constexpr uint64_t kStep = 0x9e3779b97f4a7c15ULL;  // 2^64 over the golden ratio, made odd

  static uint64_t mix(uint64_t key) { return MixHash{}(key); }

  uint64_t state_ = 0;
};

}  // namespace livegnn
