#include "inference/evaluation/rotation.h"

#include <bit>
#include <cmath>
#include <cstdint>

namespace livegnn {
namespace {

constexpr size_t kPasses = 4;

// The output function of SplitMix64.
uint64_t mix(uint64_t value) {
  value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9u;
  value = (value ^ value >> 27) * 0x94d049bb133111ebu;
  return value ^ value >> 31;
}

void transform(float* row, size_t size) {
  for (size_t half = 1; half < size; half *= 2) {
    for (size_t first = 0; first < size; first += 2 * half) {
      for (size_t i = first; i < first + half; ++i) {
        const float a = row[i], b = row[i + half];
        row[i] = a + b;
        row[i + half] = a - b;
      }
    }
  }
}

}  // namespace

Rotation::Rotation(size_t width) : width_(width), mixed_(std::bit_floor(width)), factors_(kPasses * width, 1.0f) {
  const float length = 1 / std::sqrt(static_cast<float>(mixed_));
  for (size_t pass = 0; pass < kPasses; ++pass) {
    const size_t first = pass % 2 == 0 ? 0 : width - mixed_;
    for (size_t c = first; c < first + mixed_; ++c) {
      const size_t at = pass * width + c;
      factors_[at] = mix(at * 0x9e3779b97f4a7c15u) >> 63 != 0 ? -length : length;
    }
  }
}

void Rotation::apply(float* row) const {
  for (size_t pass = 0; pass < kPasses; ++pass) {
    const float* factors = factors_.data() + pass * width_;
    for (size_t c = 0; c < width_; ++c) row[c] *= factors[c];
    transform(row + (pass % 2 == 0 ? 0 : width_ - mixed_), mixed_);
  }
}

}  // namespace livegnn
