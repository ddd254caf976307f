// Rotations, beside what a rotation keeps.
#include "inference/evaluation/rotation.h"

#include <cmath>
#include <numeric>
#include <vector>

#include "testing/testing.h"

namespace livegnn::rotation_test {

using namespace testing;

double product(const std::vector<float>& a, const std::vector<float>& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

TEST(rotations_keep_inner_products) {
  Random random;
  for (size_t width : {1u, 2u, 3u, 32u, 64u, 96u, 320u}) {
    const Rotation rotation(width);
    CHECK_EQ(rotation.width(), width);
    for (size_t i = 0; i < 20; ++i) {
      std::vector<float> a = random.floats(width), b = random.floats(width);
      const double before = product(a, b), size = std::sqrt(product(a, a) * product(b, b));
      rotation.apply(a.data());
      rotation.apply(b.data());
      CHECK(std::fabs(product(a, b) - before) <= 1e-5 * size);
    }
  }
}

// A vector of one channel is in all of them afterwards, none much larger than others.
TEST(rotations_spread_a_channel_over_all) {
  for (size_t width : {32u, 64u, 96u, 320u}) {
    const Rotation rotation(width), again(width);
    for (size_t channel = 0; channel < width; ++channel) {
      std::vector<float> a(width, 0.0f);
      a[channel] = 1;
      std::vector<float> b = a;
      rotation.apply(a.data());
      again.apply(b.data());
      CHECK(a == b);
      for (float value : a) CHECK(std::fabs(value) <= 6 / std::sqrt(static_cast<double>(width)));
    }
  }
}

}  // namespace livegnn::rotation_test
