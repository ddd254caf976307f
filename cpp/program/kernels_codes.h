// Scores of vectors in codes of four bits; part of kernels_impl.h, compiled for each instruction set.
#pragma once

#include "program/kernels_vector.h"

namespace livegnn::LIVEGNN_ISA {
namespace {

constexpr size_t kShorts = 2 * kLanes;  // in a register
constexpr size_t kCodeVectors = kCodeRows / kShorts;
typedef uint16_t Codes __attribute__((vector_size(kShorts * sizeof(uint16_t)), aligned(2), may_alias));
typedef int16_t Products __attribute__((vector_size(kShorts * sizeof(int16_t)), aligned(2), may_alias));
// As many as there are floats in a register.
typedef int16_t FewProducts __attribute__((vector_size(kLanes * sizeof(int16_t)), aligned(2), may_alias));
typedef uint16_t FewCodes __attribute__((vector_size(kLanes * sizeof(uint16_t)), aligned(2), may_alias));
typedef int32_t Totals __attribute__((vector_size(kLanes * sizeof(int32_t)), aligned(4), may_alias));
typedef uint32_t FloatBits __attribute__((vector_size(kLanes * sizeof(uint32_t)), aligned(4), may_alias));

inline Vector load_bfloats(const uint16_t* from) {
  const FloatBits bits = __builtin_convertvector(*reinterpret_cast<const FewCodes*>(from), FloatBits) << 16;
  return reinterpret_cast<Vector>(bits);
}

// The products of four channels of kShorts rows, together.
inline Products code_products(Codes code, const int8_t* weights) {
#if LIVEGNN_LANES > 4
  // The bytes of a number are the first and the third channel, and then the second and the fourth.
  const Codes odd = code & 0x0f0f, even = code >> 4 & 0x0f0f;
  const auto pair = [&](size_t at) {
    const auto low = static_cast<uint8_t>(weights[at]), high = static_cast<uint8_t>(weights[at + 2]);
    return static_cast<int16_t>(low | high << 8);
  };
#if LIVEGNN_LANES == 16
  const __m512i first = _mm512_maddubs_epi16(reinterpret_cast<__m512i>(odd), _mm512_set1_epi16(pair(0)));
  const __m512i second = _mm512_maddubs_epi16(reinterpret_cast<__m512i>(even), _mm512_set1_epi16(pair(1)));
#else
  const __m256i first = _mm256_maddubs_epi16(reinterpret_cast<__m256i>(odd), _mm256_set1_epi16(pair(0)));
  const __m256i second = _mm256_maddubs_epi16(reinterpret_cast<__m256i>(even), _mm256_set1_epi16(pair(1)));
#endif
  return reinterpret_cast<Products>(first) + reinterpret_cast<Products>(second);
#else
  const int16_t first = weights[0], second = weights[1], third = weights[2], fourth = weights[3];
  return reinterpret_cast<Products>(code & 15) * first + reinterpret_cast<Products>(code >> 4 & 15) * second +
         reinterpret_cast<Products>(code >> 8 & 15) * third + reinterpret_cast<Products>(code >> 12) * fourth;
#endif
}

// totals += weights · codes, of the rows of a block and at most kCodeProducts groups.
inline void add_code_products(size_t groups, const uint16_t* codes, const int8_t* weights, int32_t* totals) {
  Products sums[kCodeVectors] = {};
  for (size_t g = 0; g < groups; ++g) {
    for (size_t v = 0; v < kCodeVectors; ++v) {
      sums[v] += code_products(*reinterpret_cast<const Codes*>(codes + v * kShorts), weights);
    }
    codes += kCodeRows;
    weights += kCodeGroup;
  }
  const auto* all = reinterpret_cast<const int16_t*>(sums);
  for (size_t row = 0; row < kCodeRows; row += kLanes) {
    auto* total = reinterpret_cast<Totals*>(totals + row);
    *total += __builtin_convertvector(*reinterpret_cast<const FewProducts*>(all + row), Totals);
  }
}

void score_codes(size_t blocks, size_t groups, const uint16_t* codes, const CodeQuery& query, float* scores,
                 float* peaks) {
  for (size_t block = 0; block < blocks; ++block) {
    int32_t totals[kCodeRows] = {};
    for (size_t g = 0; g < groups; g += kCodeProducts) {
      const size_t count = groups - g < kCodeProducts ? groups - g : kCodeProducts;
      add_code_products(count, codes + g * kCodeRows, query.weights + g * kCodeGroup, totals);
    }
    const uint16_t* steps = codes + groups * kCodeRows;
    const uint16_t* lows = steps + kCodeRows;
    Vector peak = broadcast(-__builtin_inff());
    for (size_t row = 0; row < kCodeRows; row += kLanes) {
      const Vector total = __builtin_convertvector(*reinterpret_cast<const Totals*>(totals + row), Vector);
      const Vector score =
          load_bfloats(steps + row) * (total * broadcast(query.unit)) + load_bfloats(lows + row) * broadcast(query.sum);
      store(scores + row, score);
      peak = score > peak ? score : peak;  // not of a NaN
    }
    float largest = -__builtin_inff();
    for (size_t lane = 0; lane < kLanes; ++lane) largest = larger(largest, peak[lane]);
    peaks[block] = largest;
    scores += kCodeRows;
    codes += code_block_size(groups);
  }
}

}  // namespace
}  // namespace livegnn::LIVEGNN_ISA
