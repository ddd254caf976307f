// The arithmetic on rows, compiled once per instruction set; `kernels()` returns the best set that this processor has.
//
// Every result is a function of its own row alone. A product adds over the inner dimension in ascending order, in
// blocks of 512 into one accumulator per element, whatever the number of rows in the call; sums across a row always use
// sixteen lanes. So a row has the same bits in a batch of one and in a batch of a million, on one thread or on many.
//
// Thread safety: all functions are pure; outputs must not overlap inputs unless a comment says so.
#pragma once

#include <cstddef>
#include <cstdint>

namespace livegnn {

// Width of a panel; the columns of a packed matrix are stored in panels.
inline constexpr size_t kPanel = 32;

// Vectors in four bits a channel, codes, and in one, signs.
//
// Signs: a block has a byte for each row and group of eight channels, the first channel in the lowest bit, the rows of
// a group side by side; then the scale of each row, a bfloat16. Rows are in an order in which the even bytes are those
// of the first half.
inline constexpr size_t kSignRows = 64;
inline constexpr size_t kSignGroup = 8;                                            // channels
inline size_t sign_block_size(size_t groups) { return (groups + 2) * kSignRows; }  // in bytes
inline size_t place_of_row(size_t row) { return 2 * (row % (kSignRows / 2)) + row / (kSignRows / 2); }
// Codes: a piece has two channels in each byte; the first half of its channels are in the lower bits.
inline constexpr size_t kCodePiece = 32;  // channels
inline constexpr size_t kPieceSize = kCodePiece / 2;

// The score of a row is its scale * (unit * its total - sum).
struct SignQuery {
  // Of each group: the sums of the first four channels, and of the last four, by their bits. At most kMostSignSum.
  const uint8_t* sums;
  float unit, sum;
};
inline constexpr size_t kSignSums = 32;  // of a group
inline constexpr uint8_t kMostSignSum = 127;

inline size_t packed_size(size_t inner, size_t outputs) { return (outputs + kPanel - 1) / kPanel * kPanel * inner; }

struct Kernels {
  const char* name;

  // c[i, 0:outputs] = a[i][0:inner] · b (+ bias), b packed by `pack`. `bias` may be null.
  void (*multiply)(size_t rows, size_t inner, size_t outputs, const float* const* a, const float* packed,
                   const float* bias, float* c, size_t c_stride);

  // sum += coefficients[i] * rows[indices[i]], i ascending. Rows may be read up to their padding.
  void (*add_rows)(size_t width, size_t count, const float* const* rows, const uint32_t* indices,
                   const float* coefficients, float* sum);
  // sum += coefficients[i] * table[ids[i]]; null coefficients are ones.
  void (*gather_rows)(size_t width, size_t count, const float* table, size_t stride, const uint32_t* ids,
                      const float* coefficients, float* sum);
  // out = a - b
  void (*subtract)(size_t width, const float* a, const float* b, float* out);
  // out = old + delta; returns whether any element differs from old. `peak` receives the largest |inverse * out|, which
  // is not finite if any of them is not.
  bool (*apply_delta)(size_t width, const float* old, const float* delta, const float* inverse, float* out,
                      float* peak);
  // out = max(out, coefficients[i] * rows[indices[i]]). `ties` counts the products that equal it; if the maximum is
  // still the previous value of `out`, they are added to the previous `ties`.
  void (*max_rows)(size_t width, size_t count, const float* const* rows, const uint32_t* indices,
                   const float* coefficients, float* out, uint32_t* ties);
  // ties += coefficient * row == out, element by element
  void (*count_equal)(size_t width, const float* row, float coefficient, const float* out, uint32_t* ties);
  bool (*differs)(size_t width, const float* a, const float* b);  // bitwise
  float (*peak)(size_t width, const float* row);                  // the largest magnitude
  // The largest |inverse * row|; not finite if any of them is not.
  float (*scaled_peak)(size_t width, const float* row, const float* inverse);
  bool (*finite)(size_t width, const float* row);  // whether every element is finite

  // Element by element on `rows` rows of `width`: inputs may be anywhere, the output is a block. The frequent ones
  // process a block per call, because a call costs as much as a narrow row.
  void (*add)(size_t rows, size_t width, const float* const* a, const float* const* b, float* out, size_t stride);
  void (*multiply_elements)(size_t rows, size_t width, const float* const* a, const float* const* b, float* out,
                            size_t stride);
  void (*maximum)(size_t rows, size_t width, const float* const* a, const float* const* b, float* out, size_t stride);
  void (*add_scaled)(size_t rows, size_t width, const float* const* a, const float* const* b, const float* factors,
                     float* out, size_t stride);  // a + factors[row] * b
  void (*scale)(size_t rows, size_t width, const float* const* a, const float* factors, float* out, size_t stride);
  void (*scale_shift)(size_t rows, size_t width, const float* const* a, const float* scale, const float* shift,
                      float* out, size_t stride);  // a null scale is one, a null shift zero
  void (*relu)(size_t rows, size_t width, const float* const* a, float* out, size_t stride);
  void (*leaky_relu)(size_t rows, size_t width, const float* const* a, float slope, float* out, size_t stride);
  void (*exponential)(size_t rows, size_t width, const float* const* a, float* out, size_t stride);
  void (*sigmoid)(size_t rows, size_t width, const float* const* a, float* out, size_t stride);
  // By heads: `channels` floats each, stored one after the other.
  void (*sum_channels)(size_t rows, size_t heads, size_t channels, const float* const* a, float* out, size_t stride);
  void (*scale_heads)(size_t rows, size_t heads, size_t channels, const float* const* a, const float* const* factors,
                      float* out, size_t stride);
  // sum += weights[head] * row; reach[head] += |weights[head]| * the largest |inverse * row| of the head's channels.
  void (*add_heads)(size_t heads, size_t channels, const float* row, const float* weights, const float* inverse,
                    float* sum, float* reach);
  // The scores of the rows of blocks of signs, and the largest of each block that is a number, at least -inf. They have
  // the same bits on every instruction set.
  void (*score_signs)(size_t blocks, size_t groups, const uint8_t* signs, const SignQuery& query, float* scores,
                      float* peaks);
  // totals[i] = weights · the codes of rows[i], of so many pieces.
  void (*multiply_codes)(size_t count, size_t pieces, const uint8_t* const* rows, const int8_t* weights,
                         int32_t* totals);
  // On one row.
  void (*normalize_layer)(size_t n, const float* a, const float* scale, const float* shift, float epsilon, float* out);
  void (*normalize_l2)(size_t n, const float* a, float epsilon, float* out);
};

// weight is [outputs, inner] as in torch; columns past the last are zero.
void pack(size_t inner, size_t outputs, const float* weight, float* packed);

const Kernels& kernels();

}  // namespace livegnn
