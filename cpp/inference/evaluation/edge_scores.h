// Computes rows of edge outputs: scores of pairs of nodes, which may be edges or not.
//
//   outputs at the sources ─┐
//   outputs at the targets ─┼─► operations, 32 pairs at a time ─► rows
//   features, weights ──────┘
//
// Invariant: the row of a pair does not depend on the other pairs.
// Thread safety: any number of threads; each has its own memory, which it keeps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "program/program.h"

namespace livegnn {

// Pairs of nodes with the columns of their edges.
struct ScoredPairs {
  std::span<const uint32_t> sources, targets;
  const float* features = nullptr;  // rows one after the other, as wide as the output reads them; unused if it does not
  const float* weights = nullptr;   // null: each is 1
};

// Writes rows of an output of the program for nodes, one after the other.
using ReadOutput = std::function<void(std::span<const uint32_t> nodes, size_t output, float* out)>;

size_t edge_output_width(const Program& program, size_t edge_output);

// Whether the edge output reads this column, or rows at this end.
bool reads(const EdgeOutput& output, MessageSource::Side side);

// The rows of an edge output, `edge_output_width` floats each. The program need not have the outputs that are read.
// Throws what `read` and functions of the model throw.
void score_pairs(const Program& program, size_t edge_output, const ScoredPairs& pairs, const ReadOutput& read,
                 float* out);

}  // namespace livegnn
