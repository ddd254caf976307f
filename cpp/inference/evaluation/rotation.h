// A rotation that spreads a vector over all of its channels, so that a few bits a channel say about the same of each.
//
// Signs of channels are changed at random, and then a Walsh-Hadamard transform mixes the first channels, as many as are
// a power of two; next, the last ones in the same way. It is one and the same rotation in every process, and has the
// same bits on every instruction set.
// Thread safety: it is constant.
#pragma once

#include <cstddef>
#include <vector>

namespace livegnn {

class Rotation {
 public:
  explicit Rotation(size_t width);

  size_t width() const { return width_; }
  void apply(float* row) const;

 private:
  size_t width_, mixed_;
  std::vector<float> factors_;  // of each pass, all channels
};

}  // namespace livegnn
