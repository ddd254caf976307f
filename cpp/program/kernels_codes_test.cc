// Scores of vectors in codes, beside the same sums one number at a time.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "program/kernels.h"
#include "program/kernels_model.h"
#include "testing/testing.h"

namespace livegnn::kernels_codes_test {

using namespace testing;

float float_of_bfloat(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

uint16_t bfloat_of(float value) { return static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16); }

// Blocks of signs with their scales, every second of a row that does not exist in the third block.
std::vector<uint8_t> draw_blocks(size_t blocks, size_t groups, Random* random) {
  std::vector<uint8_t> all(blocks * sign_block_size(groups));
  for (uint8_t& byte : all) byte = random->chance(0.2) ? 0xff : static_cast<uint8_t>(random->below(256));
  for (size_t b = 0; b < blocks; ++b) {
    auto* scales = reinterpret_cast<uint16_t*>(all.data() + b * sign_block_size(groups) + groups * kSignRows);
    for (size_t row = 0; row < kSignRows; ++row) {
      scales[row] = random->chance(0.2) || b == 2 ? 0x7fc0 : bfloat_of(random->between(0, 2));
    }
  }
  return all;
}

float score_one_by_one(const uint8_t* block, size_t groups, size_t row, const SignQuery& query) {
  int total = 0;
  for (size_t g = 0; g < groups; ++g) {
    const uint8_t bits = block[g * kSignRows + place_of_row(row)];
    total += query.sums[g * kSignSums + bits % 16] + query.sums[g * kSignSums + 16 + bits / 16];
  }
  const float scaled = static_cast<float>(total) * query.unit - query.sum;
  return float_of_bfloat(reinterpret_cast<const uint16_t*>(block + groups * kSignRows)[row]) * scaled;
}

TEST(kernels_score_signs) {
  Random random;
  for (size_t groups : {1u, 4u, 8u, 257u, 258u, 259u, 600u}) {
    for (size_t blocks : {1u, 3u}) {
      const std::vector<uint8_t> signs = draw_blocks(blocks, groups, &random);
      std::vector<uint8_t> sums(groups * kSignSums, kMostSignSum);
      if (random.chance(0.5)) {
        for (uint8_t& sum : sums) sum = static_cast<uint8_t>(random.below(kMostSignSum + 1));
      }
      const SignQuery query{sums.data(), random.between(0, 1), random.between(-5, 5)};
      for (const Kernels* k : all_kernels()) {
        Floats scores(blocks * kSignRows), peaks(blocks);
        k->score_signs(blocks, groups, signs.data(), query, scores.data(), peaks.data());
        for (size_t b = 0; b < blocks; ++b) {
          float peak = -std::numeric_limits<float>::infinity();
          for (size_t row = 0; row < kSignRows; ++row) {
            const float found = scores[b * kSignRows + row];
            const float expected = score_one_by_one(signs.data() + b * sign_block_size(groups), groups, row, query);
            CHECK_EQ(std::isnan(found), std::isnan(expected));
            if (std::isnan(found)) continue;
            CHECK_EQ(found, expected);
            peak = std::max(peak, found);
          }
          CHECK_EQ(peaks[b], peak);
        }
      }
    }
  }
}

TEST(kernels_multiply_codes) {
  Random random;
  for (size_t pieces : {1u, 2u, 3u, 10u, 200u}) {
    std::vector<uint8_t> codes(5 * pieces * kPieceSize);
    const bool all = random.chance(0.5);
    for (uint8_t& two : codes) two = all ? 0xff : static_cast<uint8_t>(random.below(256));
    std::vector<int8_t> weights(pieces * kCodePiece, 127);
    if (!all) {
      for (int8_t& weight : weights) weight = static_cast<int8_t>(static_cast<int>(random.below(255)) - 127);
    }
    std::vector<const uint8_t*> rows;
    std::vector<int32_t> expected;
    for (size_t i = 0; i < 5; ++i) {
      rows.push_back(codes.data() + (i * 3 % 5) * pieces * kPieceSize);
      int32_t total = 0;
      for (size_t c = 0; c < weights.size(); ++c) {
        const uint8_t two = rows.back()[c / kCodePiece * kPieceSize + c % kPieceSize];
        total += weights[c] * (c % kCodePiece < kPieceSize ? two & 15 : two >> 4);
      }
      expected.push_back(total);
    }
    for (const Kernels* k : all_kernels()) {
      std::vector<int32_t> totals(5);
      k->multiply_codes(5, pieces, rows.data(), weights.data(), totals.data());
      CHECK(totals == expected);
      k->multiply_codes(0, pieces, rows.data(), weights.data(), totals.data());
    }
  }
}

}  // namespace livegnn::kernels_codes_test
