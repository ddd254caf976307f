// Products of rows and a packed matrix; part of kernels_impl.h, compiled for each instruction set.
#pragma once

#include "program/kernels_vector.h"

namespace livegnn::LIVEGNN_ISA {
namespace {

// Products with more terms than this would be rounded by hundreds of units if the terms are alike.
constexpr size_t kInnerBlock = 512;

// Adds the part of a tile's products between two positions of the inner dimension.
template <size_t R, size_t V>
inline void add_products(size_t begin, size_t end, size_t inner, const float* const* a, const float* packed,
                         Vector (&sum)[R][V]) {
  for (size_t k = begin; k < end; ++k) {
    Vector b[V];
    for (size_t v = 0; v < V; ++v) b[v] = load(packed + (v / kVectors * inner + k) * kPanel + v % kVectors * kLanes);
    for (size_t r = 0; r < R; ++r) {
      Vector left = broadcast(a[r][k]);
      for (size_t v = 0; v < V; ++v) sum[r][v] = fused(left, b[v], sum[r][v]);
    }
  }
}

// R rows by V vectors of columns, with all sums in registers. A panel is kVectors wide; more vectors are more panels. A
// long inner dimension is summed in blocks, whose sums are added up separately.
template <size_t R, size_t V>
void multiply_tile(size_t inner, size_t columns, const float* const* a, const float* packed, const float* bias,
                   float* c, size_t c_stride) {
  Vector sum[R][V] = {};
  add_products<R, V>(0, inner < kInnerBlock ? inner : kInnerBlock, inner, a, packed, sum);
  for (size_t k = kInnerBlock; k < inner; k += kInnerBlock) {
    Vector block[R][V] = {};
    add_products<R, V>(k, inner - k < kInnerBlock ? inner : k + kInnerBlock, inner, a, packed, block);
    for (size_t r = 0; r < R; ++r) {
      for (size_t v = 0; v < V; ++v) sum[r][v] += block[r][v];
    }
  }
  for (size_t r = 0; r < R; ++r) {
    float* out = c + r * c_stride;
    for (size_t v = 0; v < V; ++v) {
      size_t column = v * kLanes;
      if (column + kLanes <= columns) {
        store(out + column, bias == nullptr ? sum[r][v] : sum[r][v] + load(bias + column));
      } else {
        for (size_t i = 0; column + i < columns; ++i) {
          out[column + i] = bias == nullptr ? sum[r][v][i] : sum[r][v][i] + bias[column + i];
        }
      }
    }
  }
}

// Number of rows that fill the registers with one panel each.
#if LIVEGNN_LANES == 16
constexpr size_t kTileRows = 8;
constexpr size_t kWidePanels = 4;
#elif LIVEGNN_LANES == 8
constexpr size_t kTileRows = 3;
constexpr size_t kWidePanels = 2;
#else
constexpr size_t kTileRows = 1;
constexpr size_t kWidePanels = 1;
#endif

template <size_t R, size_t V>
void multiply_rest(size_t rows, size_t inner, size_t columns, const float* const* a, const float* packed,
                   const float* bias, float* c, size_t c_stride) {
  if constexpr (R > 0) {
    if (rows == R) {
      multiply_tile<R, V>(inner, columns, a, packed, bias, c, c_stride);
    } else {
      multiply_rest<R - 1, V>(rows, inner, columns, a, packed, bias, c, c_stride);
    }
  }
}

template <size_t V>
void multiply_panel(size_t rows, size_t inner, size_t columns, const float* const* a, const float* panel,
                    const float* bias, float* c, size_t c_stride) {
  size_t r = 0;
  for (; r + kTileRows <= rows; r += kTileRows) {
    multiply_tile<kTileRows, V>(inner, columns, a + r, panel, bias, c + r * c_stride, c_stride);
  }
  multiply_rest<kTileRows - 1, V>(rows - r, inner, columns, a + r, panel, bias, c + r * c_stride, c_stride);
}

void multiply(size_t rows, size_t inner, size_t outputs, const float* const* a, const float* packed, const float* bias,
              float* c, size_t c_stride) {
  size_t column = 0;
  if (rows == 1) {
    // One row has too few sums to hide the latency of each: process several panels at once.
    for (; column + kWidePanels * kPanel <= outputs; column += kWidePanels * kPanel) {
      multiply_tile<1, kWidePanels * kVectors>(inner, kWidePanels * kPanel, a, packed + column * inner,
                                               bias == nullptr ? nullptr : bias + column, c + column, c_stride);
    }
  }
  for (; column < outputs; column += kPanel) {
    const float* shift = bias == nullptr ? nullptr : bias + column;
    const size_t columns = outputs - column < kPanel ? outputs - column : kPanel;
    if (2 * columns > kPanel) {
      multiply_panel<kVectors>(rows, inner, columns, a, packed + column * inner, shift, c + column, c_stride);
    } else {
      multiply_panel<kVectors / 2>(rows, inner, columns, a, packed + column * inner, shift, c + column, c_stride);
    }
  }
}

}  // namespace
}  // namespace livegnn::LIVEGNN_ISA
