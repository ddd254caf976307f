// Scores of vectors in codes; part of kernels_impl.h, compiled for each instruction set.
#pragma once

#include "program/kernels_vector.h"

namespace livegnn::LIVEGNN_ISA {
namespace {

// As many as there are floats in a register.
typedef uint16_t FewShorts __attribute__((vector_size(kLanes * sizeof(uint16_t)), aligned(2), may_alias));
typedef int32_t Totals __attribute__((vector_size(kLanes * sizeof(int32_t)), aligned(4), may_alias));
typedef uint32_t FloatBits __attribute__((vector_size(kLanes * sizeof(uint32_t)), aligned(4), may_alias));

// Groups whose sums fit into 16 bits together.
constexpr size_t kSummedGroups = 0xffff / (2 * kMostSignSum);

inline Vector load_bfloats(const uint16_t* from) {
  const FloatBits bits = __builtin_convertvector(*reinterpret_cast<const FewShorts*>(from), FloatBits) << 16;
  return reinterpret_cast<Vector>(bits);
}

#if LIVEGNN_LANES > 4
constexpr size_t kBytes = 4 * kLanes;  // in a register
typedef uint8_t Bytes __attribute__((vector_size(kBytes), aligned(1), may_alias));
typedef uint16_t Shorts __attribute__((vector_size(kBytes), aligned(1), may_alias));

// table[i % 16] of each byte i.
inline Shorts look_up(const uint8_t* table, Shorts at) {
  const __m128i one = _mm_loadu_si128(reinterpret_cast<const __m128i*>(table));
#if LIVEGNN_LANES == 16
  return reinterpret_cast<Shorts>(_mm512_shuffle_epi8(_mm512_broadcast_i32x4(one), reinterpret_cast<__m512i>(at)));
#else
  return reinterpret_cast<Shorts>(_mm256_shuffle_epi8(_mm256_broadcastsi128_si256(one), reinterpret_cast<__m256i>(at)));
#endif
}

// totals = the sums of the rows of a block, of at most kSummedGroups groups.
inline void sum_signs(size_t groups, const uint8_t* signs, const uint8_t* sums, uint16_t* totals) {
  constexpr size_t kParts = kSignRows / kBytes;
  Shorts even[kParts] = {}, odd[kParts] = {};
  for (size_t g = 0; g < groups; ++g) {
    for (size_t part = 0; part < kParts; ++part) {
      const Shorts bits = *reinterpret_cast<const Shorts*>(signs + part * kBytes);
      const Shorts found = reinterpret_cast<Shorts>(reinterpret_cast<Bytes>(look_up(sums, bits & 0x0f0f)) +
                                                    reinterpret_cast<Bytes>(look_up(sums + 16, bits >> 4 & 0x0f0f)));
      even[part] += found & 0x00ff;
      odd[part] += found >> 8;
    }
    signs += kSignRows;
    sums += kSignSums;
  }
  for (size_t part = 0; part < kParts; ++part) {
    *reinterpret_cast<Shorts*>(totals + part * kBytes / 2) = even[part];
    *reinterpret_cast<Shorts*>(totals + (kSignRows + part * kBytes) / 2) = odd[part];
  }
}

inline int32_t multiply_code_row(size_t pieces, const uint8_t* codes, const int8_t* weights) {
  const __m128i four_bits = _mm_set1_epi8(15), ones = _mm_set1_epi16(1);
  __m128i sum = _mm_setzero_si128();
  for (size_t piece = 0; piece < pieces; ++piece) {
    const __m128i code = _mm_loadu_si128(reinterpret_cast<const __m128i*>(codes + piece * kPieceSize));
    const auto* by = reinterpret_cast<const __m128i*>(weights + piece * kCodePiece);
    const __m128i low = _mm_maddubs_epi16(_mm_and_si128(code, four_bits), _mm_loadu_si128(by));
    const __m128i high = _mm_maddubs_epi16(_mm_and_si128(_mm_srli_epi16(code, 4), four_bits), _mm_loadu_si128(by + 1));
    sum = _mm_add_epi32(sum, _mm_madd_epi16(_mm_add_epi16(low, high), ones));
  }
  sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0x4e));
  return _mm_cvtsi128_si32(_mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0xb1)));
}
#else
inline void sum_signs(size_t groups, const uint8_t* signs, const uint8_t* sums, uint16_t* totals) {
  for (size_t row = 0; row < kSignRows; ++row) {
    uint16_t total = 0;
    for (size_t g = 0; g < groups; ++g) {
      const uint8_t bits = signs[g * kSignRows + place_of_row(row)];
      total = static_cast<uint16_t>(total + sums[g * kSignSums + (bits & 15)] + sums[g * kSignSums + 16 + (bits >> 4)]);
    }
    totals[row] = total;
  }
}

inline int32_t multiply_code_row(size_t pieces, const uint8_t* codes, const int8_t* weights) {
  int32_t sum = 0;
  for (size_t piece = 0; piece < pieces; ++piece) {
    for (size_t i = 0; i < kPieceSize; ++i) {
      sum += (codes[i] & 15) * weights[i] + (codes[i] >> 4) * weights[kPieceSize + i];
    }
    codes += kPieceSize;
    weights += kCodePiece;
  }
  return sum;
}
#endif

void score_signs(size_t blocks, size_t groups, const uint8_t* signs, const SignQuery& query, float* scores,
                 float* peaks) {
  for (size_t block = 0; block < blocks; ++block) {
    int32_t totals[kSignRows] = {};
    for (size_t first = 0; first < groups; first += kSummedGroups) {
      const size_t count = groups - first < kSummedGroups ? groups - first : kSummedGroups;
      uint16_t sums[kSignRows];
      sum_signs(count, signs + first * kSignRows, query.sums + first * kSignSums, sums);
      for (size_t row = 0; row < kSignRows; row += kLanes) {
        *reinterpret_cast<Totals*>(totals + row) +=
            __builtin_convertvector(*reinterpret_cast<const FewShorts*>(sums + row), Totals);
      }
    }
    const auto* scales = reinterpret_cast<const uint16_t*>(signs + groups * kSignRows);
    Vector peak = broadcast(-__builtin_inff());
    for (size_t row = 0; row < kSignRows; row += kLanes) {
      const Vector total = __builtin_convertvector(*reinterpret_cast<const Totals*>(totals + row), Vector);
      const Vector score = load_bfloats(scales + row) * (total * broadcast(query.unit) - broadcast(query.sum));
      store(scores + row, score);
      peak = score > peak ? score : peak;  // not of a NaN
    }
    float largest = -__builtin_inff();
    for (size_t lane = 0; lane < kLanes; ++lane) largest = larger(largest, peak[lane]);
    peaks[block] = largest;
    scores += kSignRows;
    signs += sign_block_size(groups);
  }
}

void multiply_codes(size_t count, size_t pieces, const uint8_t* const* rows, const int8_t* weights, int32_t* totals) {
  for (size_t i = 0; i < count; ++i) totals[i] = multiply_code_row(pieces, rows[i], weights);
}

}  // namespace
}  // namespace livegnn::LIVEGNN_ISA
