// Scores of vectors in codes, beside the same sums one number at a time.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "program/kernels.h"
#include "program/kernels_model.h"
#include "testing/testing.h"

namespace livegnn::kernels_codes_test {

using namespace testing;

float float_of_bfloat(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

uint16_t bfloat_of(float value) { return static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16); }

// Weights of the largest magnitudes that together are no more than the most.
std::vector<int8_t> draw_weights(size_t channels, Random* random) {
  std::vector<int8_t> weights(channels);
  constexpr size_t kTogether = kCodeProducts * kCodeGroup;
  for (size_t first = 0; first < channels; first += kTogether) {
    const size_t end = std::min(channels, first + kTogether);
    const int most = std::min(kMostCodeWeight, kMostCodeWeights / static_cast<int>(end - first));
    const bool all = random->chance(0.3);
    for (size_t c = first; c < end; ++c) weights[c] = static_cast<int8_t>(all || random->chance(0.5) ? -most : most);
  }
  return weights;
}

TEST(kernels_score_codes) {
  Random random;
  for (size_t groups : {1u, 2u, 16u, 63u, 64u, 65u, 150u}) {
    for (size_t blocks : {1u, 3u}) {
      std::vector<uint16_t> codes(blocks * code_block_size(groups));
      for (uint16_t& code : codes) code = random.chance(0.2) ? 0xffff : static_cast<uint16_t>(random.below(1 << 16));
      for (size_t b = 0; b < blocks; ++b) {
        uint16_t* steps = codes.data() + b * code_block_size(groups) + groups * kCodeRows;
        for (size_t row = 0; row < kCodeRows; ++row) {
          steps[row] = random.chance(0.2) || b == 2 ? 0x7fc0 : bfloat_of(random.between(0, 2));
          steps[kCodeRows + row] = bfloat_of(random.between(-3, 1));
        }
      }
      const std::vector<int8_t> weights = draw_weights(groups * kCodeGroup, &random);
      const CodeQuery query{weights.data(), random.between(0, 1), random.between(-5, 5)};
      Floats expected(blocks * kCodeRows);
      for (size_t i = 0; i < expected.size(); ++i) {
        const uint16_t* block = codes.data() + i / kCodeRows * code_block_size(groups);
        const size_t row = i % kCodeRows;
        int total = 0;
        for (size_t c = 0; c < groups * kCodeGroup; ++c) {
          total += weights[c] * (block[c / kCodeGroup * kCodeRows + row] >> 4 * (c % kCodeGroup) & 15);
        }
        const float scaled = static_cast<float>(total) * query.unit;
        const float product = float_of_bfloat(block[groups * kCodeRows + row]) * scaled;
        const float offset = float_of_bfloat(block[(groups + 1) * kCodeRows + row]) * query.sum;
        expected[i] = product + offset;
      }
      for (const Kernels* k : all_kernels()) {
        Floats scores(expected.size()), peaks(blocks);
        k->score_codes(blocks, groups, codes.data(), query, scores.data(), peaks.data());
        for (size_t b = 0; b < blocks; ++b) {
          float peak = -std::numeric_limits<float>::infinity();
          for (size_t i = b * kCodeRows; i < (b + 1) * kCodeRows; ++i) {
            CHECK_EQ(std::isnan(scores[i]), std::isnan(expected[i]));
            if (std::isnan(scores[i])) continue;
            CHECK_EQ(scores[i], expected[i]);
            peak = std::max(peak, scores[i]);
          }
          CHECK_EQ(peaks[b], peak);
        }
      }
    }
  }
}

}  // namespace livegnn::kernels_codes_test
