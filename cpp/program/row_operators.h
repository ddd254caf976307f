// The operators on rows: their names, their inputs and settings, and what they compute.
//
// This is their only table. Python reads names, numbers of inputs, settings and roles of tensors from it
// (`_core.row_operators`), and a program refers to an operator by its position in it. A formula is written once, for
// float32 and for float64 (float64_retry.h). Operators with tuned kernels (kernels.h) have a kind of their own in
// program.h; this table holds their float64 version, and the one for an input that is one channel wide.
//
// Invariant: a row of the result is a function of the same row of the inputs, bitwise, whatever other rows are in the
// block.
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

// The rows that an operator reads, and the place of its results; they do not overlap.
template <class Real>
struct RowBlock {
  size_t rows;    // at most kBlockRows
  size_t width;   // of the result
  size_t stride;  // between rows of the result
  Real* out;
  const Real* const* inputs[kMaxRowInputs];  // by input: address of each row
  size_t widths[kMaxRowInputs];              // of the inputs
  const double* settings;                    // kMaxRowSettings of them, in the operator's order
  const float *first, *second;               // tensors, or null
};

// What determines the width of the result.
enum class RowGroup : uint8_t {
  kElementwise,  // inputs of one width, or of width 1, which is broadcast to every channel
  kByHead,       // as wide as the input; the channels of a head are processed together
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
    kBound,     // a number or nothing, which means the fallback
    kChoice,    // one of `choices`; the engine receives its position among them
  } kind;
  std::string name;
  std::vector<std::string> choices = {};
  bool optional = false;
  double fallback = 0;  // value of an optional setting that is left out
};

struct RowTensor {
  std::string role;
  bool optional;
};

struct RowOperator {
  std::string name;
  RowGroup group;
  OpKind kind;
  int least, most;  // number of inputs; `most` is -1 if it is not limited
  std::vector<RowSetting> settings;
  std::vector<RowTensor> tensors;
  std::string summary;
  // Null if the kind has its own implementation.
  void (*in_float)(const RowBlock<float>&) = nullptr;
  void (*in_double)(const RowBlock<double>&) = nullptr;
};

const std::vector<RowOperator>& row_operators();

// The position of a name; throws `std::out_of_range` if there is no such operator.
uint32_t find_row_operator(std::string_view name);

// The operator of an operation.
const RowOperator& row_operator_of(const Op& op);

// Number of multiplications of an operation for one row, if it is a product; used to estimate the cost of a row.
double multiplications(const RowsStep& step, const Op& op);

}  // namespace livegnn
