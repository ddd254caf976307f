// The operators on rows: what a model's steps may name, what they take, and what they compute.
//
// This is the one table of them. Python reads names, numbers of inputs, settings and roles of tensors from it
// (`_core.row_operators`), and a program names an operator by its place here. A formula stands here once, for float32
// and for float64 (wide_rows.h); operators whose kernels are tuned (kernels.h) have a kind of their own in program.h,
// and here what they are in float64, and what they are where an input is one channel wide.
//
// Invariant: a row of the result is a function of the same row of the inputs, bit by bit, whatever rows stand beside it
// in the block.
// Thread safety: the table is made once and never changes; all functions are pure.
#pragma once

#include <cstddef>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "program/program.h"

namespace livegnn {

inline constexpr size_t kMaxRowInputs = 4, kMaxRowSettings = 4;

// Rows that an operator reads, and where its results go; they do not overlap.
template <class Real>
struct RowBlock {
  size_t rows;    // at most kBlockRows
  size_t width;   // of the result
  size_t stride;  // between rows of the result
  Real* out;
  const Real* const* inputs[kMaxRowInputs];  // by input: where each row is
  size_t widths[kMaxRowInputs];              // of the inputs
  const double* settings;                    // kMaxRowSettings of them, in the order of the operator's
  const float *first, *second;               // tensors, or null
};

// What the results' widths follow from.
enum class RowGroup : uint8_t {
  kElementwise,  // inputs of one width, or of width 1, which then counts for every channel
  kByHead,       // as wide as the input; the channels of a head go together
  kReduction,
  kMove,  // copies
  kProduct,
  kEngine,  // made by the planner, not named by models
};

struct RowSetting {
  enum Kind : uint8_t {
    kNumber,
    kPositive,  // a number above 0
    kCount,     // a whole number above 0
    kIndex,     // a whole number from 0 on
    kBound,     // a number or nothing, which is the fallback
    kChoice,    // one of `choices`; the engine knows its place among them
  } kind;
  std::string name;
  std::vector<std::string> choices = {};
  bool optional = false;
  double fallback = 0;  // what an optional one is where it is left out
};

struct RowTensor {
  std::string role;
  bool optional;
};

struct RowOperator {
  std::string name;
  RowGroup group;
  OpKind kind;
  int least, most;  // inputs; `most` is -1 where there may be any number
  std::vector<RowSetting> settings;
  std::vector<RowTensor> tensors;
  std::string summary;
  // Null where the kind says what is done.
  void (*in_float)(const RowBlock<float>&) = nullptr;
  void (*in_double)(const RowBlock<double>&) = nullptr;
};

const std::vector<RowOperator>& row_operators();

// The place of a name; throws `std::out_of_range` if there is no such operator.
uint32_t find_row_operator(std::string_view name);

// The operator that an operation is one of.
const RowOperator& row_operator_of(const Op& op);

// How many numbers an operation multiplies for one row, if it is a product: what a row costs.
double multiplications(const RowsStep& step, const Op& op);

}  // namespace livegnn
